// Kernels of EmbeddingUnique, EmbeddingGradient, EmbeddingPooledGradient,
// EmbeddingCheckApply and EmbeddingApply. Contracts:
// tf_ops/ops/embedding_ops.cc; algorithms: tf_ops/core/embedding_gradient.h,
// sparse_optimizer.h and embedding_store.h.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/batch_unique.h"
#include "tf_ops/core/embedding_gradient.h"
#include "tf_ops/core/embedding_run.h"
#include "tf_ops/core/sparse_optimizer.h"
#include "tf_ops/kernels/embedding_gradients.h"
#include "tf_ops/kernels/embedding_kernel_util.h"
#include "tf_ops/kernels/step_kernel.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class EmbeddingUniqueOp : public StatelessKernel {
 public:
  explicit EmbeddingUniqueOp(OpKernelConstruction* ctx) : StatelessKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_padding", &use_padding_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("padding_id", &padding_id_));
  }

  void ComputeOn(OpKernelContext* ctx) override {
    const Tensor& ids = ctx->input(0);
    Tensor* positions = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(1, {ids.NumElements()}, &positions));
    std::vector<int64_t> unique;
    BatchUnique(FlatSpan<int64_t>(ids), use_padding_ ? &padding_id_ : nullptr,
                &unique, FlatSpan<int64_t>(positions));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 0, unique));
  }

 private:
  bool use_padding_ = false;
  int64_t padding_id_ = 0;
};

// InvalidArgument unless `gradient` is of rows that a table may have.
absl::Status CheckGradient(const Tensor& gradient) {
  TF_RETURN_IF_ERROR(CheckRank(gradient, "gradient", 2));
  if (gradient.dim_size(1) <= kMaxDim) return absl::OkStatus();
  return InvalidArgumentError("`gradient` has rows of ", gradient.dim_size(1),
                              " numbers, wanted at most ", kMaxDim);
}

// Output 0: a sum of rows of `gradient` for each distinct id.
absl::Status AllocateSums(OpKernelContext* ctx, const Tensor& gradient,
                          int64_t num_unique, SumTensor* sums) {
  Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(ctx->allocate_output(
      0, TensorShape({num_unique, gradient.dim_size(1)}), &output));
  return sums->Init(ctx, output);
}

class EmbeddingGradientOp : public StatelessKernel {
 public:
  using StatelessKernel::StatelessKernel;

  void ComputeOn(OpKernelContext* ctx) override {
    const Tensor& gradient = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckGradient(gradient));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "positions", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(2), "unique_ids", 1));
    const Span<const int64_t> positions = FlatSpan<int64_t>(ctx->input(1));
    const int64_t num_unique = ctx->input(2).NumElements();
    OP_REQUIRES(ctx, gradient.dim_size(0) == positions.size(),
                InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                     " rows, but `positions` has ",
                                     positions.size(), " numbers"));
    OP_REQUIRES_OK(ctx, CheckPositions(positions, num_unique));
    const int dim = static_cast<int>(gradient.dim_size(1));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SumTensor sums;
    OP_REQUIRES_OK(ctx, AllocateSums(ctx, gradient, num_unique, &sums));
    VisitRowType(RowTypeOf(gradient.dtype()), [&](auto zero) {
      using T = decltype(zero);
      SumByPosition(reinterpret_cast<const T*>(RowData(gradient)), positions,
                    num_unique, dim, sums.data<T>(), &parallel);
    });
    sums.Round(&parallel);
  }
};

class EmbeddingPooledGradientOp : public StatelessKernel {
 public:
  explicit EmbeddingPooledGradientOp(OpKernelConstruction* ctx)
      : StatelessKernel(ctx) {
    std::string combiner;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("combiner", &combiner));
    OP_REQUIRES_OK(ctx, ToTensorFlow(ParseCombiner(combiner, &combiner_)));
  }

  void ComputeOn(OpKernelContext* ctx) override {
    const Tensor& gradient = ctx->input(0);
    const Tensor& winners = ctx->input(5);
    OP_REQUIRES_OK(ctx, CheckGradient(gradient));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "positions", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(2), "unique_ids", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(3), "row_splits", 1));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(4), "weights", 1));
    OP_REQUIRES_OK(ctx, CheckRank(winners, "winners", 2));
    const Span<const int64_t> positions = FlatSpan<int64_t>(ctx->input(1));
    const int64_t num_unique = ctx->input(2).NumElements();
    OP_REQUIRES_OK(ctx, CheckPositions(positions, num_unique));
    Bags bags;
    bags.ids = positions;  // only their number is read
    bags.row_splits = FlatSpan<int64_t>(ctx->input(3));
    bags.weights = FlatSpan<float>(ctx->input(4));
    bags.combiner = combiner_;
    OP_REQUIRES_OK(ctx, ToTensorFlow(CheckBags(bags)));
    OP_REQUIRES(ctx, gradient.dim_size(0) == bags.size(),
                InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                     " rows, but `row_splits` makes ",
                                     bags.size(), " bags"));
    OP_REQUIRES(
        ctx, combiner_ != Combiner::kMax || winners.shape() == gradient.shape(),
        InvalidArgumentError(
            "`winners` has shape ", winners.shape().DebugString(),
            ", wanted the gradient's ", gradient.shape().DebugString()));
    const int dim = static_cast<int>(gradient.dim_size(1));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SumTensor sums;
    OP_REQUIRES_OK(ctx, AllocateSums(ctx, gradient, num_unique, &sums));
    VisitRowType(RowTypeOf(gradient.dtype()), [&](auto zero) {
      using T = decltype(zero);
      SumPooledByPosition(reinterpret_cast<const T*>(RowData(gradient)), bags,
                          positions, num_unique, winners.flat<int64_t>().data(),
                          dim, sums.data<T>(), &parallel);
    });
    sums.Round(&parallel);
  }

 private:
  Combiner combiner_ = Combiner::kSum;
};

class EmbeddingCheckApplyOp : public EmbeddingKernel {
 public:
  explicit EmbeddingCheckApplyOp(OpKernelConstruction* ctx)
      : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer", &optimizer_.name));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_names", &optimizer_.slot_names));
    std::vector<std::string> known;
    if (SparseOptimizer::SlotNames(optimizer_.name, &known)) {
      optimizer_.slot_names = std::move(known);
    }
    optimizer_.slot_inits.resize(optimizer_.slot_names.size());
    OP_REQUIRES_OK(ctx, ToTensorFlow(optimizer_.Check()));
  }

  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    const int dim = store->dim();
    OP_REQUIRES_OK(ctx, CheckGradients(ctx->input(1), ctx->input(2), *store));
    OP_REQUIRES_OK(ctx, ToTensorFlow(store->CheckOptimizer(optimizer_)));
    const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(1));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    VisitUpdateType(*store, [&](auto zero) {
      const auto* gradients = ctx->input(2).flat<decltype(zero)>().data();
      if (AllFinite(gradients, ids.size(), dim, &parallel)) return;
      for (int64_t i = 0; i < ids.size(); ++i) {
        OP_REQUIRES(ctx, IsFinite(gradients + i * dim, dim),
                    NonfiniteError(ids[i]));
      }
    });
  }

 private:
  AttachedOptimizer optimizer_;
};

class EmbeddingApplyOp : public StepKernel {
 public:
  explicit EmbeddingApplyOp(OpKernelConstruction* ctx) : StepKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer", &optimizer_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_inits", &slot_inits_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("create_missing", &create_missing_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("nonfinite", &nonfinite_));
  }

  absl::Status ComputeInStep(OpKernelContext* ctx,
                             EmbeddingStore* store) override {
    TF_RETURN_IF_ERROR(CheckGradients(ctx->input(1), ctx->input(2), *store));
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(3), "hyperparameters", 1));
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(4), "next_step", 0));
    SparseOptimizer optimizer;
    TF_RETURN_IF_ERROR(ToTensorFlow(SparseOptimizer::Create(
        optimizer_, FlatSpan<float>(ctx->input(3)), &optimizer)));
    absl::Status status;
    VisitUpdateType(*store, [&](auto zero) {
      status = Apply<decltype(zero)>(ctx, store, optimizer);
    });
    return status;
  }

 private:
  template <typename C>
  absl::Status Apply(OpKernelContext* ctx, EmbeddingStore* store,
                     const SparseOptimizer& optimizer) const {
    const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(1));
    const int dim = store->dim();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    std::vector<int64_t> unique;
    std::vector<int64_t> positions(ids.size());
    BatchUnique(ids, nullptr, &unique, positions);
    const C* sums = ctx->input(2).flat<C>().data();
    Tensor summed;
    if (unique.size() != ids.size()) {
      TF_RETURN_IF_ERROR(ctx->allocate_temp(
          tensorflow::DataTypeToEnum<C>::value,
          TensorShape({static_cast<int64_t>(unique.size()), dim}), &summed));
      SumByPosition(sums, positions, unique.size(), dim,
                    summed.flat<C>().data(), &parallel);
      sums = summed.flat<C>().data();
    }
    std::vector<C> finite;
    if (nonfinite_ != "pass" &&
        !AllFinite(sums, unique.size(), dim, &parallel)) {
      std::vector<int64_t> kept;
      TF_RETURN_IF_ERROR(
          KeepFinite(nonfinite_, unique, {}, sums, dim, store, &kept));
      finite.resize(kept.size() * dim);
      for (size_t k = 0; k < kept.size(); ++k) {
        unique[k] = unique[kept[k]];
        std::copy_n(sums + kept[k] * dim, dim, finite.data() + k * dim);
      }
      unique.resize(kept.size());
      sums = finite.data();
    }
    return ToTensorFlow(store->Apply(
        unique, sums, optimizer_, optimizer, slot_inits_, create_missing_,
        ctx->input(4).scalar<int64_t>()(), &parallel));
  }

  std::string optimizer_;
  std::vector<float> slot_inits_;
  bool create_missing_ = false;
  std::string nonfinite_;
};

#define REGISTER(name) \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name).Device(DEVICE_CPU), name##Op)
REGISTER(EmbeddingUnique);
REGISTER(EmbeddingGradient);
REGISTER(EmbeddingPooledGradient);
REGISTER(EmbeddingCheckApply);
REGISTER(EmbeddingApply);
#undef REGISTER

}  // namespace
}  // namespace lodestar
