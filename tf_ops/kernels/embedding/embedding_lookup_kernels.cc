// Contracts: tf_ops/ops/embedding/embedding_ops.cc.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/unique_ids.h"

namespace lodestar {
namespace {

class EmbeddingFindOrInsertOp : public EmbeddingKernel {
 public:
  explicit EmbeddingFindOrInsertOp(OpKernelConstruction* ctx)
      : EmbeddingKernel(ctx) {
    OP_REQUIRES_OK(ctx, lookup_.Init(ctx));
    OP_REQUIRES_OK(ctx, ReadLookupOptions(ctx, &options_));
  }

  absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    const int dim = store->dim();
    LODESTAR_TRY(CheckHook(ctx->input(1), *store));
    const Tensor& ids_tensor = ctx->input(2);
    Missing missing;
    LODESTAR_TRY(lookup_.ReadMissing(ctx->input(3), dim, &missing));
    char* rows = nullptr;
    LODESTAR_TRY(AllocateRows(ctx, 0, ids_tensor.shape(), dim, &rows));
    const Span<const int64_t> ids = FlatSpan<int64_t>(ids_tensor);
    Tensor* output = nullptr;
    LODESTAR_TRY(ctx->allocate_output(2, {ids.size()}, &output));
    const Span<int64_t> positions = FlatSpan<int64_t>(output);
    std::vector<int64_t> unique;
    BatchUnique(ids, lookup_.padding_id(), &unique, positions);
    // Allocates everything except rows now: nothing may fail after these are
    // created.
    const int64_t count = static_cast<int64_t>(unique.size());
    Tensor unique_ids;
    LookupPlan* plan = nullptr;
    LODESTAR_TRY(CopyUniqueIds(ctx, unique, &unique_ids, &plan));
    *plan = store->PlanOf(std::vector<RowRef>(count));
    std::vector<uint32_t> occurrences;
    if (store->counts_occurrences()) {
      occurrences = CountOccurrences(positions, count);
    }
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    const EmbeddingStore::TableIds table = {store,     unique,      plan->refs,
                                            nullptr,   occurrences, rows,
                                            positions, missing};
    LODESTAR_TRY(
        EmbeddingStore::FindOrInsert({&table, 1}, options_, &parallel));
    ctx->set_output(1, unique_ids);
    const int64_t padding =
        lookup_.padding_id() == nullptr
            ? 0
            : std::count(positions.begin(), positions.end(), kNoPosition);
    store->CountBatch(ids.size(), count, padding);
    return absl::OkStatus();
  }

 private:
  LookupAttributes lookup_;
  EmbeddingStore::LookupOptions options_;
};

class EmbeddingFindOrInsertUniqueOp : public EmbeddingKernel {
 public:
  explicit EmbeddingFindOrInsertUniqueOp(OpKernelConstruction* ctx)
      : EmbeddingKernel(ctx) {
    std::string missing;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("missing", &missing));
    kind_ = ParseMissing(missing);
    OP_REQUIRES_OK(ctx, ReadLookupOptions(ctx, &options_));
  }

  absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    LODESTAR_TRY(CheckRank(ctx->input(1), "ids", 1));
    const Span<const int64_t> ids = FlatSpan<int64_t>(ctx->input(1));
    if (PlanOf(ctx->input(1)) == nullptr) {
      LODESTAR_TRY(ToTensorFlow(CheckUnique("ids", ids)));
    }
    std::vector<uint32_t> occurrences;
    int64_t num_ids = ids.size();
    LODESTAR_TRY(
        ReadOccurrences(ctx->input(2), ids.size(), &occurrences, &num_ids));
    const Tensor& missing_row = ctx->input(3);
    LODESTAR_TRY(CheckDtype(missing_row.dtype(), "missing_row", store->type()));
    Missing missing;
    LODESTAR_TRY(ReadMissing(kind_, missing_row, store->dim(), &missing));
    char* rows = nullptr;
    LODESTAR_TRY(
        AllocateRows(ctx, 0, ctx->input(1).shape(), store->dim(), &rows));
    Tensor* output = nullptr;
    LODESTAR_TRY(ctx->allocate_output(1, {ids.size()}, &output));
    std::vector<char> resident(ids.size());
    std::vector<RowRef> refs(ids.size());
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    const EmbeddingStore::TableIds table = {
        store, ids, refs, resident.data(), occurrences, rows, {}, missing};
    LODESTAR_TRY(
        EmbeddingStore::FindOrInsert({&table, 1}, options_, &parallel));
    store->CountBatch(num_ids, ids.size(), 0);
    std::copy(resident.begin(), resident.end(), output->flat<bool>().data());
    return absl::OkStatus();
  }

 private:
  // Leaves both outputs unchanged if the tensor is empty.
  static absl::Status ReadOccurrences(const Tensor& tensor, int64_t count,
                                      std::vector<uint32_t>* occurrences,
                                      int64_t* sum) {
    LODESTAR_TRY(CheckRank(tensor, "occurrences", 1));
    if (tensor.NumElements() == 0) return absl::OkStatus();
    const Span<const int64_t> numbers = FlatSpan<int64_t>(tensor);
    if (numbers.size() != count) {
      return InvalidArgumentError("`occurrences` has ", numbers.size(),
                                  " elements, but there are ", count, " ids.");
    }
    *sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (numbers[i] < 1 || numbers[i] > std::numeric_limits<uint32_t>::max()) {
        return InvalidArgumentError("`occurrences[", i,
                                    "]` must be in [1, 2^32 - 1], got ",
                                    numbers[i], ".");
      }
      occurrences->push_back(static_cast<uint32_t>(numbers[i]));
      *sum += numbers[i];
    }
    return absl::OkStatus();
  }

  Missing::Kind kind_ = Missing::Kind::kZeros;
  EmbeddingStore::LookupOptions options_;
};

LODESTAR_REGISTER(EmbeddingFindOrInsert);
LODESTAR_REGISTER(EmbeddingFindOrInsertUnique);

}  // namespace
}  // namespace lodestar
