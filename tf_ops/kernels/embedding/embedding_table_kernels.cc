// Kernels of what an embedding variable offers as a table: insert_or_assign,
// remove, remove_all, evict, clear, compact, size, frequency, step, stats,
// inspect, export and import. Contracts:
// tf_ops/ops/embedding/embedding_table_ops.cc; algorithms:
// tf_ops/core/embedding/embedding_store.h.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_policies.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

absl::Status OutputScalar(OpKernelContext* ctx, int64_t value) {
  Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(ctx->allocate_output(0, TensorShape({}), &output));
  output->scalar<int64_t>()() = value;
  return absl::OkStatus();
}

// The dtype of the output is theirs.
absl::Status OutputNumbers(OpKernelContext* ctx, int output,
                           const TensorShape& shape,
                           const NumbersView& numbers) {
  Tensor* tensor = nullptr;
  TF_RETURN_IF_ERROR(ctx->allocate_output(output, shape, &tensor));
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
    TF_RETURN_IF_ERROR(ctx->GetAttr("dtype", &dtype_));
    return ctx->GetAttr("slot_dtype", &slot_dtype_);
  }

  absl::Status Check(const EmbeddingStore& store) const {
    TF_RETURN_IF_ERROR(CheckDtype(dtype_, "dtype", store.type()));
    const RowType slots = ComputeType(store.type());
    if (slot_dtype_ == DataTypeOf(slots)) return absl::OkStatus();
    return InvalidArgumentError(
        "`slot_dtype` is ", NameOf(RowTypeOf(slot_dtype_)),
        ", but the optimizer slots of ", NameOf(store.type()), " rows are ",
        NameOf(slots));
  }

 private:
  tensorflow::DataType dtype_;
  tensorflow::DataType slot_dtype_;
};

absl::Status OutputNames(OpKernelContext* ctx, int output,
                         const std::vector<std::string>& names) {
  Tensor* tensor = nullptr;
  TF_RETURN_IF_ERROR(ctx->allocate_output(
      output, {static_cast<int64_t>(names.size())}, &tensor));
  std::copy(names.begin(), names.end(), tensor->flat<tstring>().data());
  return absl::OkStatus();
}

class EmbeddingInsertOrAssignOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    const Tensor& rows = ctx->input(2);
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "ids", 1));
    OP_REQUIRES_OK(ctx, CheckRank(rows, "rows", 2));
    const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(1));
    OP_REQUIRES(
        ctx, rows.dim_size(0) == ids.size() && rows.dim_size(1) == store->dim(),
        InvalidArgumentError("`rows` has shape ", rows.shape().DebugString(),
                             ", wanted [", ids.size(), ",", store->dim(), "]"));
    OP_REQUIRES_OK(ctx, CheckDtype(rows.dtype(), "rows", store->type()));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    OP_REQUIRES_OK(ctx, ToTensorFlow(store->InsertOrAssign(ids, RowData(rows),
                                                           &parallel)));
  }
};

class EmbeddingRemoveOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    int64_t removed = 0;
    OP_REQUIRES_OK(ctx, ToTensorFlow(store->Remove(
                            FlatSpan<int64_t>(ctx->input(1)), &removed)));
    OP_REQUIRES_OK(ctx, OutputScalar(ctx, removed));
  }
};

class EmbeddingClearOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    OP_REQUIRES_OK(ctx, ToTensorFlow(store->Clear()));
  }
};

class EmbeddingRemoveAllOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    OP_REQUIRES_OK(ctx, ToTensorFlow(store->RemoveAll()));
  }
};

class EmbeddingCompactOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    int64_t bytes = 0;
    OP_REQUIRES_OK(ctx, ToTensorFlow(store->Compact(&bytes)));
    OP_REQUIRES_OK(ctx, OutputScalar(ctx, bytes));
  }
};

class EmbeddingSizeOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    OP_REQUIRES_OK(ctx, OutputScalar(ctx, store->size()));
  }
};

class EmbeddingFrequencyOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    const Tensor& ids = ctx->input(1);
    Tensor* frequencies = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, ids.shape(), &frequencies));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    store->Frequency(FlatSpan<int64_t>(ids), FlatSpan<int64_t>(frequencies),
                     &parallel);
  }
};

class EmbeddingStepOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    OP_REQUIRES_OK(ctx, OutputScalar(ctx, store->step()));
  }
};

class EmbeddingSetStepOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "step", 0));
    store->SetStep(ctx->input(1).scalar<int64_t>()());
  }
};

class EmbeddingReleaseStepOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext*, EmbeddingStore* store) override {
    store->ReleaseStep();
  }
};

class EmbeddingStatsOp : public EmbeddingKernel {
 public:
  explicit EmbeddingStatsOp(OpKernelConstruction* ctx) : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reset", &reset_));
  }
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    const EmbeddingStats s = store->Stats();
    OP_REQUIRES_OK(ctx, OutputVector<int64_t>(ctx, 0, {s.rows,
                                                       s.index_bytes,
                                                       s.row_bytes,
                                                       s.slot_bytes,
                                                       s.policy_bytes,
                                                       s.capacity,
                                                       s.max_rows,
                                                       s.pending,
                                                       s.ids,
                                                       s.unique_ids,
                                                       s.padding,
                                                       s.hits,
                                                       s.misses,
                                                       s.inserts,
                                                       s.admitted,
                                                       s.refused,
                                                       s.evicted,
                                                       s.removed,
                                                       s.gradients_dropped,
                                                       s.nonfinite_gradients}));
    Tensor* shards = nullptr;
    OP_REQUIRES_OK(
        ctx, ctx->allocate_output(1, {static_cast<int64_t>(s.shards.size()), 2},
                                  &shards));
    for (size_t i = 0; i < s.shards.size(); ++i) {
      shards->matrix<int64_t>()(i, 0) = s.shards[i].rows;
      shards->matrix<int64_t>()(i, 1) = s.shards[i].bytes;
    }
    if (reset_) store->SubtractEvents(s);
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
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    OP_REQUIRES_OK(ctx, dtypes_.Check(*store));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "ids", 1));
    const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(1));
    InspectedIds found;
    OP_REQUIRES_OK(ctx, ToTensorFlow(store->Inspect(ids, &found)));
    OP_REQUIRES_OK(
        ctx, OutputNumbers(ctx, 0, {ids.size(), store->dim()}, found.values));
    const int64_t num_slots = static_cast<int64_t>(found.slot_names.size());
    OP_REQUIRES_OK(ctx,
                   OutputNumbers(ctx, 1, {num_slots, ids.size(), store->dim()},
                                 found.slots));
    OP_REQUIRES_OK(ctx, OutputNames(ctx, 2, found.slot_names));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 3, found.frequencies));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 4, found.last_seen));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 5, found.shards));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 6, found.states));
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
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    int64_t evicted = 0;
    OP_REQUIRES_OK(
        ctx,
        ToTensorFlow(own_policy_ ? store->Evict(&evicted, &parallel)
                                 : store->Evict(policy_, &evicted, &parallel)));
    OP_REQUIRES_OK(ctx, OutputScalar(ctx, evicted));
  }

 private:
  bool own_policy_ = true;
  EvictionPolicy policy_;
};

class EmbeddingDecayFrequenciesOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "rate", 0));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    OP_REQUIRES_OK(ctx, ToTensorFlow(store->DecayFrequencies(
                            ctx->input(1).scalar<double>()(), &parallel)));
  }
};

class EmbeddingExportOp : public EmbeddingKernel {
 public:
  explicit EmbeddingExportOp(OpKernelConstruction* ctx) : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer_slots", &with_slots_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("with_rows", &with_rows_));
    OP_REQUIRES_OK(ctx, dtypes_.Init(ctx));
  }
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    OP_REQUIRES_OK(ctx, dtypes_.Check(*store));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    EmbeddingRows rows;
    OP_REQUIRES_OK(ctx, ToTensorFlow(store->Export(with_slots_, &rows,
                                                   &parallel, with_rows_)));
    const int64_t n =
        with_rows_ ? static_cast<int64_t>(rows.ids.size()) : int64_t{0};
    const AttachedOptimizer& optimizer = rows.optimizer;
    const int64_t num_slots = static_cast<int64_t>(optimizer.slot_inits.size());
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 0, rows.ids));
    OP_REQUIRES_OK(ctx, OutputNumbers(ctx, 1, {n, store->dim()}, rows.values));
    OP_REQUIRES_OK(
        ctx, OutputNumbers(ctx, 2, {num_slots, n, store->dim()}, rows.slots));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 3, rows.frequencies));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 4, rows.last_seen));
    Tensor* name = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(5, TensorShape({}), &name));
    name->scalar<tstring>()() = optimizer.name;
    OP_REQUIRES_OK(ctx, OutputNames(ctx, 6, optimizer.slot_names));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 7, optimizer.slot_inits));
    OP_REQUIRES_OK(ctx, OutputVector<int64_t>(ctx, 8,
                                              {rows.step, rows.seed, rows.salt,
                                               rows.own_step ? 1 : 0}));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 9, rows.pending_ids));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 10, rows.pending_sightings));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 11, rows.pending_last_seen));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 12, rows.sketch));
    const int64_t shared = rows.shared_values.size() / store->dim();
    OP_REQUIRES_OK(ctx, OutputNumbers(ctx, 13, {shared, store->dim()},
                                      rows.shared_values));
    OP_REQUIRES_OK(ctx,
                   OutputNumbers(ctx, 14, {num_slots, shared, store->dim()},
                                 rows.shared_slots));
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
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    const Tensor& values = ctx->input(2);
    const Tensor& slots = ctx->input(3);
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "ids", 1));
    OP_REQUIRES_OK(ctx, CheckRank(values, "rows", 2));
    OP_REQUIRES_OK(ctx, CheckRank(slots, "slots", 3));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(4), "frequencies", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(5), "last_seen", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(6), "optimizer", 0));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(7), "slot_names", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(8), "slot_inits", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(9), "counters", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(10), "pending_ids", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(11), "pending_sightings", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(12), "pending_last_seen", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(13), "sketch", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(14), "shared_rows", 2));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(15), "shared_slots", 3));
    const int64_t n = ctx->input(1).NumElements();
    OP_REQUIRES(
        ctx, values.dim_size(0) == n && values.dim_size(1) == store->dim(),
        InvalidArgumentError("`rows` has shape ", values.shape().DebugString(),
                             ", wanted [", n, ",", store->dim(), "]"));
    const int64_t num_counters = ctx->input(9).NumElements();
    OP_REQUIRES(ctx, num_counters == 4 || num_counters == 0,
                InvalidArgumentError("`counters` has ", num_counters,
                                     " numbers, wanted 4 or none"));
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
    OP_REQUIRES_OK(ctx, ToTensorFlow(store->Import(rows, replace_, &parallel)));
  }

 private:
  bool replace_ = true;
};

#define REGISTER(name) \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name).Device(DEVICE_CPU), name##Op)
REGISTER(EmbeddingInsertOrAssign);
REGISTER(EmbeddingRemove);
REGISTER(EmbeddingClear);
REGISTER(EmbeddingRemoveAll);
REGISTER(EmbeddingCompact);
REGISTER(EmbeddingSize);
REGISTER(EmbeddingFrequency);
REGISTER(EmbeddingStep);
REGISTER(EmbeddingSetStep);
REGISTER(EmbeddingReleaseStep);
REGISTER(EmbeddingStats);
REGISTER(EmbeddingInspect);
REGISTER(EmbeddingEvict);
REGISTER(EmbeddingDecayFrequencies);
REGISTER(EmbeddingExport);
REGISTER(EmbeddingImport);
#undef REGISTER

}  // namespace
}  // namespace lodestar
