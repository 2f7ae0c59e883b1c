#include <algorithm>
#include <memory>
#include <vector>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_collection_counters.h"
#include "tf_ops/kernels/embedding/embedding_collection_spec.h"
#include "tf_ops/kernels/embedding/table_kernel.h"
#include "tf_ops/kernels/embedding/unique_ids.h"

namespace lodestar {
namespace {

using Stores = CollectionStores<EmbeddingStore>;

// Outputs unique_ids and positions of each table, or nothing if `batch` is
// null. The plans of the ids are valid until the kernel returns. Requires: one
// item of `unique` per table.
absl::Status OutputUnique(OpKernelContext* ctx, const CollectionBatch* batch,
                          const ParallelFor* parallel,
                          std::vector<std::vector<int64_t>>* unique,
                          std::vector<Span<int64_t>>* positions,
                          std::vector<LookupPlan*>* plans) {
  OpOutputList unique_list;
  OpOutputList position_list;
  LODESTAR_TRY(ctx->output_list("unique_ids", &unique_list));
  LODESTAR_TRY(ctx->output_list("positions", &position_list));
  Tensor* output = nullptr;
  for (int t = 0; t < position_list.size(); ++t) {
    const int64_t count = batch == nullptr ? 0 : batch->num_ids(t);
    LODESTAR_TRY(position_list.allocate(t, {count}, &output));
    positions->push_back(FlatSpan<int64_t>(output));
  }
  if (batch != nullptr) {
    LODESTAR_TRY(batch->Deduplicate(unique, *positions, parallel));
  }
  for (int t = 0; t < unique_list.size(); ++t) {
    Tensor ids;
    plans->push_back(nullptr);
    LODESTAR_TRY(CopyUniqueIds(ctx, (*unique)[t], &ids, &plans->back()));
    unique_list.set(t, ids);
  }
  return absl::OkStatus();
}

class EmbeddingCollectionLookupOp : public CollectionKernel {
 public:
  using CollectionKernel::CollectionKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    Stores stores;
    LODESTAR_TRY(stores.Init(ctx, spec_));
    LODESTAR_TRY(stores.CheckHooks(ctx));
    CollectionInputs inputs;
    LODESTAR_TRY(inputs.Init(ctx, spec_));
    tensorflow::core::RefCountPtr<CollectionCounters> counters;
    LODESTAR_TRY(FindCounters(ctx, spec_, &counters));
    const bool training = spec_.training();
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    CollectionBatch batch;
    LODESTAR_TRY(inputs.MakeBatch(
        training ? CollectionBatch::Ids::kByTable : CollectionBatch::Ids::kRead,
        &parallel, &batch));
    std::vector<void*> rows;
    std::vector<int64_t*> winners;
    LODESTAR_TRY(inputs.AllocateRowsAndWinners(ctx, "rows", stores.dims(),
                                               &rows, &winners));
    std::vector<CollectionBatch::Table> tables(spec_.num_tables);
    for (int t = 0; t < spec_.num_tables; ++t) {
      tables[t].reads = {stores.store(t), stores.missing(t)};
    }
    std::vector<std::unique_ptr<char[]>> unique_rows;
    LODESTAR_TRY(FindOrInsertRows(ctx, batch, training, stores, &tables,
                                  &unique_rows, counters.get(), &parallel));
    batch.Lookup(tables, rows, winners, &parallel);
    return absl::OkStatus();
  }

 private:
  // Deduplicates the ids of each table, finds or creates their rows and reads
  // them into *unique_rows. Does nothing for a read-only lookup.
  absl::Status FindOrInsertRows(
      OpKernelContext* ctx, const CollectionBatch& batch, bool training,
      const Stores& stores, std::vector<CollectionBatch::Table>* tables,
      std::vector<std::unique_ptr<char[]>>* unique_rows,
      CollectionCounters* counters, const ParallelFor* parallel) const {
    const int num_tables = spec_.num_tables;
    std::vector<LookupPlan*> plans;
    std::vector<std::vector<int64_t>> unique(num_tables);
    std::vector<Span<int64_t>> positions;
    LODESTAR_TRY(OutputUnique(ctx, training ? &batch : nullptr, parallel,
                              &unique, &positions, &plans));
    if (!training) return absl::OkStatus();
    // Allocate everything except the rows now, because nothing may fail once
    // rows are created.
    CollectionBatch::Tally tally;
    if (counters != nullptr) {
      std::vector<int64_t> num_unique;
      for (const auto& ids : unique) num_unique.push_back(ids.size());
      batch.MakeTally(num_unique, &tally);
    }
    std::vector<EmbeddingStore::TableIds> table_ids;
    std::vector<std::vector<uint32_t>> occurrences(num_tables);
    std::vector<std::vector<char>> resident(num_tables);
    for (int t = 0; t < num_tables; ++t) {
      EmbeddingStore* const store = stores.store(t);
      const int64_t count = static_cast<int64_t>(unique[t].size());
      *plans[t] = store->PlanOf(std::vector<RowRef>(count));
      resident[t].resize(count);
      unique_rows->emplace_back(new char[count * store->row_bytes()]);
      if (store->counts_occurrences()) {
        occurrences[t] = CountOccurrences(positions[t], count);
      }
      table_ids.push_back({store,
                           unique[t],
                           plans[t]->refs,
                           resident[t].data(),
                           occurrences[t],
                           unique_rows->back().get(),
                           {},
                           stores.missing(t)});
    }
    LODESTAR_TRY(
        EmbeddingStore::FindOrInsert(table_ids, spec_.lookup, parallel));
    for (int t = 0; t < num_tables; ++t) {
      EmbeddingStore* const store = stores.store(t);
      const int64_t count = static_cast<int64_t>(unique[t].size());
      store->CountBatch(
          positions[t].size(), count,
          std::count(positions[t].begin(), positions[t].end(), kNoPosition));
      CollectionBatch::Table& table = (*tables)[t];
      table.has_rows = true;
      table.positions = positions[t];
      table.fetched = {store->type(), store->dim(), (*unique_rows)[t].get(),
                       count};
    }
    if (counters != nullptr) {
      batch.Count({positions.begin(), positions.end()}, resident, parallel,
                  &tally);
      counters->Add(tally.counts);
    }
    return absl::OkStatus();
  }
};

class EmbeddingCollectionUniqueOp : public CollectionKernel {
 public:
  using CollectionKernel::CollectionKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    CollectionInputs inputs;
    LODESTAR_TRY(inputs.Init(ctx, spec_));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    CollectionBatch batch;
    LODESTAR_TRY(
        inputs.MakeBatch(CollectionBatch::Ids::kByTable, &parallel, &batch));
    std::vector<std::vector<int64_t>> unique(spec_.num_tables);
    std::vector<Span<int64_t>> positions;
    std::vector<LookupPlan*> plans;
    return OutputUnique(ctx, &batch, &parallel, &unique, &positions, &plans);
  }
};

class EmbeddingCollectionPartitionBagsOp : public CollectionKernel {
 public:
  using CollectionKernel::CollectionKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    CollectionInputs inputs;
    LODESTAR_TRY(inputs.Init(ctx, spec_));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    CollectionBatch batch;
    LODESTAR_TRY(
        inputs.MakeBatch(CollectionBatch::Ids::kRead, &parallel, &batch));
    OpOutputList ids, row_splits, factors, places;
    LODESTAR_TRY(ctx->output_list("part_ids", &ids));
    LODESTAR_TRY(ctx->output_list("part_row_splits", &row_splits));
    LODESTAR_TRY(ctx->output_list("part_factors", &factors));
    LODESTAR_TRY(ctx->output_list("places", &places));
    std::vector<Span<int64_t>> place_spans;
    for (int f = 0; f < places.size(); ++f) {
      Tensor* output = nullptr;
      LODESTAR_TRY(
          places.allocate(f, {inputs.tensors()[f].ids.size()}, &output));
      place_spans.push_back(FlatSpan<int64_t>(output));
    }
    std::vector<std::vector<CollectionBatch::PartBags>> parts;
    LODESTAR_TRY(
        batch.PartitionBags(spec_.num_parts, &parts, place_spans, &parallel));
    int next = 0;
    for (const auto& of_feature : parts) {
      for (const CollectionBatch::PartBags& part : of_feature) {
        LODESTAR_TRY(Output(part.ids, next, &ids));
        LODESTAR_TRY(Output(part.row_splits, next, &row_splits));
        LODESTAR_TRY(Output(part.factors, next, &factors));
        ++next;
      }
    }
    return absl::OkStatus();
  }

 private:
  template <typename T>
  static absl::Status Output(const std::vector<T>& values, int place,
                             OpOutputList* list) {
    Tensor* output = nullptr;
    LODESTAR_TRY(
        list->allocate(place, {static_cast<int64_t>(values.size())}, &output));
    std::copy(values.begin(), values.end(), output->flat<T>().data());
    return absl::OkStatus();
  }
};

class EmbeddingCollectionGradientOp : public CollectionKernel {
 public:
  using CollectionKernel::CollectionKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    CollectionInputs inputs;
    LODESTAR_TRY(inputs.Init(ctx, spec_));
    std::vector<const void*> gradients;
    LODESTAR_TRY(inputs.ReadGradients(ctx, spec_.dims, &gradients));
    std::vector<const int64_t*> winners;
    LODESTAR_TRY(inputs.ReadWinners(ctx, spec_.dims, &winners));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    CollectionBatch batch;
    LODESTAR_TRY(inputs.MakeBatch(spec_.deduplicated
                                      ? CollectionBatch::Ids::kCount
                                      : CollectionBatch::Ids::kByTable,
                                  &parallel, &batch));
    std::vector<CollectionBatch::Sums> tables(spec_.num_tables);
    std::vector<std::vector<int64_t>> positions(tables.size());
    if (spec_.deduplicated) {
      LODESTAR_TRY(TakeUniqueIds(ctx, batch, &tables));
    } else {
      LODESTAR_TRY(FindUniqueIds(ctx, batch, &positions, &tables, &parallel));
    }
    OpOutputList sums;
    LODESTAR_TRY(ctx->output_list("sums", &sums));
    std::vector<SumTensor> sum_tensors(tables.size());
    for (size_t t = 0; t < tables.size(); ++t) {
      Tensor* output = nullptr;
      LODESTAR_TRY(
          sums.allocate(t, {tables[t].num_unique, spec_.dims[t]}, &output));
      LODESTAR_TRY(sum_tensors[t].Init(ctx, output));
      tables[t].type = sum_tensors[t].type();
      tables[t].dim = spec_.dims[t];
      tables[t].sums = sum_tensors[t].data();
    }
    LODESTAR_TRY(batch.SumGradients(gradients, winners, tables, &parallel));
    for (SumTensor& tensor : sum_tensors) LODESTAR_TRY(tensor.Round(&parallel));
    return absl::OkStatus();
  }

 private:
  // Uses inputs unique_ids and positions.
  absl::Status TakeUniqueIds(OpKernelContext* ctx, const CollectionBatch& batch,
                             std::vector<CollectionBatch::Sums>* tables) const {
    OpInputList unique_ids, positions;
    OpOutputList summed_ids;
    LODESTAR_TRY(ReadVectors(ctx, "unique_ids", &unique_ids));
    LODESTAR_TRY(ReadVectors(ctx, "positions", &positions));
    LODESTAR_TRY(ctx->output_list("summed_ids", &summed_ids));
    for (size_t t = 0; t < tables->size(); ++t) {
      CollectionBatch::Sums& table = (*tables)[t];
      table.positions = FlatSpan<int64_t>(positions[t]);
      table.num_unique = unique_ids[t].NumElements();
      LODESTAR_TRY(
          CheckTablePositions(batch, t, table.positions, table.num_unique));
      summed_ids.set(t, unique_ids[t]);
    }
    return absl::OkStatus();
  }

  // Deduplicates the ids.
  absl::Status FindUniqueIds(OpKernelContext* ctx, const CollectionBatch& batch,
                             std::vector<std::vector<int64_t>>* positions,
                             std::vector<CollectionBatch::Sums>* tables,
                             const ParallelFor* parallel) const {
    OpOutputList summed_ids;
    LODESTAR_TRY(ctx->output_list("summed_ids", &summed_ids));
    std::vector<Span<int64_t>> spans;
    for (size_t t = 0; t < tables->size(); ++t) {
      (*positions)[t].resize(batch.num_ids(t));
      spans.push_back((*positions)[t]);
      (*tables)[t].positions = (*positions)[t];
    }
    std::vector<std::vector<int64_t>> unique;
    LODESTAR_TRY(batch.Deduplicate(&unique, spans, parallel));
    for (size_t t = 0; t < tables->size(); ++t) {
      (*tables)[t].num_unique = static_cast<int64_t>(unique[t].size());
      Tensor ids;
      LookupPlan* plan = nullptr;
      LODESTAR_TRY(CopyUniqueIds(ctx, unique[t], &ids, &plan));
      summed_ids.set(t, ids);
    }
    return absl::OkStatus();
  }
};

using EmbeddingCollectionCountersOp =
    CollectionCountersKernel<CollectionCounters>;
using EmbeddingCollectionStatsOp = CollectionStatsKernel<CollectionCounters>;

LODESTAR_REGISTER(EmbeddingCollectionLookup);
LODESTAR_REGISTER(EmbeddingCollectionUnique);
LODESTAR_REGISTER(EmbeddingCollectionPartitionBags);
LODESTAR_REGISTER(EmbeddingCollectionGradient);
LODESTAR_REGISTER(EmbeddingCollectionCounters);
LODESTAR_REGISTER(EmbeddingCollectionStats);

}  // namespace
}  // namespace lodestar
