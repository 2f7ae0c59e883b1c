#include <memory>
#include <string>
#include <utility>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/base/variant_handle.h"

namespace lodestar {
namespace {

struct Turn {
  int copy = 0;
};

// A turn is held by keeping the pointer; the mutex is only held to copy it.
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
      return FailedPrecondition("the previous turn is still held.");
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

absl::Status ReadTurns(OpKernelContext* ctx, std::shared_ptr<Turns>* turns) {
  return ReadHandle(ctx->input(0), "turns", "MakeTurns", turns);
}

absl::Status RunMakeTurns(OpKernelContext* ctx) {
  return OutputHandle(ctx, 0, std::make_shared<Turns>());
}

absl::Status RunHoldTurn(OpKernelContext* ctx) {
  std::shared_ptr<Turns> turns;
  LODESTAR_TRY(ReadTurns(ctx, &turns));
  std::shared_ptr<const Turn> turn = turns->Hold();
  LODESTAR_TRY(OutputScalar(ctx, 1, turn->copy));
  return OutputHandle(ctx, 0, std::move(turn));
}

// The executor destroys the tensor after its last consumer has run.
absl::Status RunReleaseTurn(OpKernelContext* ctx) {
  std::shared_ptr<const Turn> turn;
  return ReadHandle(ctx->input(0), "turn", "HoldTurn", &turn);
}

absl::Status RunBeginTurn(OpKernelContext* ctx) {
  std::shared_ptr<Turns> turns;
  LODESTAR_TRY(ReadTurns(ctx, &turns));
  LODESTAR_TRY(CheckRank(ctx->input(1), "copy", 0));
  return ToTensorFlow(turns->Begin(ctx->input(1).scalar<int32_t>()()));
}

absl::Status RunLastTurnIsHeld(OpKernelContext* ctx) {
  std::shared_ptr<Turns> turns;
  LODESTAR_TRY(ReadTurns(ctx, &turns));
  return OutputScalar(ctx, 0, turns->LastIsHeld());
}

LODESTAR_REGISTER_FUNCTION(MakeTurns);
LODESTAR_REGISTER_FUNCTION(HoldTurn);
LODESTAR_REGISTER_FUNCTION(ReleaseTurn);
LODESTAR_REGISTER_FUNCTION(BeginTurn);
LODESTAR_REGISTER_FUNCTION(LastTurnIsHeld);

}  // namespace
}  // namespace lodestar
