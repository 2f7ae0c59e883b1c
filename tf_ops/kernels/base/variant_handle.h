// A tensor of variants that holds an object of this process.

#ifndef LODESTAR_TF_OPS_KERNELS_BASE_VARIANT_HANDLE_H_
#define LODESTAR_TF_OPS_KERNELS_BASE_VARIANT_HANDLE_H_

#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_tensor_data.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {

// Keeps the object alive as long as the tensor or a copy of it exists. Cannot
// be serialized.
template <typename Object>
struct VariantHandle {
  std::shared_ptr<Object> object;

  std::string TypeName() const { return typeid(Object).name(); }
  void Encode(tensorflow::VariantTensorData* data) const {
    data->set_type_name(TypeName());
  }
  bool Decode(tensorflow::VariantTensorData) { return false; }
};

// Outputs a scalar in host memory that holds `object`.
template <typename Object>
absl::Status OutputHandle(OpKernelContext* ctx, int output,
                          std::shared_ptr<Object> object) {
  // Also for a kernel on a GPU, which must not declare it .HostMemory:
  // TensorFlow would then copy it to the device where an op returns it.
  tensorflow::AllocatorAttributes on_host;
  on_host.set_on_host(true);
  Tensor* tensor = nullptr;
  LODESTAR_TRY(ctx->allocate_output(output, {}, &tensor, on_host));
  tensor->scalar<tensorflow::Variant>()() =
      VariantHandle<Object>{std::move(object)};
  return absl::OkStatus();
}

// Returns InvalidArgument unless `tensor`, an input called `name`, is a scalar
// produced by the op `maker`.
template <typename Object>
absl::Status ReadHandle(const Tensor& tensor, const char* name,
                        const char* maker, std::shared_ptr<Object>* object) {
  LODESTAR_TRY(CheckRank(tensor, name, 0));
  const auto* handle =
      tensor.scalar<tensorflow::Variant>()().get<VariantHandle<Object>>();
  if (handle == nullptr || handle->object == nullptr) {
    return InvalidArgumentError("`", name, "` must be an output of ", maker,
                                ".");
  }
  *object = handle->object;
  return absl::OkStatus();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_BASE_VARIANT_HANDLE_H_
