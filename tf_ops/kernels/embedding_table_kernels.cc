// Kernels of what an embedding variable offers as a table: insert_or_assign,
// remove, clear, size, frequency, step, stats, export and import. Contracts:
// tf_ops/ops/embedding_ops.cc; algorithms: tf_ops/core/embedding_store.h.

#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/kernels/embedding_kernel_util.h"

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
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    OP_REQUIRES_OK(ctx, ToTensorFlow(store->InsertOrAssign(
                            ids, rows.flat<float>().data(), &parallel)));
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

class EmbeddingStatsOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    const EmbeddingStats s = store->Stats();
    OP_REQUIRES_OK(
        ctx, OutputVector<int64_t>(
                 ctx, 0,
                 {s.rows, s.index_bytes, s.row_bytes, s.slot_bytes, s.hits,
                  s.misses, s.inserts, s.removed, s.gradients_dropped,
                  s.nonfinite_gradients, s.capacity, s.shards}));
  }
};

class EmbeddingExportOp : public EmbeddingKernel {
 public:
  explicit EmbeddingExportOp(OpKernelConstruction* ctx) : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer_slots", &with_slots_));
  }
  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    EmbeddingRows rows;
    OP_REQUIRES_OK(ctx,
                   ToTensorFlow(store->Export(with_slots_, &rows, &parallel)));
    const int64_t n = static_cast<int64_t>(rows.ids.size());
    const AttachedOptimizer& optimizer = rows.optimizer;
    const int64_t num_slots = static_cast<int64_t>(optimizer.slot_inits.size());
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 0, rows.ids));
    Tensor* values = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {n, store->dim()}, &values));
    std::copy(rows.values.begin(), rows.values.end(),
              values->flat<float>().data());
    Tensor* slots = nullptr;
    OP_REQUIRES_OK(
        ctx, ctx->allocate_output(2, {num_slots, n, store->dim()}, &slots));
    std::copy(rows.slots.begin(), rows.slots.end(),
              slots->flat<float>().data());
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 3, rows.frequencies));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 4, rows.last_seen));
    Tensor* name = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(5, TensorShape({}), &name));
    name->scalar<tstring>()() = optimizer.name;
    Tensor* slot_names = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(6, {num_slots}, &slot_names));
    for (int64_t s = 0; s < num_slots; ++s) {
      slot_names->flat<tstring>()(s) = optimizer.slot_names[s];
    }
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 7, optimizer.slot_inits));
    OP_REQUIRES_OK(
        ctx, OutputVector<int64_t>(ctx, 8, {rows.step, rows.seed, rows.salt}));
  }

 private:
  bool with_slots_ = true;
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
    const int64_t n = ctx->input(1).NumElements();
    OP_REQUIRES(
        ctx, values.dim_size(0) == n && values.dim_size(1) == store->dim(),
        InvalidArgumentError("`rows` has shape ", values.shape().DebugString(),
                             ", wanted [", n, ",", store->dim(), "]"));
    const int64_t num_counters = ctx->input(9).NumElements();
    OP_REQUIRES(ctx, num_counters == 3 || num_counters == 0,
                InvalidArgumentError("`counters` has ", num_counters,
                                     " numbers, wanted 3 or none"));
    EmbeddingRowsView rows;
    rows.ids = FlatSpan<int64_t>(ctx->input(1));
    rows.values = FlatSpan<float>(values);
    rows.slots = FlatSpan<float>(slots);
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
    rows.with_counters = num_counters == 3;
    if (rows.with_counters) {
      rows.step = counters(0);
      rows.seed = counters(1);
      rows.salt = counters(2);
    }
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
REGISTER(EmbeddingSize);
REGISTER(EmbeddingFrequency);
REGISTER(EmbeddingStep);
REGISTER(EmbeddingSetStep);
REGISTER(EmbeddingStats);
REGISTER(EmbeddingExport);
REGISTER(EmbeddingImport);
#undef REGISTER

}  // namespace
}  // namespace lodestar
