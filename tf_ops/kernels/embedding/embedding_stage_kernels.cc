// Contracts: tf_ops/ops/embedding/embedding_ops.cc.

#include <cstdint>
#include <memory>

#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/embedding/update_gradients.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/sparse_optimizer.h"
#include "tf_ops/core/steps/update_log.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/update_inputs.h"
#include "tf_ops/kernels/steps/update_attempt.h"

namespace lodestar {
namespace {

// A staged update, with the arrays that it refers to.
struct StagedUpdate {
  std::shared_ptr<const UpdateAttributes> attributes;
  Tensor ids;
  Tensor gradients;
  SummedUpdate summed;
};

class EmbeddingStageOp : public EmbeddingKernel {
 public:
  explicit EmbeddingStageOp(OpKernelConstruction* ctx) : EmbeddingKernel(ctx) {
    const auto attributes = std::make_shared<UpdateAttributes>();
    OP_REQUIRES_OK(ctx, attributes->Init(ctx));
    attributes_ = attributes;
    attached_.name = attributes_->optimizer;
    attached_.slot_inits = attributes_->slot_inits;
    SparseOptimizer::SlotNames(attached_.name, &attached_.slot_names);
    OP_REQUIRES_OK(ctx, ToTensorFlow(attached_.Check()));
  }

  absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    return WithTableName(ctx, Stage(ctx, store));
  }

 private:
  absl::Status Stage(OpKernelContext* ctx, EmbeddingStore* store) const {
    LODESTAR_TRY(ToTensorFlow(store->CheckOptimizer(attached_)));
    const auto staged = std::make_shared<StagedUpdate>(
        StagedUpdate{attributes_, ctx->input(1), ctx->input(2), {}});
    TableUpdate update;
    LODESTAR_TRY(attributes_->Read(ctx, 1, 1, store, &update));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    LODESTAR_TRY(ToTensorFlow(staged->summed.Init(update, &parallel)));
    if (!staged->summed.IsSurelyFinite(&parallel)) {
      LODESTAR_TRY(ToTensorFlow(staged->summed.KeepFinite()));
    }
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
              [staged, resource](const ParallelFor* parallel) {
                std::shared_ptr<EmbeddingStore> store;
                LODESTAR_RETURN_IF_ERROR(resource->GetStore(&store));
                return staged->summed.Apply(store.get(), parallel);
              });
        });
  }

  std::shared_ptr<const UpdateAttributes> attributes_;
  AttachedOptimizer attached_;
};

LODESTAR_REGISTER(EmbeddingStage);

}  // namespace
}  // namespace lodestar
