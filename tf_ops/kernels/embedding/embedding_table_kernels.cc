#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/rows/step_gate.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_policies.h"

namespace lodestar {
namespace {

// The dtype of the output is theirs.
absl::Status OutputNumbers(OpKernelContext* ctx, int output,
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

// The attributes dtype and slot_dtype of an op that outputs rows.
class RowDtypes {
 public:
  absl::Status Init(OpKernelConstruction* ctx) {
    LODESTAR_TRY(ctx->GetAttr("dtype", &dtype_));
    return ctx->GetAttr("slot_dtype", &slot_dtype_);
  }

  absl::Status Check(const EmbeddingStore& store) const {
    LODESTAR_TRY(CheckDtype(dtype_, "dtype", store.type()));
    const RowType slots = ComputeType(store.type());
    if (slot_dtype_ == DataTypeOf(slots)) return absl::OkStatus();
    return InvalidArgumentError(
        "`slot_dtype` is ", NameOf(RowTypeOf(slot_dtype_)),
        ", but the optimizer slots of ", NameOf(store.type()), " rows are ",
        NameOf(slots));
  }

 private:
  DataType dtype_;
  DataType slot_dtype_;
};

absl::Status RunEmbeddingInsertOrAssign(OpKernelContext* ctx,
                                        EmbeddingStore* store) {
  const Tensor& rows = ctx->input(2);
  LODESTAR_TRY(CheckRank(ctx->input(1), "ids", 1));
  LODESTAR_TRY(CheckRank(rows, "rows", 2));
  const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(1));
  if (!(rows.dim_size(0) == ids.size() && rows.dim_size(1) == store->dim())) {
    return InvalidArgumentError("`rows` has shape ", rows.shape().DebugString(),
                                ", wanted [", ids.size(), ",", store->dim(),
                                "]");
  }
  LODESTAR_TRY(CheckDtype(rows.dtype(), "rows", store->type()));
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  return ToTensorFlow(store->InsertOrAssign(ids, RowData(rows), &parallel));
}

absl::Status RunEmbeddingRemove(OpKernelContext* ctx, EmbeddingStore* store) {
  int64_t removed = 0;
  LODESTAR_TRY(store->Remove(FlatSpan<int64_t>(ctx->input(1)), &removed));
  return OutputScalar(ctx, 0, removed);
}

absl::Status RunEmbeddingClear(OpKernelContext*, EmbeddingStore* store) {
  return ToTensorFlow(store->Clear());
}

absl::Status RunEmbeddingRemoveAll(OpKernelContext*, EmbeddingStore* store) {
  return ToTensorFlow(store->RemoveAll());
}

absl::Status RunEmbeddingCompact(OpKernelContext* ctx, EmbeddingStore* store) {
  int64_t bytes = 0;
  LODESTAR_TRY(store->Compact(&bytes));
  return OutputScalar(ctx, 0, bytes);
}

absl::Status RunEmbeddingSize(OpKernelContext* ctx, EmbeddingStore* store) {
  return OutputScalar(ctx, 0, store->size());
}

absl::Status RunEmbeddingFrequency(OpKernelContext* ctx,
                                   EmbeddingStore* store) {
  const Tensor& ids = ctx->input(1);
  Tensor* frequencies = nullptr;
  LODESTAR_TRY(ctx->allocate_output(0, ids.shape(), &frequencies));
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  store->Frequency(FlatSpan<int64_t>(ids), FlatSpan<int64_t>(frequencies),
                   &parallel);
  return absl::OkStatus();
}

absl::Status RunEmbeddingStep(OpKernelContext* ctx, EmbeddingStore* store) {
  return OutputScalar(ctx, 0, store->step());
}

absl::Status RunEmbeddingSetStep(OpKernelContext* ctx, EmbeddingStore* store) {
  LODESTAR_TRY(CheckRank(ctx->input(1), "step", 0));
  store->SetStep(ctx->input(1).scalar<int64_t>()());
  return absl::OkStatus();
}

absl::Status RunEmbeddingReleaseStep(OpKernelContext*, EmbeddingStore* store) {
  store->ReleaseStep();
  return absl::OkStatus();
}

class EmbeddingStatsOp : public EmbeddingKernel {
 public:
  explicit EmbeddingStatsOp(OpKernelConstruction* ctx) : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reset", &reset_));
  }
  absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    const EmbeddingStats s = store->Stats();
    std::vector<int64_t> numbers = {s.rows,       s.index_bytes,  s.row_bytes,
                                    s.slot_bytes, s.policy_bytes, s.capacity,
                                    s.max_rows,   s.pending};
    numbers.insert(numbers.end(), s.events.begin(), s.events.end());
    LODESTAR_TRY(OutputVector(ctx, 0, numbers));
    Tensor* shards = nullptr;
    LODESTAR_TRY(ctx->allocate_output(
        1, {static_cast<int64_t>(s.shards.size()), 2}, &shards));
    for (size_t i = 0; i < s.shards.size(); ++i) {
      shards->matrix<int64_t>()(i, 0) = s.shards[i].rows;
      shards->matrix<int64_t>()(i, 1) = s.shards[i].bytes;
    }
    if (reset_) store->SubtractEvents(s);
    return absl::OkStatus();
  }

 private:
  bool reset_ = false;
};

class EmbeddingInspectOp : public EmbeddingKernel {
 public:
  explicit EmbeddingInspectOp(OpKernelConstruction* ctx)
      : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, dtypes_.Init(ctx));
  }
  absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    LODESTAR_TRY(dtypes_.Check(*store));
    LODESTAR_TRY(CheckRank(ctx->input(1), "ids", 1));
    const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(1));
    InspectedIds found;
    LODESTAR_TRY(store->Inspect(ids, &found));
    LODESTAR_TRY(
        OutputNumbers(ctx, 0, {ids.size(), store->dim()}, found.values));
    const int64_t num_slots = static_cast<int64_t>(found.slot_names.size());
    LODESTAR_TRY(OutputNumbers(ctx, 1, {num_slots, ids.size(), store->dim()},
                               found.slots));
    LODESTAR_TRY(OutputVector(ctx, 2, found.slot_names));
    LODESTAR_TRY(OutputVector(ctx, 3, found.frequencies));
    LODESTAR_TRY(OutputVector(ctx, 4, found.last_seen));
    LODESTAR_TRY(OutputVector(ctx, 5, found.shards));
    return OutputVector(ctx, 6, found.states);
  }

 private:
  RowDtypes dtypes_;
};

class EmbeddingEvictOp : public EmbeddingKernel {
 public:
  explicit EmbeddingEvictOp(OpKernelConstruction* ctx) : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("own_policy", &own_policy_));
    OP_REQUIRES_OK(ctx, ReadEviction(ctx, &policy_));
  }
  absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    int64_t evicted = 0;
    LODESTAR_TRY(own_policy_ ? store->Evict(&evicted, &parallel)
                             : store->Evict(policy_, &evicted, &parallel));
    return OutputScalar(ctx, 0, evicted);
  }

 private:
  bool own_policy_ = true;
  EvictionPolicy policy_;
};

absl::Status RunEmbeddingDecayFrequencies(OpKernelContext* ctx,
                                          EmbeddingStore* store) {
  LODESTAR_TRY(CheckRank(ctx->input(1), "rate", 0));
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  return ToTensorFlow(
      store->DecayFrequencies(ctx->input(1).scalar<double>()(), &parallel));
}

class EmbeddingExportOp : public EmbeddingKernel {
 public:
  explicit EmbeddingExportOp(OpKernelConstruction* ctx) : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer_slots", &with_slots_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("with_rows", &with_rows_));
    OP_REQUIRES_OK(ctx, dtypes_.Init(ctx));
  }
  absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    LODESTAR_TRY(dtypes_.Check(*store));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    EmbeddingRows rows;
    LODESTAR_TRY(store->Export(with_slots_, &rows, &parallel, with_rows_));
    const int64_t n =
        with_rows_ ? static_cast<int64_t>(rows.ids.size()) : int64_t{0};
    const AttachedOptimizer& optimizer = rows.optimizer;
    const int64_t num_slots = static_cast<int64_t>(optimizer.slot_inits.size());
    LODESTAR_TRY(OutputVector(ctx, 0, rows.ids));
    LODESTAR_TRY(OutputNumbers(ctx, 1, {n, store->dim()}, rows.values));
    LODESTAR_TRY(
        OutputNumbers(ctx, 2, {num_slots, n, store->dim()}, rows.slots));
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
    const int64_t shared = rows.shared_values.size() / store->dim();
    LODESTAR_TRY(
        OutputNumbers(ctx, 13, {shared, store->dim()}, rows.shared_values));
    return OutputNumbers(ctx, 14, {num_slots, shared, store->dim()},
                         rows.shared_slots);
  }

 private:
  bool with_slots_ = true;
  bool with_rows_ = true;
  RowDtypes dtypes_;
};

class EmbeddingImportOp : public EmbeddingKernel {
 public:
  explicit EmbeddingImportOp(OpKernelConstruction* ctx) : EmbeddingKernel(ctx) {
    std::string mode;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("mode", &mode));
    replace_ = mode == "replace";
  }
  absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore* store) override {
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
    if (!(values.dim_size(0) == n && values.dim_size(1) == store->dim())) {
      return InvalidArgumentError("`rows` has shape ",
                                  values.shape().DebugString(), ", wanted [", n,
                                  ",", store->dim(), "]");
    }
    const int64_t num_counters = ctx->input(9).NumElements();
    if (!(num_counters == 4 || num_counters == 0)) {
      return InvalidArgumentError("`counters` has ", num_counters,
                                  " numbers, wanted 4 or none");
    }
    EmbeddingRowsView rows;
    rows.ids = FlatSpan<int64_t>(ctx->input(1));
    rows.values = RowNumbers(values);
    rows.slots = RowNumbers(slots);
    rows.frequencies = FlatSpan<int64_t>(ctx->input(4));
    rows.last_seen = FlatSpan<int64_t>(ctx->input(5));
    rows.optimizer.name = ctx->input(6).scalar<tstring>()();
    const auto names = ctx->input(7).flat<tstring>();
    for (int64_t s = 0; s < names.size(); ++s) {
      rows.optimizer.slot_names.push_back(names(s));
    }
    const auto inits = FlatSpan<float>(ctx->input(8));
    rows.optimizer.slot_inits.assign(inits.begin(), inits.end());
    const auto counters = ctx->input(9).flat<int64_t>();
    rows.with_counters = num_counters == 4;
    if (rows.with_counters) {
      rows.step = counters(0);
      rows.seed = counters(1);
      rows.salt = counters(2);
      rows.own_step = counters(3) != 0;
    }
    rows.pending_ids = FlatSpan<int64_t>(ctx->input(10));
    rows.pending_sightings = FlatSpan<int64_t>(ctx->input(11));
    rows.pending_last_seen = FlatSpan<int64_t>(ctx->input(12));
    rows.sketch = FlatSpan<uint8_t>(ctx->input(13));
    rows.shared_values = RowNumbers(ctx->input(14));
    rows.shared_slots = RowNumbers(ctx->input(15));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    if (!replace_) return ToTensorFlow(store->Import(rows, &parallel));
    tensorflow::core::RefCountPtr<EmbeddingResource> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &resource));
    std::unique_ptr<EmbeddingStore> table;
    LODESTAR_TRY(ToTensorFlow(
        EmbeddingStore::CreateFrom(rows, *store, &parallel, &table)));
    // Between two steps, as a restore does.
    return ToTensorFlow(StepGate::Global().Flip([&] {
      if (resource->store().get() != store) {
        return FailedPrecondition(
            "another import or a restore has replaced the table meanwhile; it "
            "is as that left it");
      }
      table->TakeOver(*store, rows);
      resource->Replace(std::move(table));
      return Status();
    }));
  }

 private:
  bool replace_ = true;
};

LODESTAR_REGISTER_EMBEDDING_FUNCTION(EmbeddingInsertOrAssign);
LODESTAR_REGISTER_EMBEDDING_FUNCTION(EmbeddingRemove);
LODESTAR_REGISTER_EMBEDDING_FUNCTION(EmbeddingClear);
LODESTAR_REGISTER_EMBEDDING_FUNCTION(EmbeddingRemoveAll);
LODESTAR_REGISTER_EMBEDDING_FUNCTION(EmbeddingCompact);
LODESTAR_REGISTER_EMBEDDING_FUNCTION(EmbeddingSize);
LODESTAR_REGISTER_EMBEDDING_FUNCTION(EmbeddingFrequency);
LODESTAR_REGISTER_EMBEDDING_FUNCTION(EmbeddingStep);
LODESTAR_REGISTER_EMBEDDING_FUNCTION(EmbeddingSetStep);
LODESTAR_REGISTER_EMBEDDING_FUNCTION(EmbeddingReleaseStep);
LODESTAR_REGISTER(EmbeddingStats);
LODESTAR_REGISTER(EmbeddingInspect);
LODESTAR_REGISTER(EmbeddingEvict);
LODESTAR_REGISTER_EMBEDDING_FUNCTION(EmbeddingDecayFrequencies);
LODESTAR_REGISTER(EmbeddingExport);
LODESTAR_REGISTER(EmbeddingImport);

}  // namespace
}  // namespace lodestar
