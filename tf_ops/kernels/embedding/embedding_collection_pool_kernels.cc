#include <vector>

#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_collection_counters.h"
#include "tf_ops/kernels/embedding/embedding_collection_spec.h"

namespace lodestar {
namespace {

using Tables = std::vector<CollectionBatch::Table>;

class EmbeddingCollectionPoolOp : public CollectionKernel {
 public:
  using CollectionKernel::CollectionKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    Tables tables;
    LODESTAR_TRY(ReadFetchedTables(ctx, &tables));
    LODESTAR_TRY(CheckHooksAndIds(ctx, tables));
    const std::vector<int> dims = DimsOf(tables);
    CollectionInputs inputs;
    LODESTAR_TRY(inputs.Init(ctx, spec_));
    LODESTAR_TRY(inputs.ReadDefaultRows(ctx, dims));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    CollectionBatch batch;
    LODESTAR_TRY(
        inputs.MakeBatch(CollectionBatch::Ids::kRead, &parallel, &batch));
    LODESTAR_TRY(CheckFetched(batch, tables));
    std::vector<void*> rows;
    std::vector<int64_t*> winners;
    LODESTAR_TRY(
        inputs.AllocateRowsAndWinners(ctx, "pooled", dims, &rows, &winners));
    batch.Lookup(tables, rows, winners, &parallel);
    return absl::OkStatus();
  }
};

class EmbeddingCollectionCountOp : public CollectionKernel {
 public:
  using CollectionKernel::CollectionKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    tensorflow::core::RefCountPtr<CollectionCounters> counters;
    LODESTAR_TRY(FindCounters(ctx, spec_, &counters));
    CollectionInputs inputs;
    LODESTAR_TRY(inputs.Init(ctx, spec_));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    CollectionBatch batch;
    LODESTAR_TRY(
        inputs.MakeBatch(CollectionBatch::Ids::kCount, &parallel, &batch));
    OpInputList position_list, resident_list;
    LODESTAR_TRY(ReadVectors(ctx, "positions", &position_list));
    LODESTAR_TRY(ReadVectors(ctx, "resident", &resident_list));
    std::vector<Span<const int64_t>> positions;
    std::vector<std::vector<char>> resident;
    std::vector<int64_t> num_unique;
    for (int t = 0; t < spec_.num_tables; ++t) {
      positions.push_back(FlatSpan<int64_t>(position_list[t]));
      const Span<const bool> had_row = FlatSpan<bool>(resident_list[t]);
      resident.emplace_back(had_row.begin(), had_row.end());
      num_unique.push_back(had_row.size());
      LODESTAR_TRY(CheckTablePositions(batch, t, positions[t], num_unique[t]));
    }
    CollectionBatch::Tally tally;
    batch.MakeTally(num_unique, &tally);
    batch.Count(positions, resident, &parallel, &tally);
    counters->Add(tally.counts);
    return absl::OkStatus();
  }
};

LODESTAR_REGISTER(EmbeddingCollectionCount);
LODESTAR_REGISTER(EmbeddingCollectionPool);

}  // namespace
}  // namespace lodestar
