// Which attempt at which update a kernel is a part of.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_UPDATE_ATTEMPT_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_UPDATE_ATTEMPT_H_

#include <cstdint>

#include "tf_ops/core/base/update_log.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {

// From the inputs run, update and attempt, of which `first` is the first.
inline absl::Status ReadAttempt(OpKernelContext* ctx, int first,
                                UpdateLog::Attempt* attempt) {
  LODESTAR_TRY(CheckRank(ctx->input(first), "run", 0));
  LODESTAR_TRY(CheckRank(ctx->input(first + 1), "update", 0));
  LODESTAR_TRY(CheckRank(ctx->input(first + 2), "attempt", 0));
  attempt->run = ctx->input(first).scalar<int64_t>()();
  attempt->update = ctx->input(first + 1).scalar<int64_t>()();
  attempt->number = ctx->input(first + 2).scalar<int64_t>()();
  return absl::OkStatus();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_UPDATE_ATTEMPT_H_
