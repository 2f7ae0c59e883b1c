#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/rows/step_gate.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_policies.h"
#include "tf_ops/kernels/embedding/embedding_rows_tensors.h"

namespace lodestar {
namespace {

absl::Status RunEmbeddingInsertOrAssign(OpKernelContext* ctx,
                                        EmbeddingStore* store) {
  LODESTAR_TRY(CheckAssignedRows(ctx->input(1), ctx->input(2), *store));
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  return ToTensorFlow(store->InsertOrAssign(FlatSpan<int64_t>(ctx->input(1)),
                                            RowData(ctx->input(2)), &parallel));
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
    return OutputRows(ctx, rows, store->dim(), with_rows_);
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
    EmbeddingRowsView rows;
    LODESTAR_TRY(ReadRowsView(ctx, store->dim(), &rows));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    if (!replace_) return ToTensorFlow(store->Import(rows, &parallel));
    tensorflow::core::RefCountPtr<EmbeddingResource> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &resource));
    std::unique_ptr<EmbeddingStore> table;
    LODESTAR_TRY(ToTensorFlow(
        EmbeddingStore::CreateFrom(rows, *store, &parallel, &table)));
    // Between two steps, as in a restore.
    return ToTensorFlow(StepGate::Global().Flip([&] {
      if (resource->store().get() != store) {
        return FailedPrecondition(
            "a concurrent import or restore has replaced the table; this "
            "import was discarded.");
      }
      table->CopyLiveState(*store, rows);
      resource->Replace(std::move(table));
      return Status();
    }));
  }

 private:
  bool replace_ = true;
};

class EmbeddingRestartSlotsOp : public EmbeddingKernel {
 public:
  explicit EmbeddingRestartSlotsOp(OpKernelConstruction* ctx)
      : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Init(ctx));
  }
  absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore*) override {
    tensorflow::core::RefCountPtr<EmbeddingResource> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &resource));
    const auto& [optimizer, keep] = attributes_;
    std::shared_ptr<EmbeddingStore> store;
    std::string former;
    for (bool done = false; !done;) {
      store = resource->store();
      if (!store->NeedsRestart(optimizer, keep)) break;
      // Outside of the flip, which must not wait for a snapshot.
      store->WaitForSnapshot();
      LODESTAR_TRY(ToTensorFlow(StepGate::Global().Flip([&] {
        // If an import or a restore has replaced the table, look again.
        if (resource->store() != store) return Status();
        return store->RestartSlots(attributes_.optimizer, attributes_.keep,
                                   &done, &former);
      })));
    }
    LODESTAR_TRY(OutputScalar(ctx, 0, former));
    return OutputScalar(ctx, 1, store->CheckOptimizer(optimizer).ok());
  }

 private:
  RestartAttributes attributes_;
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
LODESTAR_REGISTER(EmbeddingRestartSlots);
LODESTAR_REGISTER(EmbeddingExport);
LODESTAR_REGISTER(EmbeddingImport);

}  // namespace
}  // namespace lodestar
