// Converts the content of a table to and from tensors in host memory: outputs
// of EmbeddingExport, inputs of EmbeddingImport.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_ROWS_TENSORS_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_ROWS_TENSORS_H_

#include <cstdint>
#include <cstring>

#include "tf_ops/core/table/embedding_rows.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"

namespace lodestar {

// Uses the dtype of the output.
inline absl::Status OutputNumbers(OpKernelContext* ctx, int output,
                                  const TensorShape& shape,
                                  const NumbersView& numbers) {
  Tensor* tensor = nullptr;
  LODESTAR_TRY(ctx->allocate_output(output, shape, &tensor));
  if (!numbers.empty()) {
    std::memcpy(RowData(tensor), numbers.at(0),
                numbers.size() * SizeOf(numbers.type()));
  }
  return absl::OkStatus();
}

// Outputs EmbeddingExport's tensors for rows of dimension `dim`.
inline absl::Status OutputRows(OpKernelContext* ctx, const EmbeddingRows& rows,
                               int64_t dim, bool with_rows) {
  const int64_t n =
      with_rows ? static_cast<int64_t>(rows.ids.size()) : int64_t{0};
  const AttachedOptimizer& optimizer = rows.optimizer;
  const SlotShape slots = optimizer.slots();
  LODESTAR_TRY(OutputVector(ctx, 0, rows.ids));
  LODESTAR_TRY(OutputNumbers(ctx, 1, {n, dim}, rows.values));
  LODESTAR_TRY(
      OutputNumbers(ctx, 2, {slots.count, n, slots.Width(dim)}, rows.slots));
  LODESTAR_TRY(OutputVector(ctx, 3, rows.frequencies));
  LODESTAR_TRY(OutputVector(ctx, 4, rows.last_seen));
  LODESTAR_TRY(OutputScalar(ctx, 5, optimizer.name));
  LODESTAR_TRY(OutputVector(ctx, 6, optimizer.slot_names));
  LODESTAR_TRY(OutputVector(ctx, 7, optimizer.slot_inits));
  LODESTAR_TRY(OutputVector<int64_t>(
      ctx, 8, {rows.step, rows.seed, rows.salt, rows.own_step ? 1 : 0}));
  LODESTAR_TRY(OutputVector(ctx, 9, rows.pending_ids));
  LODESTAR_TRY(OutputVector(ctx, 10, rows.pending_sightings));
  LODESTAR_TRY(OutputVector(ctx, 11, rows.pending_last_seen));
  LODESTAR_TRY(OutputVector(ctx, 12, rows.sketch));
  const int64_t shared = rows.shared_values.size() / dim;
  LODESTAR_TRY(OutputNumbers(ctx, 13, {shared, dim}, rows.shared_values));
  return OutputNumbers(ctx, 14, {slots.count, shared, slots.Width(dim)},
                       rows.shared_slots);
}

// Views the inputs of EmbeddingImport, which must outlive `rows`.
inline absl::Status ReadRowsView(OpKernelContext* ctx, int64_t dim,
                                 EmbeddingRowsView* rows) {
  const Tensor& values = ctx->input(2);
  const Tensor& slots = ctx->input(3);
  LODESTAR_TRY(CheckRank(ctx->input(1), "ids", 1));
  LODESTAR_TRY(CheckRank(values, "rows", 2));
  LODESTAR_TRY(CheckRank(slots, "slots", 3));
  LODESTAR_TRY(CheckRank(ctx->input(4), "frequencies", 1));
  LODESTAR_TRY(CheckRank(ctx->input(5), "last_seen", 1));
  LODESTAR_TRY(CheckRank(ctx->input(6), "optimizer", 0));
  LODESTAR_TRY(CheckRank(ctx->input(7), "slot_names", 1));
  LODESTAR_TRY(CheckRank(ctx->input(8), "slot_inits", 1));
  LODESTAR_TRY(CheckRank(ctx->input(9), "counters", 1));
  LODESTAR_TRY(CheckRank(ctx->input(10), "pending_ids", 1));
  LODESTAR_TRY(CheckRank(ctx->input(11), "pending_sightings", 1));
  LODESTAR_TRY(CheckRank(ctx->input(12), "pending_last_seen", 1));
  LODESTAR_TRY(CheckRank(ctx->input(13), "sketch", 1));
  LODESTAR_TRY(CheckRank(ctx->input(14), "shared_rows", 2));
  LODESTAR_TRY(CheckRank(ctx->input(15), "shared_slots", 3));
  const int64_t n = ctx->input(1).NumElements();
  if (!(values.dim_size(0) == n && values.dim_size(1) == dim)) {
    return InvalidArgumentError("`rows` must have shape [", n, ",", dim,
                                "], got ", values.shape().DebugString(), ".");
  }
  const int64_t num_counters = ctx->input(9).NumElements();
  if (!(num_counters == 4 || num_counters == 0)) {
    return InvalidArgumentError("`counters` must have 4 elements or none, got ",
                                num_counters, ".");
  }
  rows->ids = FlatSpan<int64_t>(ctx->input(1));
  rows->values = RowNumbers(values);
  rows->slots = RowNumbers(slots);
  rows->frequencies = FlatSpan<int64_t>(ctx->input(4));
  rows->last_seen = FlatSpan<int64_t>(ctx->input(5));
  rows->optimizer.name = ctx->input(6).scalar<tstring>()();
  const auto names = ctx->input(7).flat<tstring>();
  for (int64_t s = 0; s < names.size(); ++s) {
    rows->optimizer.slot_names.push_back(names(s));
  }
  const auto inits = FlatSpan<float>(ctx->input(8));
  rows->optimizer.slot_inits.assign(inits.begin(), inits.end());
  const auto counters = ctx->input(9).flat<int64_t>();
  rows->with_counters = num_counters == 4;
  if (rows->with_counters) {
    rows->step = counters(0);
    rows->seed = counters(1);
    rows->salt = counters(2);
    rows->own_step = counters(3) != 0;
  }
  rows->pending_ids = FlatSpan<int64_t>(ctx->input(10));
  rows->pending_sightings = FlatSpan<int64_t>(ctx->input(11));
  rows->pending_last_seen = FlatSpan<int64_t>(ctx->input(12));
  rows->sketch = FlatSpan<uint8_t>(ctx->input(13));
  rows->shared_values = RowNumbers(ctx->input(14));
  rows->shared_slots = RowNumbers(ctx->input(15));
  return absl::OkStatus();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_ROWS_TENSORS_H_
