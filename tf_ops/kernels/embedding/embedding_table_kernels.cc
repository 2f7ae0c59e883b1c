// Contracts: tf_ops/ops/embedding/embedding_table_ops.cc.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_policies.h"
#include "tf_ops/kernels/embedding/embedding_rows_tensors.h"
#include "tf_ops/kernels/embedding/table_kernel.h"

namespace lodestar {
namespace {

absl::Status RunInsertOrAssign(const TableCall& call) {
  const Tensor& ids = call.ctx->input(1);
  const Tensor& rows = call.ctx->input(2);
  LODESTAR_TRY(CheckRank(ids, "ids", 1));
  LODESTAR_TRY(CheckRank(rows, "rows", 2));
  if (!(rows.dim_size(0) == ids.NumElements() &&
        rows.dim_size(1) == call.table->dim())) {
    return InvalidArgumentError("`rows` must have shape [", ids.NumElements(),
                                ",", call.table->dim(), "], got ",
                                rows.shape().DebugString(), ".");
  }
  LODESTAR_TRY(CheckDtype(rows.dtype(), "rows", call.table->type()));
  return ToTensorFlow(call.table->InsertOrAssign(FlatSpan<int64_t>(ids),
                                                 RowData(rows), call.on));
}

absl::Status RunRemove(const TableCall& call) {
  int64_t removed = 0;
  LODESTAR_TRY(call.table->Remove(FlatSpan<int64_t>(call.ctx->input(1)),
                                  &removed, call.on));
  return OutputScalar(call.ctx, 0, removed);
}

absl::Status RunClear(const TableCall& call) {
  return ToTensorFlow(call.table->Clear(call.on));
}

absl::Status RunRemoveAll(const TableCall& call) {
  return ToTensorFlow(call.table->RemoveAll(call.on));
}

absl::Status RunCompact(const TableCall& call) {
  int64_t bytes = 0;
  LODESTAR_TRY(call.table->Compact(&bytes, call.on));
  return OutputScalar(call.ctx, 0, bytes);
}

absl::Status RunSize(const TableCall& call) {
  int64_t rows = 0;
  LODESTAR_TRY(call.table->ReadSize(&rows, call.on));
  return OutputScalar(call.ctx, 0, rows);
}

absl::Status RunFrequency(const TableCall& call) {
  const Tensor& ids = call.ctx->input(1);
  Tensor* frequencies = nullptr;
  LODESTAR_TRY(call.ctx->allocate_output(0, ids.shape(), &frequencies));
  return ToTensorFlow(call.table->Frequency(
      FlatSpan<int64_t>(ids), FlatSpan<int64_t>(frequencies), call.on));
}

absl::Status RunStep(const TableCall& call) {
  return OutputScalar(call.ctx, 0, call.table->step());
}

class SetStepOp : public TableKernel {
 public:
  explicit SetStepOp(OpKernelConstruction* ctx) : TableKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("evicts", &evicts_));
  }
  absl::Status RunOn(const TableCall& call) override {
    LODESTAR_TRY(CheckRank(call.ctx->input(1), "step", 0));
    return ToTensorFlow(call.table->SetStep(
        call.ctx->input(1).scalar<int64_t>()(), call.on, evicts_));
  }

 private:
  bool evicts_ = true;
};

absl::Status RunReleaseStep(const TableCall& call) {
  call.table->ReleaseStep();
  return absl::OkStatus();
}

class StatsOp : public TableKernel {
 public:
  explicit StatsOp(OpKernelConstruction* ctx) : TableKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reset", &reset_));
  }
  absl::Status RunOn(const TableCall& call) override {
    EmbeddingStats s;
    LODESTAR_TRY(call.table->ReadStats(&s, call.on));
    std::vector<int64_t> numbers = {s.rows,       s.index_bytes,  s.row_bytes,
                                    s.slot_bytes, s.policy_bytes, s.capacity,
                                    s.max_rows,   s.pending};
    numbers.insert(numbers.end(), s.events.begin(), s.events.end());
    LODESTAR_TRY(OutputVector(call.ctx, 0, numbers));
    Tensor* shards = nullptr;
    LODESTAR_TRY(call.ctx->allocate_output(
        1, {static_cast<int64_t>(s.shards.size()), 2}, &shards));
    for (size_t i = 0; i < s.shards.size(); ++i) {
      shards->matrix<int64_t>()(i, 0) = s.shards[i].rows;
      shards->matrix<int64_t>()(i, 1) = s.shards[i].bytes;
    }
    if (reset_) call.table->SubtractEvents(s);
    return absl::OkStatus();
  }

 private:
  bool reset_ = false;
};

class InspectOp : public TableKernel {
 public:
  explicit InspectOp(OpKernelConstruction* ctx) : TableKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtype", &dtype_));
  }
  absl::Status RunOn(const TableCall& call) override {
    OpKernelContext* const ctx = call.ctx;
    LODESTAR_TRY(CheckDtype(dtype_, "dtype", call.table->type()));
    LODESTAR_TRY(CheckRank(ctx->input(1), "ids", 1));
    const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(1));
    InspectedIds found;
    LODESTAR_TRY(call.table->Inspect(ids, &found, call.on));
    const int dim = call.table->dim();
    const int64_t num_slots = static_cast<int64_t>(found.slot_names.size());
    LODESTAR_TRY(OutputNumbers(ctx, 0, {ids.size(), dim}, found.values));
    LODESTAR_TRY(OutputNumbers(
        ctx, 1, {num_slots, ids.size(), found.slot_width}, found.slots));
    LODESTAR_TRY(OutputVector(ctx, 2, found.slot_names));
    LODESTAR_TRY(OutputVector(ctx, 3, found.frequencies));
    LODESTAR_TRY(OutputVector(ctx, 4, found.last_seen));
    LODESTAR_TRY(OutputVector(ctx, 5, found.shards));
    return OutputVector(ctx, 6, found.states);
  }

 private:
  DataType dtype_ = tensorflow::DT_FLOAT;
};

class EvictOp : public TableKernel {
 public:
  explicit EvictOp(OpKernelConstruction* ctx) : TableKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("own_policy", &own_policy_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("return_rows", &return_rows_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtype", &dtype_));
    OP_REQUIRES_OK(ctx, ReadEviction(ctx, &policy_));
  }
  absl::Status RunOn(const TableCall& call) override {
    const EvictionPolicy policy =
        own_policy_ ? call.table->eviction() : policy_;
    const auto allocate = [&](int64_t count, Table::EvictedRows* out) {
      const absl::Status status = Allocate(call, count, out);
      if (status.ok()) return Status();
      return ResourceExhausted(std::string(status.message()));
    };
    int64_t evicted = 0;
    if (return_rows_) {
      LODESTAR_TRY(CheckDtype(dtype_, "dtype", call.table->type()));
      LODESTAR_TRY(call.table->EvictRows(policy, allocate, &evicted, call.on));
    } else {
      Table::EvictedRows none;
      LODESTAR_TRY(Allocate(call, 0, &none));
      LODESTAR_TRY(call.table->Evict(policy, &evicted, call.on));
    }
    return OutputScalar(call.ctx, 0, evicted);
  }

 private:
  static absl::Status Allocate(const TableCall& call, int64_t count,
                               Table::EvictedRows* out) {
    Tensor* ids = nullptr;
    Tensor* rows = nullptr;
    LODESTAR_TRY(call.ctx->allocate_output(1, {count}, &ids));
    LODESTAR_TRY(
        call.ctx->allocate_output(2, {count, call.table->dim()}, &rows));
    *out = {ids->flat<int64_t>().data(), RowData(rows)};
    return absl::OkStatus();
  }

  bool own_policy_ = true;
  bool return_rows_ = false;
  DataType dtype_ = tensorflow::DT_FLOAT;
  EvictionPolicy policy_;
};

absl::Status RunDecayFrequencies(const TableCall& call) {
  LODESTAR_TRY(CheckRank(call.ctx->input(1), "rate", 0));
  return ToTensorFlow(call.table->DecayFrequencies(
      call.ctx->input(1).scalar<double>()(), call.on));
}

class ExportOp : public TableKernel {
 public:
  explicit ExportOp(OpKernelConstruction* ctx) : TableKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer_slots", &with_slots_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("with_rows", &with_rows_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtype", &dtype_));
  }
  absl::Status RunOn(const TableCall& call) override {
    LODESTAR_TRY(CheckDtype(dtype_, "dtype", call.table->type()));
    EmbeddingRows rows;
    LODESTAR_TRY(with_rows_ ? call.table->Export(with_slots_, &rows, call.on)
                            : call.table->ExportIds(&rows, call.on));
    return OutputRows(call.ctx, rows, call.table->dim(), with_rows_);
  }

 private:
  bool with_slots_ = true;
  bool with_rows_ = true;
  DataType dtype_ = tensorflow::DT_FLOAT;
};

class ImportOp : public TableKernel {
 public:
  explicit ImportOp(OpKernelConstruction* ctx) : TableKernel(ctx) {
    std::string mode;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("mode", &mode));
    replace_ = mode == "replace";
  }
  absl::Status RunOn(const TableCall& call) override {
    EmbeddingRowsView rows;
    LODESTAR_TRY(ReadRowsView(call.ctx, call.table->dim(), &rows));
    if (!replace_) return ToTensorFlow(call.table->Import(rows, call.on));
    std::unique_ptr<Table> created;
    LODESTAR_TRY(call.table->CreateReplacement(rows, call.on, &created));
    std::shared_ptr<Table> table = std::move(created);
    // Between two steps, as in a restore.
    return ToTensorFlow(StepGates({call.resource->gate()}).Flip([&] {
      if (call.resource->table().get() != call.table) {
        return FailedPrecondition(
            "a concurrent import or restore has replaced the table; this "
            "import was discarded.");
      }
      LODESTAR_RETURN_IF_ERROR(
          table->CopyLiveState(*call.table, rows, call.on));
      call.resource->Replace(std::move(table));
      return Status();
    }));
  }

 private:
  bool replace_ = true;
};

class RestartSlotsOp : public TableKernel {
 public:
  explicit RestartSlotsOp(OpKernelConstruction* ctx) : TableKernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Init(ctx));
  }
  absl::Status RunOn(const TableCall& call) override {
    const auto& [optimizer, keep] = attributes_;
    std::shared_ptr<Table> table;
    std::string former;
    for (bool done = false; !done;) {
      table = call.resource->table();
      if (!table->NeedsRestart(optimizer, keep)) break;
      // Outside of the flip, which must not wait for a snapshot.
      table->WaitForSnapshot();
      LODESTAR_TRY(ToTensorFlow(StepGates({call.resource->gate()}).Flip([&] {
        // If an import or a restore has replaced the table, look again.
        if (call.resource->table() != table) return Status();
        return table->RestartSlots(attributes_.optimizer, attributes_.keep,
                                   &done, &former, call.on);
      })));
    }
    LODESTAR_TRY(OutputScalar(call.ctx, 0, former));
    return OutputScalar(call.ctx, 1, table->CheckOptimizer(optimizer).ok());
  }

 private:
  RestartAttributes attributes_;
};

#define LODESTAR_TABLE_OP(name, kernel, ...)       \
  LODESTAR_REGISTER_TABLE(Embedding##name, kernel, \
                          .HostMemory("handle") __VA_ARGS__)

LODESTAR_TABLE_OP(InsertOrAssign, TableFunctionKernel<RunInsertOrAssign>);
LODESTAR_TABLE_OP(Remove, TableFunctionKernel<RunRemove>, .HostMemory("count"));
LODESTAR_TABLE_OP(Clear, TableFunctionKernel<RunClear>);
LODESTAR_TABLE_OP(RemoveAll, TableFunctionKernel<RunRemoveAll>);
LODESTAR_TABLE_OP(Compact, TableFunctionKernel<RunCompact>,
                  .HostMemory("bytes"));
LODESTAR_TABLE_OP(Size, TableFunctionKernel<RunSize>, .HostMemory("size"));
LODESTAR_TABLE_OP(Frequency, TableFunctionKernel<RunFrequency>);
LODESTAR_TABLE_OP(Step, TableFunctionKernel<RunStep>, .HostMemory("step"));
LODESTAR_TABLE_OP(SetStep, SetStepOp, .HostMemory("step"));
LODESTAR_TABLE_OP(ReleaseStep, TableFunctionKernel<RunReleaseStep>);
LODESTAR_TABLE_OP(DecayFrequencies, TableFunctionKernel<RunDecayFrequencies>,
                  .HostMemory("rate"));
LODESTAR_TABLE_OP(Stats, StatsOp, .HostMemory("stats").HostMemory("shards"));
LODESTAR_TABLE_OP(Evict, EvictOp,
                  .HostMemory("count").HostMemory("ids").HostMemory("rows"));
LODESTAR_TABLE_OP(RestartSlots, RestartSlotsOp,
                  .HostMemory("former").HostMemory("fits"));
LODESTAR_TABLE_OP(Inspect, InspectOp,
                  .HostMemory("ids")
                      .HostMemory("rows")
                      .HostMemory("slots")
                      .HostMemory("slot_names")
                      .HostMemory("frequencies")
                      .HostMemory("last_seen")
                      .HostMemory("shards")
                      .HostMemory("states"));

// Tensors of EmbeddingExport and EmbeddingImport, except the handle.
#define LODESTAR_ROWS_ON_HOST          \
  .HostMemory("ids")                   \
      .HostMemory("rows")              \
      .HostMemory("slots")             \
      .HostMemory("frequencies")       \
      .HostMemory("last_seen")         \
      .HostMemory("optimizer")         \
      .HostMemory("slot_names")        \
      .HostMemory("slot_inits")        \
      .HostMemory("counters")          \
      .HostMemory("pending_ids")       \
      .HostMemory("pending_sightings") \
      .HostMemory("pending_last_seen") \
      .HostMemory("sketch")            \
      .HostMemory("shared_rows")       \
      .HostMemory("shared_slots")

LODESTAR_TABLE_OP(Export, ExportOp, LODESTAR_ROWS_ON_HOST);
LODESTAR_TABLE_OP(Import, ImportOp, LODESTAR_ROWS_ON_HOST);

}  // namespace
}  // namespace lodestar
