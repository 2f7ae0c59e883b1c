#include <vector>

#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_collection_util.h"

namespace lodestar {
namespace {

class EmbeddingCollectionPoolOp : public Kernel {
 public:
  explicit EmbeddingCollectionPoolOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Init(ctx));
    OP_REQUIRES_OK(ctx, attributes_.CheckWinners(ctx));
    std::vector<DataType> given, wanted;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("default_dtypes", &given));
    for (size_t f = 0; f < attributes_.features().size(); ++f) {
      if (has_default(f)) wanted.push_back(attributes_.dtype(f));
    }
    OP_REQUIRES(
        ctx, given == wanted,
        InvalidArgumentError("`default_rows` must have one row of its table's "
                             "dtype for each of the ",
                             wanted.size(), " features in `use_default`, got ",
                             given.size(), "."));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    FetchedTables tables;
    LODESTAR_TRY(tables.Init(ctx));
    LODESTAR_TRY(CheckHooksAndIds(ctx, tables));
    CollectionInputs inputs;
    LODESTAR_TRY(inputs.Init(ctx, attributes_));
    LODESTAR_TRY(TakeDefaultRows(ctx, tables, &inputs));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    CollectionBatch batch;
    LODESTAR_TRY(batch.Init(attributes_.features(), inputs.tensors(),
                            attributes_.num_tables(),
                            CollectionBatch::Ids::kRead, &parallel));
    LODESTAR_TRY(CheckFetched(batch, tables.tables()));
    std::vector<void*> rows;
    std::vector<int64_t*> winners;
    LODESTAR_TRY(AllocateRowsAndWinners(ctx, attributes_, inputs, "pooled",
                                        tables.dims(), &rows, &winners));
    batch.Lookup(tables.tables(), rows, winners, &parallel);
    return absl::OkStatus();
  }

 private:
  bool has_default(int f) const {
    return attributes_.features()[f].default_id.has_value();
  }

  static absl::Status CheckHooksAndIds(OpKernelContext* ctx,
                                       const FetchedTables& tables) {
    OpInputList hooks, unique_ids;
    LODESTAR_TRY(ctx->input_list("hooks", &hooks));
    LODESTAR_TRY(ctx->input_list("unique_ids", &unique_ids));
    for (int t = 0; t < hooks.size(); ++t) {
      const FetchedRows& fetched = tables.tables()[t].fetched;
      const TensorShape shape({0, fetched.dim});
      if (hooks[t].shape() != shape) {
        return InvalidArgumentError("`hooks[", t, "]` must have shape ",
                                    shape.DebugString(), ", got ",
                                    hooks[t].shape().DebugString(), ".");
      }
      LODESTAR_TRY(CheckRank(unique_ids[t], "unique_ids", 1));
      if (unique_ids[t].NumElements() != fetched.size) {
        return InvalidArgumentError("`rows[", t, "]` has ", fetched.size,
                                    " rows, but `unique_ids[", t, "]` has ",
                                    unique_ids[t].NumElements(), " ids.");
      }
    }
    return absl::OkStatus();
  }

  absl::Status TakeDefaultRows(OpKernelContext* ctx,
                               const FetchedTables& tables,
                               CollectionInputs* inputs) const {
    OpInputList rows;
    LODESTAR_TRY(ctx->input_list("default_rows", &rows));
    int next = 0;
    for (size_t f = 0; f < attributes_.features().size(); ++f) {
      if (!has_default(f)) continue;
      const CollectionFeature& feature = attributes_.features()[f];
      const Tensor& row = rows[next++];
      LODESTAR_TRY(CheckLikeRows(feature, "default_rows", row, TensorShape(),
                                 tables.tables()[feature.table].dim()));
      inputs->set_default_row(f, RowData(row));
    }
    return absl::OkStatus();
  }

  CollectionAttributes attributes_;
};

class EmbeddingCollectionPoolWeightsGradientOp : public Kernel {
 public:
  explicit EmbeddingCollectionPoolWeightsGradientOp(OpKernelConstruction* ctx)
      : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Init(ctx));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    FetchedTables tables;
    LODESTAR_TRY(tables.Init(ctx));
    return OutputWeightGradients(ctx, attributes_, tables.tables());
  }

 private:
  CollectionAttributes attributes_;
};

class EmbeddingCollectionCountOp : public Kernel {
 public:
  explicit EmbeddingCollectionCountOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Init(ctx));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    tensorflow::core::RefCountPtr<CollectionCounters> counters;
    LODESTAR_TRY(FindCounters(ctx, attributes_, ctx->input(0), &counters));
    CollectionInputs inputs;
    LODESTAR_TRY(inputs.Init(ctx, attributes_));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    CollectionBatch batch;
    LODESTAR_TRY(batch.Init(attributes_.features(), inputs.tensors(),
                            attributes_.num_tables(),
                            CollectionBatch::Ids::kCount, &parallel));
    OpInputList position_list, resident_list;
    LODESTAR_TRY(ctx->input_list("positions", &position_list));
    LODESTAR_TRY(ctx->input_list("resident", &resident_list));
    std::vector<Span<const int64_t>> positions;
    std::vector<std::vector<char>> resident;
    std::vector<int64_t> num_unique;
    for (int t = 0; t < attributes_.num_tables(); ++t) {
      LODESTAR_TRY(CheckRank(position_list[t], "positions", 1));
      LODESTAR_TRY(CheckRank(resident_list[t], "resident", 1));
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

 private:
  CollectionAttributes attributes_;
};

LODESTAR_REGISTER(EmbeddingCollectionCount);
LODESTAR_REGISTER(EmbeddingCollectionPool);
LODESTAR_REGISTER(EmbeddingCollectionPoolWeightsGradient);

}  // namespace
}  // namespace lodestar
