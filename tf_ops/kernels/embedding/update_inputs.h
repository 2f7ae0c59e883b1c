// Attributes and inputs of updates of embedding variables.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_UPDATE_INPUTS_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_UPDATE_INPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/unique_ids.h"

namespace lodestar {

// Reads `ids` ([N]) and `gradients` ([N, D]).
inline absl::Status ReadGradients(const Tensor& ids, const Tensor& gradients,
                                  Table* table, TableUpdate* update) {
  LODESTAR_TRY(CheckRank(ids, "ids", 1));
  LODESTAR_TRY(CheckRank(gradients, "gradients", 2));
  if (gradients.dim_size(0) != ids.NumElements() ||
      gradients.dim_size(1) != table->dim()) {
    return InvalidArgumentError("`gradients` must have shape [",
                                ids.NumElements(), ",", table->dim(), "], got ",
                                gradients.shape().DebugString(), ".");
  }
  update->table = table;
  update->ids = FlatSpan<int64_t>(ids);
  update->plan = PlanOf(ids);
  update->gradients = RowData(gradients);
  return absl::OkStatus();
}

// Reads attribute nonfinite.
inline absl::Status ReadNonfinite(OpKernelConstruction* ctx,
                                  Nonfinite* nonfinite) {
  std::string text;
  LODESTAR_TRY(ctx->GetAttr("nonfinite", &text));
  *nonfinite = text == "raise"  ? Nonfinite::kRaise
               : text == "skip" ? Nonfinite::kSkip
                                : Nonfinite::kPass;
  return absl::OkStatus();
}

// Attributes of an update.
struct UpdateAttributes {
  std::string optimizer;
  std::vector<float> slot_inits;
  bool create_missing = false;
  Nonfinite nonfinite = Nonfinite::kRaise;

  absl::Status Init(OpKernelConstruction* ctx) {
    LODESTAR_TRY(ctx->GetAttr("optimizer", &optimizer));
    LODESTAR_TRY(ctx->GetAttr("slot_inits", &slot_inits));
    LODESTAR_TRY(ctx->GetAttr("create_missing", &create_missing));
    return ReadNonfinite(ctx, &nonfinite);
  }
  // Reads the inputs from `first` on, every `stride`-th. These attributes and
  // the inputs must outlive *update.
  absl::Status Read(OpKernelContext* ctx, int first, int stride, Table* table,
                    TableUpdate* update) const {
    const Tensor& hyperparameters = ctx->input(first + 2 * stride);
    const Tensor& next_step = ctx->input(first + 3 * stride);
    LODESTAR_TRY(ReadGradients(ctx->input(first), ctx->input(first + stride),
                               table, update));
    LODESTAR_TRY(CheckRank(hyperparameters, "hyperparameters", 1));
    LODESTAR_TRY(CheckRank(next_step, "next_step", 0));
    update->nonfinite = nonfinite;
    update->optimizer = optimizer;
    update->hyperparameters = FlatSpan<float>(hyperparameters);
    update->slot_inits = slot_inits;
    update->create_missing = create_missing;
    update->next_step = next_step.scalar<int64_t>()();
    return absl::OkStatus();
  }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_UPDATE_INPUTS_H_
