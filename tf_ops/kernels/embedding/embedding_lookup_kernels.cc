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
    std::vector<int64_t> unique;
    BatchUnique(ids, lookup_.padding_id(), &unique, FlatSpan<int64_t>(output));
    const Span<const int64_t> positions = FlatSpan<int64_t>(*output);
    LODESTAR_TRY(OutputVector(ctx, 1, unique));
    const int64_t padding =
        lookup_.padding_id() == nullptr
            ? 0
            : std::count(positions.begin(), positions.end(), kNoPosition);
    std::vector<RowRef> refs(unique.size());
    std::vector<uint32_t> occurrences;
    if (store->counts_occurrences()) {
      occurrences = CountOccurrences(positions, unique.size());
    }
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    LODESTAR_TRY(store->FindOrInsert(unique, options_, refs, &parallel, nullptr,
                                     occurrences));
    store->CountBatch(positions.size(), unique.size(), padding);
    const int64_t row_bytes = store->row_bytes();
    RunParallel(&parallel, ids.size(), 20 + dim,
                [&](int64_t begin, int64_t end) {
                  store->ReadRows(ids, positions, refs, begin, end, missing,
                                  rows + begin * row_bytes);
                });
    store->KeepFound({std::move(unique), std::move(refs)});
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
    std::vector<int64_t> positions(ids.size());
    LODESTAR_TRY(CheckUnique(ids, &positions));
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
    LODESTAR_TRY(store->FindOrInsert(ids, options_, refs, &parallel,
                                     resident.data(), occurrences));
    store->CountBatch(num_ids, ids.size(), 0);
    std::copy(resident.begin(), resident.end(), output->flat<bool>().data());
    RunParallel(&parallel, ids.size(), 20 + store->dim(),
                [&](int64_t begin, int64_t end) {
                  store->ReadRows(ids, positions, refs, begin, end, missing,
                                  rows + begin * store->row_bytes());
                });
    store->KeepFound({{ids.begin(), ids.end()}, std::move(refs)});
    return absl::OkStatus();
  }

 private:
  // Fills `positions` with 0, 1, 2, ...
  static absl::Status CheckUnique(Span<const int64_t> ids,
                                  std::vector<int64_t>* positions) {
    std::vector<int64_t> unique;
    BatchUnique(ids, nullptr, &unique, *positions);
    for (int64_t i = 0; i < ids.size(); ++i) {
      if ((*positions)[i] == i) continue;
      return InvalidArgumentError("`ids` contains ", ids[i], " twice, at ",
                                  (*positions)[i], " and ", i, ".");
    }
    return absl::OkStatus();
  }
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
