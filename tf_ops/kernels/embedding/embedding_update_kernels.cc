// Contracts: tf_ops/ops/embedding/embedding_ops.cc.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/embedding/embedding_gradient.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/rows/sparse_optimizer.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/step_kernel.h"
#include "tf_ops/kernels/embedding/update_gradients.h"

namespace lodestar {
namespace {

class EmbeddingUniqueOp : public Kernel {
 public:
  explicit EmbeddingUniqueOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_padding", &use_padding_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("padding_id", &padding_id_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& ids = ctx->input(0);
    Tensor* positions = nullptr;
    LODESTAR_TRY(ctx->allocate_output(1, {ids.NumElements()}, &positions));
    std::vector<int64_t> unique;
    BatchUnique(FlatSpan<int64_t>(ids), use_padding_ ? &padding_id_ : nullptr,
                &unique, FlatSpan<int64_t>(positions));
    return OutputVector(ctx, 0, unique);
  }

 private:
  bool use_padding_ = false;
  int64_t padding_id_ = 0;
};

absl::Status RunEmbeddingGradient(OpKernelContext* ctx) {
  const Tensor& gradient = ctx->input(0);
  LODESTAR_TRY(CheckRank(gradient, "gradient", 2));
  if (gradient.dim_size(1) > kMaxDim) {
    return InvalidArgumentError("`gradient` has rows of ", gradient.dim_size(1),
                                " numbers, wanted at most ", kMaxDim);
  }
  LODESTAR_TRY(CheckRank(ctx->input(1), "positions", 1));
  LODESTAR_TRY(CheckRank(ctx->input(2), "unique_ids", 1));
  const Span<const int64_t> positions = FlatSpan<int64_t>(ctx->input(1));
  const int64_t num_unique = ctx->input(2).NumElements();
  if (gradient.dim_size(0) != positions.size()) {
    return InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                " rows, but `positions` has ", positions.size(),
                                " numbers");
  }
  LODESTAR_TRY(CheckPositions(positions, num_unique));
  const int dim = static_cast<int>(gradient.dim_size(1));
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  Tensor* output = nullptr;
  LODESTAR_TRY(ctx->allocate_output(0, {num_unique, dim}, &output));
  SumTensor sums;
  LODESTAR_TRY(sums.Init(ctx, output));
  VisitRowType(RowTypeOf(gradient.dtype()), [&](auto zero) {
    using T = decltype(zero);
    SumByPosition(reinterpret_cast<const T*>(RowData(gradient)), positions,
                  num_unique, dim, sums.data<T>(), &parallel);
  });
  sums.Round(&parallel);
  return absl::OkStatus();
}

class EmbeddingCheckApplyOp : public EmbeddingKernel {
 public:
  explicit EmbeddingCheckApplyOp(OpKernelConstruction* ctx)
      : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer", &optimizer_.name));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_names", &optimizer_.slot_names));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("additions", &additions_));
    std::vector<std::string> known;
    if (SparseOptimizer::SlotNames(optimizer_.name, &known)) {
      optimizer_.slot_names = std::move(known);
    }
    optimizer_.slot_inits.resize(optimizer_.slot_names.size());
    OP_REQUIRES_OK(ctx, ToTensorFlow(optimizer_.Check()));
  }

  absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    return WithTableName(ctx, Check(ctx, store));
  }

 private:
  absl::Status Check(OpKernelContext* ctx, EmbeddingStore* store) const {
    LODESTAR_TRY(CheckGradients(ctx->input(1), ctx->input(2), *store));
    if (additions_ > 0) {
      LODESTAR_TRY(CheckUpdateDtypeIsOwn(*store));
    }
    LODESTAR_TRY(store->CheckOptimizer(optimizer_));
    absl::Status status;
    VisitUpdateType(*store, [&](auto zero) {
      status = CheckSums<decltype(zero)>(ctx, store);
    });
    return status;
  }

  template <typename C>
  absl::Status CheckSums(OpKernelContext* ctx, EmbeddingStore* store) const {
    const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(1));
    const C* gradients = ctx->input(2).flat<C>().data();
    const int dim = store->dim();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    const C limit = LimitOfTerms<C>(ids.size(), additions_);
    if (AllWithin(gradients, ids.size(), dim, limit, &parallel)) {
      return absl::OkStatus();
    }
    SummedGradients<C> summed;
    LODESTAR_TRY(summed.Sum(ctx, ids, gradients, dim, &parallel));
    std::vector<int64_t> kept;
    LODESTAR_TRY(
        KeepFinite("raise", summed.ids, {}, summed.sums, *store, &kept));
    return additions_ > 0 ? CheckAdditions(*store, summed, &parallel)
                          : absl::OkStatus();
  }

  // What later additions, all within LimitOfTerms, make of these sums is
  // finite.
  template <typename C>
  static absl::Status CheckAdditions(const EmbeddingStore& store,
                                     const SummedGradients<C>& summed,
                                     const ParallelFor* parallel) {
    const int dim = store.dim();
    std::vector<C> rows(summed.ids.size() * dim);
    store.Find(summed.ids, nullptr, Missing(), rows.data(), nullptr, parallel);
    for (size_t i = 0; i < summed.ids.size(); ++i) {
      C* row = rows.data() + i * dim;
      for (int c = 0; c < dim; ++c) row[c] += summed.sums[i * dim + c];
      if (IsWithin(row, dim, std::numeric_limits<C>::max() / 2)) continue;
      return InvalidArgumentError(
          "the gradients of id ", summed.ids[i],
          " that wait for an update have a sum beyond half of the largest "
          "number; no row was changed");
    }
    return absl::OkStatus();
  }

  // InvalidArgument unless rows are computed as what they are.
  static absl::Status CheckUpdateDtypeIsOwn(const EmbeddingStore& store) {
    if (store.type() == ComputeType(store.type())) return absl::OkStatus();
    return InvalidArgumentError("nothing is added up in rows of ",
                                NameOf(store.type()));
  }

  AttachedOptimizer optimizer_;
  int64_t additions_ = 0;
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
    LODESTAR_TRY(CheckGradients(ctx->input(1), ctx->input(2), *store));
    LODESTAR_TRY(CheckRank(ctx->input(3), "hyperparameters", 1));
    LODESTAR_TRY(CheckRank(ctx->input(4), "next_step", 0));
    SparseOptimizer optimizer;
    LODESTAR_TRY(SparseOptimizer::Create(
        optimizer_, FlatSpan<float>(ctx->input(3)), &optimizer));
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
    SummedGradients<C> summed;
    LODESTAR_TRY(
        summed.Sum(ctx, ids, ctx->input(2).flat<C>().data(), dim, &parallel));
    std::vector<int64_t>& unique = summed.ids;
    const C* sums = summed.sums;
    std::vector<C> finite;
    int64_t nonfinite = 0;
    if (nonfinite_ != "pass" &&
        !SurelyFinite(*store, sums, unique.size(), &parallel)) {
      std::vector<int64_t> kept;
      LODESTAR_TRY(KeepFinite(nonfinite_, unique, {}, sums, *store, &kept));
      nonfinite = unique.size() - kept.size();
      finite.resize(kept.size() * dim);
      for (size_t k = 0; k < kept.size(); ++k) {
        unique[k] = unique[kept[k]];
        std::copy_n(sums + kept[k] * dim, dim, finite.data() + k * dim);
      }
      unique.resize(kept.size());
      sums = finite.data();
    }
    LODESTAR_TRY(ToTensorFlow(store->Apply(
        unique, sums, optimizer_, optimizer, slot_inits_, create_missing_,
        ctx->input(4).scalar<int64_t>()(), &parallel)));
    store->CountNonfiniteGradients(nonfinite);
    return absl::OkStatus();
  }

  std::string optimizer_;
  std::vector<float> slot_inits_;
  bool create_missing_ = false;
  std::string nonfinite_;
};

LODESTAR_REGISTER(EmbeddingUnique);
LODESTAR_REGISTER_FUNCTION(EmbeddingGradient);
LODESTAR_REGISTER(EmbeddingCheckApply);
LODESTAR_REGISTER(EmbeddingApply);

}  // namespace
}  // namespace lodestar
