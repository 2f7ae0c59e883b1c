// Kernels of the ops that let copies of a served model take turns. Contracts:
// tf_ops/ops/embedding/turn_ops.cc.

#include <memory>
#include <string>
#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_tensor_data.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Variant;
using tensorflow::VariantTensorData;

struct Turn {
  int copy = 0;
};

// Who holds a turn keeps it; the mutex is held for no longer than it takes to
// copy a pointer.
class Turns {
 public:
  std::shared_ptr<const Turn> Hold() const {
    MutexLock lock(&mutex_);
    return turn_;
  }
  bool LastIsHeld() const {
    MutexLock lock(&mutex_);
    return !last_.expired();
  }
  Status Begin(int copy) {
    auto turn = std::make_shared<const Turn>(Turn{copy});
    MutexLock lock(&mutex_);
    if (!last_.expired()) {
      return FailedPrecondition("the turn before this one is still held");
    }
    last_ = turn_;
    turn_ = std::move(turn);
    return Status();
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const Turn> turn_ LODESTAR_GUARDED_BY(mutex_) =
      std::make_shared<const Turn>();
  std::weak_ptr<const Turn> last_ LODESTAR_GUARDED_BY(mutex_);
};

// What tensors of variants hold. They are of this process.
struct TurnsHandle {
  std::shared_ptr<Turns> turns;

  std::string TypeName() const { return "lodestar::TurnsHandle"; }
  void Encode(VariantTensorData* data) const {
    data->set_type_name(TypeName());
  }
  bool Decode(VariantTensorData data) { return false; }
};

struct TurnHandle {
  std::shared_ptr<const Turn> turn;

  std::string TypeName() const { return "lodestar::TurnHandle"; }
  void Encode(VariantTensorData* data) const {
    data->set_type_name(TypeName());
  }
  bool Decode(VariantTensorData data) { return false; }
};

absl::Status FindTurns(const Tensor& tensor, std::shared_ptr<Turns>* turns) {
  TF_RETURN_IF_ERROR(CheckRank(tensor, "turns", 0));
  const TurnsHandle* handle = tensor.scalar<Variant>()().get<TurnsHandle>();
  if (handle == nullptr || handle->turns == nullptr) {
    return InvalidArgumentError("`turns` is not what MakeTurns gives");
  }
  *turns = handle->turns;
  return absl::OkStatus();
}

class TurnKernel : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) final {
    ctx->SetStatus(WithoutBadAlloc([&] { return ComputeOn(ctx); }));
  }

 private:
  virtual absl::Status ComputeOn(OpKernelContext* ctx) = 0;
};

class MakeTurnsOp : public TurnKernel {
 public:
  using TurnKernel::TurnKernel;

 private:
  absl::Status ComputeOn(OpKernelContext* ctx) override {
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, {}, &output));
    output->scalar<Variant>()() = TurnsHandle{std::make_shared<Turns>()};
    return absl::OkStatus();
  }
};

class HoldTurnOp : public TurnKernel {
 public:
  using TurnKernel::TurnKernel;

 private:
  absl::Status ComputeOn(OpKernelContext* ctx) override {
    std::shared_ptr<Turns> turns;
    TF_RETURN_IF_ERROR(FindTurns(ctx->input(0), &turns));
    Tensor* turn = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, {}, &turn));
    Tensor* copy = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(1, {}, &copy));
    TurnHandle held{turns->Hold()};
    copy->scalar<int32_t>()() = held.turn->copy;
    turn->scalar<Variant>()() = std::move(held);
    return absl::OkStatus();
  }
};

class ReleaseTurnOp : public TurnKernel {
 public:
  using TurnKernel::TurnKernel;

 private:
  // The executor drops the tensor when its last consumer has run.
  absl::Status ComputeOn(OpKernelContext* ctx) override {
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(0), "turn", 0));
    if (ctx->input(0).scalar<Variant>()().get<TurnHandle>() == nullptr) {
      return InvalidArgumentError("`turn` is not what HoldTurn gives");
    }
    return absl::OkStatus();
  }
};

class BeginTurnOp : public TurnKernel {
 public:
  using TurnKernel::TurnKernel;

 private:
  absl::Status ComputeOn(OpKernelContext* ctx) override {
    std::shared_ptr<Turns> turns;
    TF_RETURN_IF_ERROR(FindTurns(ctx->input(0), &turns));
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(1), "copy", 0));
    return ToTensorFlow(turns->Begin(ctx->input(1).scalar<int32_t>()()));
  }
};

class LastTurnIsHeldOp : public TurnKernel {
 public:
  using TurnKernel::TurnKernel;

 private:
  absl::Status ComputeOn(OpKernelContext* ctx) override {
    std::shared_ptr<Turns> turns;
    TF_RETURN_IF_ERROR(FindTurns(ctx->input(0), &turns));
    Tensor* held = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, {}, &held));
    held->scalar<bool>()() = turns->LastIsHeld();
    return absl::OkStatus();
  }
};

#define REGISTER(name) \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name).Device(DEVICE_CPU), name##Op)
REGISTER(MakeTurns);
REGISTER(HoldTurn);
REGISTER(ReleaseTurn);
REGISTER(BeginTurn);
REGISTER(LastTurnIsHeld);
#undef REGISTER

}  // namespace
}  // namespace lodestar
