// Contracts: tf_ops/ops/embedding/embedding_ops.cc.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/update_log.h"
#include "tf_ops/core/embedding/embedding_gradient.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/sparse_optimizer.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/step_kernel.h"
#include "tf_ops/kernels/embedding/update_attempt.h"
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

// How rows are updated: attributes of EmbeddingApply and EmbeddingStage, which
// may outlive the kernel.
struct UpdateAttributes {
  std::string optimizer;
  std::vector<float> slot_inits;
  bool create_missing = false;
  std::string nonfinite;

  static absl::Status Make(OpKernelConstruction* ctx,
                           std::shared_ptr<const UpdateAttributes>* made) {
    auto read = std::make_shared<UpdateAttributes>();
    LODESTAR_TRY(ctx->GetAttr("optimizer", &read->optimizer));
    LODESTAR_TRY(ctx->GetAttr("slot_inits", &read->slot_inits));
    LODESTAR_TRY(ctx->GetAttr("create_missing", &read->create_missing));
    LODESTAR_TRY(ctx->GetAttr("nonfinite", &read->nonfinite));
    *made = std::move(read);
    return absl::OkStatus();
  }
};

// An update that is checked and summed: what is left is to write it.
template <typename C>
class CheckedUpdate {
 public:
  // Of inputs 1 to 4. `found`: what a look-up of the ids found; may be empty.
  absl::Status Init(OpKernelContext* ctx,
                    std::shared_ptr<const UpdateAttributes> attributes,
                    const EmbeddingStore& store, FoundBatch found) {
    attributes_ = std::move(attributes);
    LODESTAR_TRY(SparseOptimizer::Create(
        attributes_->optimizer, FlatSpan<float>(ctx->input(3)), &optimizer_));
    next_step_ = ctx->input(4).scalar<int64_t>()();
    gradients_ = ctx->input(2);
    const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(1));
    const int dim = store.dim();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    const C* gradients = gradients_.flat<C>().data();
    if (found.ids.empty()) {
      LODESTAR_TRY(summed_.Sum(ctx, ids, gradients, dim, &parallel));
    } else {
      summed_.ids = std::move(found.ids);
      summed_.sums = gradients;
      refs_ = std::move(found.refs);
    }
    std::vector<int64_t>& unique = summed_.ids;
    if (attributes_->nonfinite == "pass" ||
        SurelyFinite(store, summed_.sums, unique.size(), &parallel)) {
      return absl::OkStatus();
    }
    std::vector<int64_t> kept;
    LODESTAR_TRY(KeepFinite(attributes_->nonfinite, unique, {}, summed_.sums,
                            store, &kept));
    nonfinite_ = unique.size() - kept.size();
    finite_.resize(kept.size() * dim);
    for (size_t k = 0; k < kept.size(); ++k) {
      unique[k] = unique[kept[k]];
      if (!refs_.empty()) refs_[k] = refs_[kept[k]];
      std::copy_n(summed_.sums + kept[k] * dim, dim, finite_.data() + k * dim);
    }
    unique.resize(kept.size());
    if (!refs_.empty()) refs_.resize(kept.size());
    summed_.sums = finite_.data();
    return absl::OkStatus();
  }

  Status Write(EmbeddingStore* store, const ParallelFor* parallel) const {
    LODESTAR_RETURN_IF_ERROR(
        store->Apply(summed_.ids, summed_.sums, attributes_->optimizer,
                     optimizer_, attributes_->slot_inits,
                     attributes_->create_missing, next_step_, parallel, refs_));
    store->CountNonfiniteGradients(nonfinite_);
    return Status();
  }

 private:
  std::shared_ptr<const UpdateAttributes> attributes_;
  SparseOptimizer optimizer_;
  int64_t next_step_ = 0;
  Tensor gradients_;  // which the sums may lie in
  SummedGradients<C> summed_;
  std::vector<RowRef> refs_;  // of their rows; empty: not known
  std::vector<C> finite_;
  int64_t nonfinite_ = 0;
};

absl::Status CheckUpdateInputs(OpKernelContext* ctx,
                               const EmbeddingStore& store) {
  LODESTAR_TRY(CheckGradients(ctx->input(1), ctx->input(2), store));
  LODESTAR_TRY(CheckRank(ctx->input(3), "hyperparameters", 1));
  return CheckRank(ctx->input(4), "next_step", 0);
}

class EmbeddingApplyOp : public StepKernel {
 public:
  explicit EmbeddingApplyOp(OpKernelConstruction* ctx) : StepKernel(ctx) {
    OP_REQUIRES_OK(ctx, UpdateAttributes::Make(ctx, &attributes_));
  }

  absl::Status ComputeInStep(OpKernelContext* ctx,
                             EmbeddingStore* store) override {
    LODESTAR_TRY(CheckUpdateInputs(ctx, *store));
    absl::Status status;
    VisitUpdateType(
        *store, [&](auto zero) { status = Apply<decltype(zero)>(ctx, store); });
    return status;
  }

 private:
  template <typename C>
  absl::Status Apply(OpKernelContext* ctx, EmbeddingStore* store) const {
    CheckedUpdate<C> update;
    LODESTAR_TRY(
        update.Init(ctx, attributes_, *store,
                    store->TakeFound(FlatSpan<int64_t>(ctx->input(1)))));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    return ToTensorFlow(update.Write(store, &parallel));
  }

  std::shared_ptr<const UpdateAttributes> attributes_;
};

class EmbeddingStageOp : public EmbeddingKernel {
 public:
  explicit EmbeddingStageOp(OpKernelConstruction* ctx) : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, UpdateAttributes::Make(ctx, &attributes_));
    attached_.name = attributes_->optimizer;
    attached_.slot_inits = attributes_->slot_inits;
    SparseOptimizer::SlotNames(attached_.name, &attached_.slot_names);
    OP_REQUIRES_OK(ctx, ToTensorFlow(attached_.Check()));
  }

  absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    return WithTableName(ctx, Stage(ctx, *store));
  }

 private:
  absl::Status Stage(OpKernelContext* ctx, const EmbeddingStore& store) const {
    LODESTAR_TRY(CheckUpdateInputs(ctx, store));
    LODESTAR_TRY(ToTensorFlow(store.CheckOptimizer(attached_)));
    absl::Status status;
    VisitUpdateType(store, [&](auto zero) {
      status = StageAs<decltype(zero)>(ctx, store);
    });
    return status;
  }

  template <typename C>
  absl::Status StageAs(OpKernelContext* ctx,
                       const EmbeddingStore& store) const {
    auto update = std::make_shared<CheckedUpdate<C>>();
    // Nothing of what was found: by the time it is written, the resource may
    // hold another store.
    LODESTAR_TRY(update->Init(ctx, attributes_, store, FoundBatch()));
    tensorflow::core::RefCountPtr<EmbeddingResource> found;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &found));
    // By then the resource may hold other rows than now.
    const std::shared_ptr<EmbeddingResource> resource(
        found.release(), [](EmbeddingResource* held) { held->Unref(); });
    return MakeAttempt(
        ctx, 5,
        [&](UpdateLog* log, const UpdateLog::Attempt& attempt, int64_t name) {
          return log->Stage(
              attempt, name, [update, resource](const ParallelFor* parallel) {
                return update->Write(resource->store().get(), parallel);
              });
        });
  }

  std::shared_ptr<const UpdateAttributes> attributes_;
  AttachedOptimizer attached_;
};

LODESTAR_REGISTER(EmbeddingUnique);
LODESTAR_REGISTER_FUNCTION(EmbeddingGradient);
LODESTAR_REGISTER(EmbeddingCheckApply);
LODESTAR_REGISTER(EmbeddingApply);
LODESTAR_REGISTER(EmbeddingStage);

}  // namespace
}  // namespace lodestar
