#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/table_kernel.h"
#include "tf_ops/kernels/embedding/update_inputs.h"

namespace lodestar {
namespace {

absl::Status CheckPerId(OpKernelContext* ctx, int input, const char* name) {
  const int64_t count = ctx->input(1).NumElements();
  LODESTAR_TRY(CheckRank(ctx->input(1), "ids", 1));
  LODESTAR_TRY(CheckRank(ctx->input(input), name, 1));
  if (ctx->input(input).NumElements() == count) return absl::OkStatus();
  return InvalidArgumentError("`", name, "` has ",
                              ctx->input(input).NumElements(),
                              " items, but there are ", count, " ids.");
}

class EmbeddingGatherForUpdateOp : public TableKernel {
 public:
  explicit EmbeddingGatherForUpdateOp(OpKernelConstruction* ctx)
      : TableKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadOptimizer(ctx, &optimizer_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_inits", &optimizer_.slot_inits));
    OP_REQUIRES_OK(ctx, ReadNonfinite(ctx, &nonfinite_));
  }

  absl::Status RunOn(const TableCall& call) override {
    OpKernelContext* const ctx = call.ctx;
    LODESTAR_TRY(CheckPerId(ctx, 2, "shared"));
    TableUpdate update;
    LODESTAR_TRY(
        ReadGradients(ctx->input(1), ctx->input(3), call.table, &update));
    update.nonfinite = nonfinite_;
    const Status status = call.table->GatherForUpdate(
        update, FlatSpan<bool>(ctx->input(2)), optimizer_,
        [&](int64_t rows, RowsForUpdate* out) {
          const absl::Status allocated =
              Allocate(ctx, rows, call.table->dim(), out);
          if (allocated.ok()) return Status();
          return ResourceExhausted(std::string(allocated.message()));
        },
        call.on);
    return WithTableName(ctx, ToTensorFlow(status));
  }

 private:
  absl::Status Allocate(OpKernelContext* ctx, int64_t count, int dim,
                        RowsForUpdate* out) const {
    const int64_t num_slots =
        static_cast<int64_t>(optimizer_.slot_names.size());
    const TensorShape shapes[] = {
        {count}, {count}, {count, dim}, {count, dim}, {num_slots, count, dim},
        {count}};
    Tensor* outputs[6];
    for (int i = 0; i < 6; ++i) {
      LODESTAR_TRY(ctx->allocate_output(i, shapes[i], &outputs[i]));
    }
    *out = {outputs[0]->flat<int64_t>().data(),
            outputs[1]->flat<bool>().data(),
            RowData(outputs[2]),
            RowData(outputs[3]),
            RowData(outputs[4]),
            outputs[5]->flat<int64_t>().data()};
    return absl::OkStatus();
  }

  AttachedOptimizer optimizer_;
  Nonfinite nonfinite_ = Nonfinite::kRaise;
};

class EmbeddingAssignIfUnchangedOp : public TableKernel {
 public:
  explicit EmbeddingAssignIfUnchangedOp(OpKernelConstruction* ctx)
      : TableKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadOptimizer(ctx, &optimizer_));
    // Only their number matters: the slots are attached already.
    optimizer_.slot_inits.resize(optimizer_.slot_names.size());
  }

  absl::Status RunOn(const TableCall& call) override {
    OpKernelContext* const ctx = call.ctx;
    LODESTAR_TRY(CheckPerId(ctx, 2, "shared"));
    LODESTAR_TRY(CheckPerId(ctx, 3, "versions"));
    LODESTAR_TRY(CheckRank(ctx->input(6), "next_step", 0));
    const int64_t count = ctx->input(1).NumElements();
    const int64_t num_slots =
        static_cast<int64_t>(optimizer_.slot_names.size());
    const TensorShape rows_shape({count, call.table->dim()});
    const TensorShape slots_shape({num_slots, count, call.table->dim()});
    LODESTAR_TRY(CheckShape(ctx->input(4), "rows", rows_shape));
    LODESTAR_TRY(CheckShape(ctx->input(5), "slots", slots_shape));
    Tensor* changed = nullptr;
    LODESTAR_TRY(ctx->allocate_output(0, {count}, &changed));
    UpdatedRows rows;
    rows.ids = FlatSpan<int64_t>(ctx->input(1));
    rows.shared = FlatSpan<bool>(ctx->input(2));
    rows.versions = FlatSpan<int64_t>(ctx->input(3));
    rows.values = RowData(ctx->input(4));
    rows.slots = RowData(ctx->input(5));
    return WithTableName(
        ctx, ToTensorFlow(call.table->AssignIfUnchanged(
                 rows, optimizer_, ctx->input(6).scalar<int64_t>()(),
                 changed->flat<bool>().data(), call.on)));
  }

 private:
  static absl::Status CheckShape(const Tensor& tensor, const char* name,
                                 const TensorShape& wanted) {
    if (tensor.shape() == wanted) return absl::OkStatus();
    return InvalidArgumentError("`", name, "` must have shape ",
                                wanted.DebugString(), ", got ",
                                tensor.shape().DebugString(), ".");
  }

  AttachedOptimizer optimizer_;
};

LODESTAR_REGISTER_TABLE(EmbeddingGatherForUpdate, EmbeddingGatherForUpdateOp,
                        .HostMemory("handle"));
LODESTAR_REGISTER_TABLE(EmbeddingAssignIfUnchanged,
                        EmbeddingAssignIfUnchangedOp,
                        .HostMemory("handle").HostMemory("next_step"));

}  // namespace
}  // namespace lodestar
