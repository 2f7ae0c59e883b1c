// Kernels of BeginStep and EndStep. Contracts:
// tf_ops/ops/embedding/step_ops.cc; algorithm: tf_ops/core/rows/step_gate.h.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_tensor_data.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/rows/step_gate.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/step_kernel.h"

namespace lodestar {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Variant;
using tensorflow::VariantTensorData;

// What a tensor of variants holds. A step that fails never gets to EndStep:
// then it ends with the tensor.
struct StepHandle {
  std::shared_ptr<StepStay> stay;

  std::string TypeName() const { return "lodestar::StepHandle"; }
  // It is of this process.
  void Encode(VariantTensorData* data) const {
    data->set_type_name(TypeName());
  }
  bool Decode(VariantTensorData data) { return false; }
};

class BeginStepOp : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    try {
      EnterStep(ctx, [ctx, done] {
        ctx->SetStatus(OutputStay(ctx));
        done();
      });
    } catch (const std::bad_alloc&) {
      ctx->SetStatus(ToTensorFlow(ResourceExhausted("out of memory")));
      done();
    }
  }

 private:
  // Inside the gate, which it leaves if it fails.
  static absl::Status OutputStay(OpKernelContext* ctx) {
    std::unique_ptr<StepStay> stay(new (std::nothrow)
                                       StepStay(&StepGate::Global()));
    if (stay == nullptr) {
      StepGate::Global().Exit();
      return ToTensorFlow(ResourceExhausted("out of memory"));
    }
    return WithoutBadAlloc([&] {
      Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(ctx->allocate_output(0, {}, &output));
      output->scalar<Variant>()() =
          StepHandle{std::shared_ptr<StepStay>(std::move(stay))};
      return absl::OkStatus();
    });
  }
};

class EndStepOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(0), "step", 0));
    const StepHandle* step =
        ctx->input(0).scalar<Variant>()().get<StepHandle>();
    OP_REQUIRES(ctx, step != nullptr && step->stay != nullptr,
                InvalidArgumentError("`step` is not what BeginStep gives"));
    const absl::Status status = MoveSteps(ctx);
    step->stay->End();
    OP_REQUIRES_OK(ctx, status);
  }

 private:
  static absl::Status MoveSteps(OpKernelContext* ctx) {
    const int num_tables = (ctx->num_inputs() - 1) / 2;
    std::vector<std::shared_ptr<EmbeddingStore>> stores;
    for (int i = 1; i <= num_tables; ++i) {
      tensorflow::core::RefCountPtr<EmbeddingResource> resource;
      TF_RETURN_IF_ERROR(tensorflow::LookupResource(
          ctx, tensorflow::HandleFromInput(ctx, i), &resource));
      TF_RETURN_IF_ERROR(
          CheckRank(ctx->input(num_tables + i), "next_steps", 0));
      stores.push_back(resource->store());
    }
    // Steps that are inside together would leave some variables with the step
    // of one of them, and some with that of another.
    static Mutex mutex;
    MutexLock lock(&mutex);
    for (int i = 0; i < num_tables; ++i) {
      stores[i]->MoveStep(ctx->input(1 + num_tables + i).scalar<int64_t>()());
    }
    return absl::OkStatus();
  }
};

#define REGISTER(name) \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name).Device(DEVICE_CPU), name##Op)
REGISTER(BeginStep);
REGISTER(EndStep);
#undef REGISTER

}  // namespace
}  // namespace lodestar
