// Contracts: tf_ops/ops/embedding/embedding_ops.cc.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/collection/embedding_gradient.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/sparse_optimizer.h"
#include "tf_ops/core/steps/update_log.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/step_kernel.h"
#include "tf_ops/kernels/embedding/update_gradients.h"
#include "tf_ops/kernels/steps/step_op.h"
#include "tf_ops/kernels/steps/update_attempt.h"

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
    Tensor ids_out;
    LookupPlan* plan = nullptr;
    LODESTAR_TRY(CopyUniqueIds(ctx, unique, &ids_out, &plan));
    ctx->set_output(0, ids_out);
    return absl::OkStatus();
  }

 private:
  bool use_padding_ = false;
  int64_t padding_id_ = 0;
};

absl::Status RunEmbeddingGradient(OpKernelContext* ctx) {
  const Tensor& gradient = ctx->input(0);
  LODESTAR_TRY(CheckRank(gradient, "gradient", 2));
  if (gradient.dim_size(1) > kMaxDim) {
    return InvalidArgumentError("`gradient` must have a last axis of at most ",
                                kMaxDim, ", got ", gradient.dim_size(1), ".");
  }
  LODESTAR_TRY(CheckRank(ctx->input(1), "positions", 1));
  LODESTAR_TRY(CheckRank(ctx->input(2), "unique_ids", 1));
  const Span<const int64_t> positions = FlatSpan<int64_t>(ctx->input(1));
  const int64_t num_unique = ctx->input(2).NumElements();
  if (gradient.dim_size(0) != positions.size()) {
    return InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                " rows, but `positions` has ", positions.size(),
                                " elements.");
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
    OP_REQUIRES_OK(ctx, ReadOptimizer(ctx, &optimizer_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("additions", &additions_));
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
    const Tensor& ids = ctx->input(1);
    const C* gradients = ctx->input(2).flat<C>().data();
    const int dim = store->dim();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    const C limit = LimitOfTerms<C>(ids.NumElements(), additions_);
    if (AllWithin(gradients, ids.NumElements(), dim, limit, &parallel)) {
      return absl::OkStatus();
    }
    UniqueGradients<C> summed;
    LODESTAR_TRY(summed.Init(ctx, ids, ctx->input(2), dim, &parallel));
    std::vector<int64_t> kept;
    LODESTAR_TRY(
        KeepFinite("raise", summed.ids(), {}, summed.rows(), *store, &kept));
    return additions_ > 0 ? CheckAdditions(*store, summed, &parallel)
                          : absl::OkStatus();
  }

  // Checks that these sums stay finite under later additions within
  // LimitOfTerms.
  template <typename C>
  static absl::Status CheckAdditions(const EmbeddingStore& store,
                                     const UniqueGradients<C>& summed,
                                     const ParallelFor* parallel) {
    const int dim = store.dim();
    std::vector<C> rows(summed.ids().size() * dim);
    store.Find(summed.ids(), nullptr, Missing(), rows.data(), nullptr,
               parallel);
    for (int64_t i = 0; i < summed.ids().size(); ++i) {
      C* row = rows.data() + i * dim;
      for (int c = 0; c < dim; ++c) row[c] += summed.rows()[i * dim + c];
      if (IsWithin(row, dim, std::numeric_limits<C>::max() / 2)) continue;
      return InvalidArgumentError(
          "the accumulated gradients of id ", summed.ids()[i],
          " exceed half of the largest number; no row was changed.");
    }
    return absl::OkStatus();
  }

  // Returns InvalidArgument unless rows are computed in their own type.
  static absl::Status CheckUpdateDtypeIsOwn(const EmbeddingStore& store) {
    if (store.type() == ComputeType(store.type())) return absl::OkStatus();
    return InvalidArgumentError("rows of ", NameOf(store.type()),
                                " do not support gradient accumulation.");
  }

  AttachedOptimizer optimizer_;
  int64_t additions_ = 0;
};

// Attributes of EmbeddingApply and EmbeddingStage, which may outlive the
// kernel, and of each table of EmbeddingApplyAll.
struct UpdateAttributes {
  std::string optimizer;
  std::vector<float> slot_inits;
  bool create_missing = false;
  std::string nonfinite;

  static absl::Status Create(OpKernelConstruction* ctx,
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

// The tensors of an update.
struct UpdateTensors {
  const Tensor& ids;
  const Tensor& gradients;
  const Tensor& hyperparameters;
  const Tensor& next_step;

  // The inputs from `first` on, every `stride`-th.
  static UpdateTensors Of(OpKernelContext* ctx, int first, int stride = 1) {
    return {ctx->input(first), ctx->input(first + stride),
            ctx->input(first + 2 * stride), ctx->input(first + 3 * stride)};
  }
  absl::Status Check(const EmbeddingStore& store) const {
    LODESTAR_TRY(CheckGradients(ids, gradients, store));
    LODESTAR_TRY(CheckRank(hyperparameters, "hyperparameters", 1));
    return CheckRank(next_step, "next_step", 0);
  }
};

// An update that passed all checks of this kernel; only core may still refuse
// it.
class CheckedUpdate {
 public:
  // Call KeepFinite next.
  static absl::Status Create(OpKernelContext* ctx, const UpdateTensors& tensors,
                             std::shared_ptr<const UpdateAttributes> attributes,
                             const EmbeddingStore& store,
                             std::unique_ptr<CheckedUpdate>* made);
  virtual ~CheckedUpdate() = default;

  // Returns true if all gradients are known to be finite, or need not be.
  virtual bool IsSurelyFinite(const EmbeddingStore& store,
                              const ParallelFor* parallel) const = 0;
  // Drops non-finite gradients, or returns InvalidArgument if they are errors.
  virtual absl::Status KeepFinite(const EmbeddingStore& store) = 0;
  // The update for core. Valid while this exists.
  virtual EmbeddingStore::TableUpdate On(EmbeddingStore* store) const = 0;

  // Counts events. Call after the update.
  void Count(EmbeddingStore* store) const {
    store->CountNonfiniteGradients(nonfinite_);
  }
  // Applies the update of this table alone.
  Status Apply(EmbeddingStore* store, const ParallelFor* parallel) const {
    const EmbeddingStore::TableUpdate update = On(store);
    LODESTAR_RETURN_IF_ERROR(EmbeddingStore::Apply(
        Span<const EmbeddingStore::TableUpdate>(&update, 1), parallel));
    Count(store);
    return Status();
  }

 protected:
  int64_t nonfinite_ = 0;
};

// C: the type in which the rows are updated.
template <typename C>
class CheckedUpdateAs final : public CheckedUpdate {
 public:
  absl::Status Init(OpKernelContext* ctx, const UpdateTensors& tensors,
                    std::shared_ptr<const UpdateAttributes> attributes,
                    const EmbeddingStore& store) {
    attributes_ = std::move(attributes);
    LODESTAR_TRY(ToTensorFlow(SparseOptimizer::Create(
        attributes_->optimizer, FlatSpan<float>(tensors.hyperparameters),
        &optimizer_)));
    next_step_ = tensors.next_step.scalar<int64_t>()();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    return gradients_.Init(ctx, tensors.ids, tensors.gradients, store.dim(),
                           &parallel);
  }

  bool IsSurelyFinite(const EmbeddingStore& store,
                      const ParallelFor* parallel) const override {
    return attributes_->nonfinite == "pass" ||
           SurelyFinite(store, gradients_.rows(), gradients_.ids().size(),
                        parallel);
  }

  absl::Status KeepFinite(const EmbeddingStore& store) override {
    std::vector<int64_t> kept;
    LODESTAR_TRY(lodestar::KeepFinite(attributes_->nonfinite, gradients_.ids(),
                                      {}, gradients_.rows(), store, &kept));
    nonfinite_ = gradients_.ids().size() - kept.size();
    gradients_.Keep(kept);
    return absl::OkStatus();
  }

  EmbeddingStore::TableUpdate On(EmbeddingStore* store) const override {
    const LookupPlan* const plan = gradients_.plan();
    return {store,
            gradients_.ids(),
            gradients_.rows(),
            attributes_->optimizer,
            &optimizer_,
            attributes_->slot_inits,
            attributes_->create_missing,
            next_step_,
            plan == nullptr ? Span<const RowRef>() : store->RefsOf(*plan)};
  }

 private:
  std::shared_ptr<const UpdateAttributes> attributes_;
  SparseOptimizer optimizer_;
  int64_t next_step_ = 0;
  UniqueGradients<C> gradients_;
};

absl::Status CheckedUpdate::Create(
    OpKernelContext* ctx, const UpdateTensors& tensors,
    std::shared_ptr<const UpdateAttributes> attributes,
    const EmbeddingStore& store, std::unique_ptr<CheckedUpdate>* made) {
  LODESTAR_TRY(tensors.Check(store));
  absl::Status status;
  VisitUpdateType(store, [&](auto zero) {
    auto update = std::make_unique<CheckedUpdateAs<decltype(zero)>>();
    status = update->Init(ctx, tensors, std::move(attributes), store);
    *made = std::move(update);
  });
  return status;
}

class EmbeddingApplyOp : public StepKernel {
 public:
  explicit EmbeddingApplyOp(OpKernelConstruction* ctx) : StepKernel(ctx) {
    OP_REQUIRES_OK(ctx, UpdateAttributes::Create(ctx, &attributes_));
  }

  absl::Status ComputeInStep(OpKernelContext* ctx,
                             EmbeddingStore* store) override {
    const UpdateTensors tensors = UpdateTensors::Of(ctx, 1);
    std::unique_ptr<CheckedUpdate> update;
    LODESTAR_TRY(
        CheckedUpdate::Create(ctx, tensors, attributes_, *store, &update));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    if (!update->IsSurelyFinite(*store, &parallel)) {
      LODESTAR_TRY(update->KeepFinite(*store));
    }
    return ToTensorFlow(update->Apply(store, &parallel));
  }

 private:
  std::shared_ptr<const UpdateAttributes> attributes_;
};

// Updates several variables atomically.
class EmbeddingApplyAllOp : public StepOp {
 public:
  explicit EmbeddingApplyAllOp(OpKernelConstruction* ctx) : StepOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadAttributes(ctx));
  }

 private:
  absl::Status FindGates(OpKernelContext* ctx,
                         StepGates* gates) const override {
    return lodestar::FindGates(ctx, static_cast<int>(attributes_.size()),
                               gates);
  }

  absl::Status ReadAttributes(OpKernelConstruction* ctx) {
    int num_tables = 0;
    std::vector<std::string> optimizers;
    std::vector<float> slot_inits;
    std::vector<bool> create_missing;
    std::string nonfinite;
    LODESTAR_TRY(ctx->GetAttr("num_tables", &num_tables));
    LODESTAR_TRY(ctx->GetAttr("optimizers", &optimizers));
    LODESTAR_TRY(ctx->GetAttr("slot_inits", &slot_inits));
    LODESTAR_TRY(ctx->GetAttr("create_missing", &create_missing));
    LODESTAR_TRY(ctx->GetAttr("nonfinite", &nonfinite));
    if (static_cast<int>(optimizers.size()) != num_tables ||
        static_cast<int>(create_missing.size()) != num_tables) {
      return InvalidArgumentError("`optimizers` has ", optimizers.size(),
                                  " items and `create_missing` ",
                                  create_missing.size(), ", but there are ",
                                  num_tables, " variables.");
    }
    size_t used = 0;
    for (int t = 0; t < num_tables; ++t) {
      auto read = std::make_shared<UpdateAttributes>();
      read->optimizer = optimizers[t];
      read->create_missing = create_missing[t];
      read->nonfinite = nonfinite;
      std::vector<std::string> slots;
      SparseOptimizer::SlotNames(optimizers[t], &slots);
      const size_t end = used + slots.size();
      if (end <= slot_inits.size()) {
        read->slot_inits.assign(slot_inits.begin() + used,
                                slot_inits.begin() + end);
      }
      used = end;
      attributes_.push_back(std::move(read));
    }
    if (used == slot_inits.size()) return absl::OkStatus();
    return InvalidArgumentError("`slot_inits` has ", slot_inits.size(),
                                " elements, but `optimizers` have ", used,
                                " optimizer slots.");
  }

  absl::Status Write(OpKernelContext* ctx) const override {
    const int num_tables = static_cast<int>(attributes_.size());
    std::vector<std::shared_ptr<EmbeddingStore>> stores(num_tables);
    for (int t = 0; t < num_tables; ++t) {
      tensorflow::core::RefCountPtr<EmbeddingResource> resource;
      LODESTAR_TRY(FindResource(ctx, ctx->input(t), &resource));
      LODESTAR_TRY(resource->GetStore(&stores[t]));
    }
    std::vector<std::unique_ptr<CheckedUpdate>> updates(num_tables);
    for (int t = 0; t < num_tables; ++t) {
      const UpdateTensors tensors =
          UpdateTensors::Of(ctx, num_tables + t, num_tables);
      LODESTAR_TRY(
          WithTableName(ctx,
                        CheckedUpdate::Create(ctx, tensors, attributes_[t],
                                              *stores[t], &updates[t]),
                        t));
    }
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    std::vector<char> finite(num_tables, 0);
    RunParallel(&parallel, num_tables, 10'000, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        finite[t] = updates[t]->IsSurelyFinite(*stores[t], nullptr);
      }
    });
    std::vector<EmbeddingStore::TableUpdate> of_tables;
    for (int t = 0; t < num_tables; ++t) {
      if (!finite[t]) {
        LODESTAR_TRY(WithTableName(ctx, updates[t]->KeepFinite(*stores[t]), t));
      }
      of_tables.push_back(updates[t]->On(stores[t].get()));
    }
    int64_t failed = 0;
    const Status status = EmbeddingStore::Apply(of_tables, &parallel, &failed);
    LODESTAR_TRY(WithTableName(ctx, ToTensorFlow(status), failed));
    for (int t = 0; t < num_tables; ++t) updates[t]->Count(stores[t].get());
    return absl::OkStatus();
  }

  std::vector<std::shared_ptr<const UpdateAttributes>> attributes_;
};

class EmbeddingStageOp : public EmbeddingKernel {
 public:
  explicit EmbeddingStageOp(OpKernelConstruction* ctx) : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, UpdateAttributes::Create(ctx, &attributes_));
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
    LODESTAR_TRY(ToTensorFlow(store.CheckOptimizer(attached_)));
    std::unique_ptr<CheckedUpdate> made;
    LODESTAR_TRY(CheckedUpdate::Create(ctx, UpdateTensors::Of(ctx, 1),
                                       attributes_, store, &made));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    if (!made->IsSurelyFinite(store, &parallel)) {
      LODESTAR_TRY(made->KeepFinite(store));
    }
    const std::shared_ptr<const CheckedUpdate> update = std::move(made);
    tensorflow::core::RefCountPtr<EmbeddingResource> found;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &found));
    // The resource may hold another store by then.
    const std::shared_ptr<EmbeddingResource> resource(
        found.release(), [](EmbeddingResource* held) { held->Unref(); });
    return MakeAttempt(
        ctx, 5,
        [&](UpdateLog* log, const UpdateLog::Attempt& attempt, int64_t name) {
          return log->Stage(
              attempt, name, resource->gate(),
              [update, resource](const ParallelFor* parallel) {
                std::shared_ptr<EmbeddingStore> store;
                LODESTAR_RETURN_IF_ERROR(resource->GetStore(&store));
                return update->Apply(store.get(), parallel);
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
LODESTAR_REGISTER(EmbeddingApplyAll);
LODESTAR_REGISTER(EmbeddingStage);

}  // namespace
}  // namespace lodestar
