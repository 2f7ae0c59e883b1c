// Contracts: tf_ops/ops/embedding/embedding_table_ops.cc.

#if LODESTAR_CUDA

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/device/device_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_policies.h"
#include "tf_ops/kernels/embedding/embedding_rows_tensors.h"

namespace lodestar {
namespace {

absl::Status RunInsertOrAssign(const DeviceCall& call) {
  const Tensor& ids = call.ctx->input(1);
  const Tensor& rows = call.ctx->input(2);
  LODESTAR_TRY(CheckAssignedRows(ids, rows, *call.store));
  return ToTensorFlow(
      call.store->InsertOrAssign(call.on, IdsOf(ids), RowData(rows)));
}

absl::Status RunRemove(const DeviceCall& call) {
  int64_t removed = 0;
  LODESTAR_TRY(
      call.store->Remove(call.on, IdsOf(call.ctx->input(1)), &removed));
  return OutputScalar(call.ctx, 0, removed);
}

absl::Status RunClear(const DeviceCall& call) {
  return ToTensorFlow(call.store->Clear(call.on));
}

// Nothing to compact: a table on a GPU keeps its memory for new rows.
absl::Status RunCompact(const DeviceCall& call) {
  return OutputScalar(call.ctx, 0, int64_t{0});
}

absl::Status RunSize(const DeviceCall& call) {
  DeviceTableState state;
  LODESTAR_TRY(call.store->ReadState(call.on, &state));
  return OutputScalar(call.ctx, 0, int64_t{state.rows});
}

absl::Status RunFrequency(const DeviceCall& call) {
  const Tensor& ids = call.ctx->input(1);
  Tensor* frequencies = nullptr;
  LODESTAR_TRY(call.ctx->allocate_output(0, ids.shape(), &frequencies));
  return ToTensorFlow(call.store->Frequency(
      call.on, IdsOf(ids), frequencies->flat<int64_t>().data()));
}

absl::Status RunStep(const DeviceCall& call) {
  return OutputScalar(call.ctx, 0, call.store->step());
}

absl::Status RunSetStep(const DeviceCall& call) {
  LODESTAR_TRY(CheckRank(call.ctx->input(1), "step", 0));
  call.store->SetStep(call.ctx->input(1).scalar<int64_t>()());
  return absl::OkStatus();
}

absl::Status RunReleaseStep(const DeviceCall& call) {
  call.store->ReleaseStep();
  return absl::OkStatus();
}

absl::Status RunDecayFrequencies(const DeviceCall& call) {
  LODESTAR_TRY(CheckRank(call.ctx->input(1), "rate", 0));
  return ToTensorFlow(call.store->DecayFrequencies(
      call.on, call.ctx->input(1).scalar<double>()()));
}

class StatsOnGpuOp : public DeviceKernel {
 public:
  explicit StatsOnGpuOp(OpKernelConstruction* ctx) : DeviceKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reset", &reset_));
  }

  absl::Status RunOn(const DeviceCall& call) override {
    DeviceTableState state;
    LODESTAR_TRY(call.store->ReadState(call.on, &state));
    const DeviceStore::Bytes bytes = call.store->bytes();
    DeviceEvents happened = state.events;
    happened.Add(call.resource->other_events(), 1);
    DeviceEmbeddingResource::Counts& counts = call.resource->counts();
    const auto number = [](unsigned long long count) {
      return static_cast<int64_t>(count);
    };
    // In the order of Event.
    const std::vector<int64_t> events = {counts.ids,
                                         counts.unique_ids,
                                         counts.padding,
                                         number(happened.hits),
                                         number(happened.misses),
                                         number(happened.inserts),
                                         number(happened.admitted),
                                         number(happened.refused),
                                         number(happened.evicted),
                                         number(happened.removed),
                                         number(happened.gradients_dropped),
                                         counts.nonfinite_gradients,
                                         number(happened.read_hits),
                                         number(happened.read_misses)};
    std::vector<int64_t> numbers = {state.rows,
                                    bytes.index,
                                    bytes.rows,
                                    bytes.slots,
                                    0,
                                    bytes.capacity,
                                    call.store->options().eviction.max_rows,
                                    0};
    numbers.insert(numbers.end(), events.begin(), events.end());
    LODESTAR_TRY(OutputVector(call.ctx, 0, numbers));
    Tensor* shards = nullptr;
    LODESTAR_TRY(call.ctx->allocate_output(1, {1, 2}, &shards));
    shards->matrix<int64_t>()(0, 0) = state.rows;
    shards->matrix<int64_t>()(0, 1) = bytes.index + bytes.rows + bytes.slots;
    if (!reset_) return absl::OkStatus();
    counts.ids -= events[0];
    counts.unique_ids -= events[1];
    counts.padding -= events[2];
    counts.nonfinite_gradients -= events[11];
    call.resource->SubtractEvents(happened);
    return absl::OkStatus();
  }

 private:
  bool reset_ = false;
};

class InspectOnGpuOp : public DeviceKernel {
 public:
  explicit InspectOnGpuOp(OpKernelConstruction* ctx) : DeviceKernel(ctx) {
    OP_REQUIRES_OK(ctx, dtypes_.Init(ctx));
  }
  absl::Status RunOn(const DeviceCall& call) override {
    OpKernelContext* const ctx = call.ctx;
    LODESTAR_TRY(dtypes_.Check(*call.store));
    LODESTAR_TRY(CheckRank(ctx->input(1), "ids", 1));
    const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(1));
    EmbeddingRows rows;
    std::vector<char> found;
    LODESTAR_TRY(call.store->Inspect(call.on, ids, &rows, &found));
    const int64_t num_slots =
        static_cast<int64_t>(rows.optimizer.slot_names.size());
    LODESTAR_TRY(
        OutputNumbers(ctx, 0, {ids.size(), call.store->dim()}, rows.values));
    LODESTAR_TRY(OutputNumbers(
        ctx, 1, {num_slots, ids.size(), call.store->dim()}, rows.slots));
    LODESTAR_TRY(OutputVector(ctx, 2, rows.optimizer.slot_names));
    LODESTAR_TRY(OutputVector(ctx, 3, rows.frequencies));
    LODESTAR_TRY(OutputVector(ctx, 4, rows.last_seen));
    std::vector<int64_t> states(found.size(), InspectedIds::kMissing);
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i]) states[i] = InspectedIds::kResident;
    }
    LODESTAR_TRY(OutputVector(ctx, 5, std::vector<int64_t>(found.size(), 0)));
    return OutputVector(ctx, 6, states);
  }

 private:
  RowDtypes dtypes_;
};

class EvictOnGpuOp : public DeviceKernel {
 public:
  explicit EvictOnGpuOp(OpKernelConstruction* ctx) : DeviceKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("own_policy", &own_policy_));
    OP_REQUIRES_OK(ctx, ReadEviction(ctx, &policy_));
  }
  absl::Status RunOn(const DeviceCall& call) override {
    int64_t evicted = 0;
    LODESTAR_TRY(call.store->Evict(
        call.on, own_policy_ ? call.store->options().eviction : policy_,
        &evicted));
    return OutputScalar(call.ctx, 0, evicted);
  }

 private:
  bool own_policy_ = true;
  EvictionPolicy policy_;
};

class ExportOnGpuOp : public DeviceKernel {
 public:
  explicit ExportOnGpuOp(OpKernelConstruction* ctx) : DeviceKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer_slots", &with_slots_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("with_rows", &with_rows_));
    OP_REQUIRES_OK(ctx, dtypes_.Init(ctx));
  }
  absl::Status RunOn(const DeviceCall& call) override {
    LODESTAR_TRY(dtypes_.Check(*call.store));
    EmbeddingRows rows;
    LODESTAR_TRY(call.store->Export(call.on, with_slots_ && with_rows_, &rows,
                                    with_rows_));
    return OutputRows(call.ctx, rows, call.store->dim(), with_rows_);
  }

 private:
  bool with_slots_ = true;
  bool with_rows_ = true;
  RowDtypes dtypes_;
};

class ImportOnGpuOp : public DeviceKernel {
 public:
  explicit ImportOnGpuOp(OpKernelConstruction* ctx) : DeviceKernel(ctx) {
    std::string mode;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("mode", &mode));
    replace_ = mode == "replace";
  }
  absl::Status RunOn(const DeviceCall& call) override {
    EmbeddingRowsView rows;
    LODESTAR_TRY(ReadRowsView(call.ctx, call.store->dim(), &rows));
    if (!replace_) return ToTensorFlow(call.store->Import(call.on, rows));
    LODESTAR_TRY(call.store->CheckImport(rows));
    std::unique_ptr<DeviceStore> table;
    LODESTAR_TRY(call.store->CreateEmptyLike(call.resource->allocator(),
                                             call.on, &table));
    LODESTAR_TRY(table->Import(call.on, rows));
    // Imported rows do not count as events.
    DeviceTableState before;
    DeviceTableState after;
    LODESTAR_TRY(call.store->ReadState(call.on, &before));
    LODESTAR_TRY(table->ReadState(call.on, &after));
    return ToTensorFlow(call.resource->Replace(call.store, std::move(table),
                                               before.events, after.events));
  }

 private:
  bool replace_ = true;
};

class RestartSlotsOnGpuOp : public DeviceKernel {
 public:
  explicit RestartSlotsOnGpuOp(OpKernelConstruction* ctx) : DeviceKernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Init(ctx));
  }
  absl::Status RunOn(const DeviceCall& call) override {
    std::string former;
    const auto& [optimizer, keep] = attributes_;
    LODESTAR_TRY(call.store->RestartSlots(call.on, optimizer, keep, &former));
    LODESTAR_TRY(OutputScalar(call.ctx, 0, former));
    return OutputScalar(call.ctx, 1,
                        call.store->CheckOptimizer(optimizer).ok());
  }

 private:
  RestartAttributes attributes_;
};

#define LODESTAR_ON_GPU(name, kernel, ...)          \
  LODESTAR_REGISTER_ON_GPU(Embedding##name, kernel, \
                           .HostMemory("handle") __VA_ARGS__)

LODESTAR_ON_GPU(InsertOrAssign, DeviceFunctionKernel<RunInsertOrAssign>);
LODESTAR_ON_GPU(Remove, DeviceFunctionKernel<RunRemove>, .HostMemory("count"));
LODESTAR_ON_GPU(Clear, DeviceFunctionKernel<RunClear>);
LODESTAR_ON_GPU(RestartSlots, RestartSlotsOnGpuOp,
                .HostMemory("former").HostMemory("fits"));
LODESTAR_ON_GPU(RemoveAll, DeviceFunctionKernel<RunClear>);
LODESTAR_ON_GPU(Compact, DeviceFunctionKernel<RunCompact>,
                .HostMemory("bytes"));
LODESTAR_ON_GPU(Size, DeviceFunctionKernel<RunSize>, .HostMemory("size"));
LODESTAR_ON_GPU(Frequency, DeviceFunctionKernel<RunFrequency>);
LODESTAR_ON_GPU(Step, DeviceFunctionKernel<RunStep>, .HostMemory("step"));
LODESTAR_ON_GPU(SetStep, DeviceFunctionKernel<RunSetStep>, .HostMemory("step"));
LODESTAR_ON_GPU(ReleaseStep, DeviceFunctionKernel<RunReleaseStep>);
LODESTAR_ON_GPU(DecayFrequencies, DeviceFunctionKernel<RunDecayFrequencies>,
                .HostMemory("rate"));

LODESTAR_ON_GPU(Stats, StatsOnGpuOp, .HostMemory("stats").HostMemory("shards"));
LODESTAR_ON_GPU(Inspect, InspectOnGpuOp,
                .HostMemory("ids")
                    .HostMemory("rows")
                    .HostMemory("slots")
                    .HostMemory("slot_names")
                    .HostMemory("frequencies")
                    .HostMemory("last_seen")
                    .HostMemory("shards")
                    .HostMemory("states"));
LODESTAR_ON_GPU(Evict, EvictOnGpuOp, .HostMemory("count"));

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

LODESTAR_ON_GPU(Export, ExportOnGpuOp, LODESTAR_ROWS_ON_HOST);
LODESTAR_ON_GPU(Import, ImportOnGpuOp, LODESTAR_ROWS_ON_HOST);

}  // namespace
}  // namespace lodestar

#endif  // LODESTAR_CUDA
