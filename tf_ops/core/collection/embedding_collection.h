// Lookup of many features in few tables. Ids are deduplicated once per table
// over all its features, and one parallel loop pools the bags of all features.

#ifndef LODESTAR_TF_OPS_CORE_COLLECTION_EMBEDDING_COLLECTION_H_
#define LODESTAR_TF_OPS_CORE_COLLECTION_EMBEDDING_COLLECTION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_pool.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// A feature and how it reads its table.
struct CollectionFeature {
  std::string name;  // for errors; may be empty
  int64_t table = 0;
  bool pooled = true;  // false: one row per id
  Combiner combiner = Combiner::kMean;
  std::optional<int64_t> salt;  // the table's key is Mix64(id xor salt)
  // Ids before salting.
  std::optional<int64_t> padding_id;
  std::optional<int64_t> default_id;
  int64_t max_length = 0;  // ids per bag; the rest is dropped. 0: no limit
};

// Adds the name of the feature, if it has one, to an error.
template <typename AnyStatus>
AnyStatus InFeature(const CollectionFeature& feature, const AnyStatus& status) {
  if (feature.name.empty()) return status;
  return Prefixed(status, "feature '", feature.name, "': ");
}

// Returns the table's key of `id`.
int64_t TableId(const CollectionFeature& feature, int64_t id);

// The batch of one feature.
struct FeatureTensors {
  Span<const int64_t> ids;
  Span<const int64_t> row_splits;  // pooled features only
  Span<const float> weights;       // pooled features only; empty: all 1
  // If the table's rows were fetched, the row of an empty bag; null: zeros.
  const void* default_row = nullptr;
};

// Lookup statistics of a feature.
struct FeatureCounts {
  int64_t ids = 0;  // with padding, without ids that max_length drops
  int64_t padding = 0;
  int64_t unique = 0;
  int64_t hits = 0;  // ids that already had a row
};

// A batch of all features. Results do not depend on `parallel`.
class CollectionBatch {
 public:
  // A table, the rows of its unique ids, or both.
  struct Table {
    StoreReads reads;  // without a store: all rows were fetched
    bool has_rows = false;
    FetchedRows fetched;            // with has_rows
    Span<const int64_t> positions;  // with has_rows

    int dim() const { return has_rows ? fetched.dim : reads.store->dim(); }
    RowType type() const {
      return has_rows ? fetched.type : reads.store->type();
    }
  };
  // The gradient of a table: one sum per unique id, [num_unique, dim].
  // `type` is the type of its features' gradients.
  struct Sums {
    RowType type = RowType::kFloat32;
    Span<const int64_t> positions;
    int64_t num_unique = 0;
    int dim = 0;
    float* sums = nullptr;
  };

  CollectionBatch() = default;
  CollectionBatch(const CollectionBatch&) = delete;
  CollectionBatch& operator=(const CollectionBatch&) = delete;

  // How the ids will be used.
  enum class Ids {
    kCount,    // only their number is used
    kRead,     // looked up on the fly
    kByTable,  // deduplicated: the ids of a table are contiguous
  };
  // Checks `tensors` and converts the ids to table keys. `features` and the
  // tensors must outlive this object. Returns InvalidArgument, with the
  // feature's name, as CheckBags does.
  Status Init(const std::vector<CollectionFeature>& features,
              const std::vector<FeatureTensors>& tensors, int64_t num_tables,
              Ids ids, const ParallelFor* parallel);

  // Number of ids of a table's features, after truncation.
  int64_t num_ids(int64_t table) const { return num_ids_[table]; }

  // The truncated bags of feature f with table keys; for features that are not
  // pooled only the ids. With Ids::kCount the ids are not converted.
  const Bags& bags(int64_t f) const { return parts_[f].bags; }
  // Whether f produces one row per id, including the case that each bag is one
  // id.
  bool has_row_of_each_id(int64_t f) const { return !parts_[f].pooled; }

  // Returns the unique ids of each table in order of first occurrence over its
  // features in order, without padding. Sets positions[t] to the index of each
  // of the num_ids(t) ids in them, kNoPosition for padding. Returns
  // ResourceExhausted if out of memory. Requires: Ids::kByTable.
  Status Deduplicate(std::vector<std::vector<int64_t>>* unique,
                     const std::vector<Span<int64_t>>& positions,
                     const ParallelFor* parallel) const;

  // Writes the rows of each feature, of its table's type: [bags, dim], or [ids,
  // dim] if not pooled. winners[f] is as for PoolFetched, null unless the
  // combiner is max. Tables without rows are looked up on the fly. Requires:
  // not Ids::kCount.
  void Lookup(const std::vector<Table>& tables, const std::vector<void*>& rows,
              const std::vector<int64_t*>& winners,
              const ParallelFor* parallel) const;

  // Lookup statistics by feature. num_unique[t]: number of unique ids.
  // resident[t][u]: whether unique id u already had a row. MakeTally allocates
  // all memory that Count needs. Requires: positions as for SumGradients.
  struct Tally {
    std::vector<FeatureCounts> counts;
    std::vector<std::vector<uint64_t>> seen;  // one bit per id, by feature
  };
  void MakeTally(const std::vector<int64_t>& num_unique, Tally* tally) const;
  void Count(const std::vector<Span<const int64_t>>& positions,
             const std::vector<std::vector<char>>& resident,
             const ParallelFor* parallel, Tally* tally) const;

  // Sums the gradients of equal ids of a table, features in order, each in
  // batch order. gradients[f] has the shape of the rows that Lookup wrote.
  // Returns ResourceExhausted if out of memory. Requires: num_ids(t) positions,
  // each kNoPosition or in [0, num_unique).
  Status SumGradients(const std::vector<const void*>& gradients,
                      const std::vector<const int64_t*>& winners,
                      const std::vector<Sums>& tables,
                      const ParallelFor* parallel) const;

  // The ids of a feature in one part of its table.
  struct PartBags {
    std::vector<int64_t> ids;         // table keys
    std::vector<int64_t> row_splits;  // [bags + 1]
    std::vector<float> factors;       // one per id
  };
  // Partitions the ids of features by PartOfId. The pooled rows are the sums,
  // over all parts, of rows times factors. parts[f] has one entry per part.
  // places[f] has, for each id of tensors[f], its index in the concatenated ids
  // of all parts, -1 if max_length drops it. Padding becomes an id with factor
  // 0 in part 0. Returns ResourceExhausted if out of memory. Requires: not
  // Ids::kCount; features are pooled, their combiner is not max, and they have
  // no default id.
  Status PartitionBags(int64_t num_parts,
                       std::vector<std::vector<PartBags>>* parts,
                       const std::vector<Span<int64_t>>& places,
                       const ParallelFor* parallel) const;

 private:
  // The batch of a feature, with table keys.
  struct Part {
    const CollectionFeature* feature = nullptr;
    FeatureTensors tensors;
    Bags bags;           // only the ids if the feature is not pooled
    bool pooled = true;  // also false if each bag is one id
    int64_t offset = 0;  // of its ids among those of the table
    int64_t padding_id = 0;
    int64_t default_id = 0;
    std::vector<int64_t> row_splits;  // if max_length truncated a bag
    std::vector<float> weights;       // if max_length truncated a bag

    bool truncated() const { return !row_splits.empty(); }
    int64_t num_items() const { return pooled ? bags.size() : bags.ids.size(); }
  };
  // A range of bags, or of ids if the feature is not pooled. Tasks have similar
  // amounts of work.
  struct Task {
    int64_t part;
    int64_t begin;
    int64_t end;
  };

  void Truncate(Part* part) const;
  // Whether each bag of a pooled feature equals its one id, in lookup and
  // training.
  static bool IsOneIdEach(const Part& part);
  void MakeTasks();
  void TakeIds(Ids ids, const ParallelFor* parallel);
  // Whether the features of two tables have the same table keys, in the same
  // memory and with the same padding.
  static bool HaveSameIds(const std::vector<const Part*>& a,
                          const std::vector<const Part*>& b);
  // See Deduplicate. `padded`: a feature has a padding id. May throw
  // std::bad_alloc.
  static void DeduplicateTable(const std::vector<const Part*>& parts,
                               int64_t num_ids, bool padded,
                               std::vector<int64_t>* unique,
                               Span<int64_t> positions);
  void CopyIds(const Task& task, int64_t* ids) const;
  // The range of ids of a task.
  static void IdRange(const Part& part, const Task& task, int64_t* begin,
                      int64_t* end);
  static void PartitionFeature(const Part& part, PartBags* parts,
                               int64_t num_parts, Span<int64_t> places);
  void LookupRows(const Task& task, const Table& table, void* rows,
                  int64_t* winners) const;
  // Computes one part of a table's sums (GradientSums). T: the table's type.
  template <typename T>
  void SumPart(int64_t t, int64_t part, int64_t num_parts,
               const std::vector<const void*>& gradients,
               const std::vector<const int64_t*>& winners, const float* factors,
               const Sums& table) const;
  // The positions of the ids of a feature.
  template <typename AnyTable>
  static Span<const int64_t> PositionsOf(const Part& part,
                                         const AnyTable& table) {
    return table.positions.subspan(part.offset, part.bags.ids.size());
  }
  static int WidestOf(const std::vector<Table>& tables);
  // Calls body(task) for all tasks. `cost` is in nanoseconds per id. As in
  // RunParallel, does not allocate, and body must not throw.
  template <typename Body>
  void ForEachTask(int64_t cost, const ParallelFor* parallel,
                   const Body& body) const {
    int64_t ids = 0;
    for (int64_t count : num_ids_) ids += count;
    const int64_t num_tasks = static_cast<int64_t>(tasks_.size());
    if (num_tasks == 0) return;
    RunParallel(parallel, num_tasks, (ids / num_tasks + 1) * cost,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) body(tasks_[i]);
                });
  }
  // RunParallel for a body that may run out of memory.
  template <typename Body>
  static Status RunAllocating(const ParallelFor* parallel, int64_t total,
                              int64_t cost, const Body& body) {
    std::atomic<bool> failed{false};
    RunParallel(parallel, total, cost, [&](int64_t begin, int64_t end) {
      try {
        body(begin, end);
      } catch (const std::bad_alloc&) {
        failed.store(true, std::memory_order_relaxed);
      }
    });
    if (!failed.load(std::memory_order_relaxed)) return Status();
    return ResourceExhausted("out of memory for the ids of a batch.");
  }

  std::vector<Part> parts_;
  std::vector<Task> tasks_;
  std::vector<int64_t> num_ids_;  // by table
  // By table: converted ids. Empty where the ids are read from the tensors.
  std::vector<std::unique_ptr<int64_t[]>> table_ids_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_COLLECTION_EMBEDDING_COLLECTION_H_
