// Helpers for the kernels that GPUs do not share with CPUs.

#ifndef LODESTAR_TF_OPS_KERNELS_DEVICE_DEVICE_KERNEL_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_DEVICE_DEVICE_KERNEL_UTIL_H_

#if LODESTAR_CUDA

#include <cstdint>
#include <memory>

#include "tf_ops/core/device/device_gradient.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_resource.h"
#include "tf_ops/kernels/embedding/table_kernel.h"
#include "tf_ops/kernels/embedding/unique_ids.h"

namespace lodestar {

// Arguments of a kernel on a variable.
struct DeviceCall {
  OpKernelContext* ctx;
  const DeviceStream& on;
  DeviceStore* store;
};

// Base of kernels whose input 0 is the handle of a variable on a GPU.
class DeviceKernel : public Kernel {
 public:
  using Kernel::Kernel;
  absl::Status Run(OpKernelContext* ctx) final {
    tensorflow::core::RefCountPtr<EmbeddingResource> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &resource));
    std::shared_ptr<DeviceStore> store;
    LODESTAR_TRY(resource->GetStore(&store));
    const KernelStream stream(ctx);
    return RunOn({ctx, stream.on(), store.get()});
  }

 protected:
  virtual absl::Status RunOn(const DeviceCall& call) = 0;
};

inline DeviceStore::Ids IdsOf(const Tensor& tensor) {
  return {tensor.flat<int64_t>().data(), tensor.NumElements(), nullptr};
}

// Copies `count` unique ids within device memory to a tensor that is known to
// have unique ids.
inline absl::Status CopyUniqueIds(OpKernelContext* ctx, const DeviceStream& on,
                                  const int64_t* ids, int64_t count,
                                  Tensor* tensor) {
  LookupPlan* plan = nullptr;
  LODESTAR_TRY(AllocateUniqueIds(ctx, count, tensor, &plan));
  return ToTensorFlow(
      CopyOnDevice(on, ids, count * static_cast<int64_t>(sizeof(int64_t)),
                   tensor->flat<int64_t>().data()));
}

// An output of sums in device memory, accumulated in the compute type and
// rounded to a 16-bit output type if necessary.
class DeviceSums {
 public:
  absl::Status Init(OpKernelContext* ctx, Tensor* output) {
    output_ = output;
    const RowType type = RowTypeOf(output->dtype());
    rounds_ = ComputeType(type) != type;
    if (!rounds_) return absl::OkStatus();
    return ctx->allocate_temp(tensorflow::DT_FLOAT, output->shape(), &sums_);
  }
  void* data() { return RowData(rounds_ ? &sums_ : output_); }
  // Call after the sums are computed.
  absl::Status Round(const DeviceStream& on) {
    if (!rounds_) return absl::OkStatus();
    return ToTensorFlow(RoundNumbers(on, RowTypeOf(output_->dtype()),
                                     sums_.flat<float>().data(),
                                     sums_.NumElements(), RowData(output_)));
  }

 private:
  Tensor* output_ = nullptr;
  bool rounds_ = false;
  Tensor sums_;
};

}  // namespace lodestar

#endif  // LODESTAR_CUDA

#endif  // LODESTAR_TF_OPS_KERNELS_DEVICE_DEVICE_KERNEL_UTIL_H_
