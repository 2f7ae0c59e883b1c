// Identifies an update and the attempt at it, for exactly-once updates.

#ifndef LODESTAR_TF_OPS_KERNELS_STEPS_UPDATE_ATTEMPT_H_
#define LODESTAR_TF_OPS_KERNELS_STEPS_UPDATE_ATTEMPT_H_

#include <string>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/steps/update_log.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {

class UpdateLogResource : public tensorflow::ResourceBase {
 public:
  UpdateLog& log() { return log_; }
  std::string DebugString() const override {
    return StrCat("UpdateLog(updates=", log_.size(), ")");
  }

 private:
  UpdateLog log_;
};

// Finds the log of input `handle`.
inline absl::Status FindLog(
    OpKernelContext* ctx, int handle,
    tensorflow::core::RefCountPtr<UpdateLogResource>* resource) {
  LODESTAR_TRY(CheckRank(ctx->input(handle), "log", 0));
  return FindResource(ctx, ctx->input(handle), resource);
}

// Returns InvalidArgument unless input `input`, called `name`, is [2].
inline absl::Status CheckPair(OpKernelContext* ctx, int input,
                              const char* name) {
  LODESTAR_TRY(CheckRank(ctx->input(input), name, 1));
  if (ctx->input(input).NumElements() == 2) return absl::OkStatus();
  return InvalidArgumentError("`", name, "` must have 2 elements, got ",
                              ctx->input(input).NumElements(), ".");
}

// Calls call(log, attempt, name) with the log of input `first` and the attempt
// and name of the next two inputs. Returns Cancelled if that attempt is over.
// The error names a task, so a ClusterCoordinator reschedules the function.
template <typename Call>
absl::Status MakeAttempt(OpKernelContext* ctx, int first, const Call& call) {
  tensorflow::core::RefCountPtr<UpdateLogResource> resource;
  LODESTAR_TRY(FindLog(ctx, first, &resource));
  LODESTAR_TRY(CheckPair(ctx, first + 1, "attempt"));
  const Span<const int64_t> numbers = FlatSpan<int64_t>(ctx->input(first + 1));
  const UpdateLog::Attempt attempt{numbers[0], numbers[1]};
  LODESTAR_TRY(CheckRank(ctx->input(first + 2), "attempt_name", 0));
  const int64_t name = ctx->input(first + 2).scalar<int64_t>()();
  if (name < 1) {
    return InvalidArgumentError("`attempt_name` must be at least 1, got ", name,
                                ".");
  }
  UpdateLog& log = resource->log();
  const Status status = call(&log, attempt, name);
  if (status.code() == StatusCode::kFailedPrecondition &&
      !log.IsLast(attempt)) {
    return absl::CancelledError(
        StrCat(status.message(), " (on ", ctx->device()->name(), ")"));
  }
  return ToTensorFlow(status);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_STEPS_UPDATE_ATTEMPT_H_
