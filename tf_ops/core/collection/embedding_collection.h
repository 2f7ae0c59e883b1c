// Many features over few tables, looked up together: the ids of a table become
// distinct once over all its features, and one parallel loop pools the bags of
// all features.

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

// How a feature reads its table.
struct CollectionFeature {
  std::string name;  // for errors; empty: they name none
  int64_t table = 0;
  bool pooled = true;  // false: a row for each id
  Combiner combiner = Combiner::kMean;
  std::optional<int64_t> salt;  // the table knows id as Mix64(id xor salt)
  // Before salting.
  std::optional<int64_t> padding_id;
  std::optional<int64_t> default_id;
  int64_t max_length = 0;  // ids of a bag after these are left out; 0: none
};

// The id under which the table knows `id`.
int64_t TableId(const CollectionFeature& feature, int64_t id);

// A batch of one feature.
struct FeatureTensors {
  Span<const int64_t> ids;
  Span<const int64_t> row_splits;  // pooled features only
  Span<const float> weights;       // pooled features only; empty: all 1
  // Of a table whose rows were fetched, the row of an empty bag; null: zeros.
  const void* default_row = nullptr;
};

// What a feature's lookups were.
struct FeatureCounts {
  int64_t ids = 0;  // padding included, what max_length cuts off not
  int64_t padding = 0;
  int64_t unique = 0;
  int64_t hits = 0;  // ids that had a row before
};

// A batch of all features. Every method runs its loops on `parallel`; a result
// never depends on it.
class CollectionBatch {
 public:
  // A table, and what FindOrInsert gave for its distinct ids, or their rows.
  struct Table {
    const EmbeddingStore* store = nullptr;  // null: the rows were fetched
    Missing missing;
    Span<const int64_t> positions;
    Span<const RowRef> refs;
    FetchedRows fetched;

    int dim() const { return store == nullptr ? fetched.dim : store->dim(); }
    RowType type() const {
      return store == nullptr ? fetched.type : store->type();
    }
  };
  // A table's gradient: the sum for each distinct id, [num_unique, dim], of
  // ComputeType(type). `type`: of the gradients of its features.
  struct Sums {
    RowType type = RowType::kFloat32;
    Span<const int64_t> positions;
    int64_t num_unique = 0;
    int dim = 0;
    void* sums = nullptr;
  };

  CollectionBatch() = default;
  CollectionBatch(const CollectionBatch&) = delete;
  CollectionBatch& operator=(const CollectionBatch&) = delete;

  // What will be done with the ids.
  enum class Ids {
    kCount,    // nothing, but for their number
    kRead,     // looked up on the way
    kByTable,  // made distinct: those of a table lie one after another
  };
  // Checks `tensors` and takes the ids as the tables know them.
  // `features` and the tensors must outlive this.
  // InvalidArgument, naming the feature: see CheckBags.
  Status Init(const std::vector<CollectionFeature>& features,
              const std::vector<FeatureTensors>& tensors, int64_t num_tables,
              Ids ids, const ParallelFor* parallel);

  // Ids that are left of a table's features.
  int64_t num_ids(int64_t table) const { return num_ids_[table]; }

  // What is left of feature f, as its table sees it; of one that is not pooled
  // only the ids. With Ids::kCount ids are not the table's.
  const Bags& bags(int64_t f) const { return parts_[f].bags; }
  // Whether f has a row for each of its ids, also as each of its bags is one.
  bool has_row_of_each_id(int64_t f) const { return !parts_[f].pooled; }

  // Distinct ids of each table in order of first occurrence, features in
  // order, without padding; positions[t] gets the index there of each of the
  // num_ids(t) ids, kNoPosition for padding.
  // ResourceExhausted: out of memory.
  // REQUIRES: Ids::kByTable.
  Status Deduplicate(std::vector<std::vector<int64_t>>* unique,
                     const std::vector<Span<int64_t>>& positions,
                     const ParallelFor* parallel) const;

  // Rows of each feature, of its table's type: [bags, dim], or [ids, dim] if
  // not pooled. winners[f]:
  // as PoolFound's, null for other combiners than max. `found`: the tables'
  // positions and refs are given; else rows that were not fetched are looked up
  // on the way.
  // REQUIRES: not Ids::kCount.
  void Lookup(const std::vector<Table>& tables, bool found,
              const std::vector<void*>& rows,
              const std::vector<int64_t*>& winners,
              const ParallelFor* parallel) const;

  // What was looked up, by feature. num_unique[t]: distinct ids;
  // resident[t][u]: whether unique id u had a row before. Count allocates
  // nothing: a Tally has all the room. REQUIRES: positions as for SumGradients.
  struct Tally {
    std::vector<FeatureCounts> counts;
    std::vector<std::vector<uint64_t>> seen;  // a bit an id, by feature
  };
  void MakeTally(const std::vector<int64_t>& num_unique, Tally* tally) const;
  void Count(const std::vector<Span<const int64_t>>& positions,
             const std::vector<std::vector<char>>& resident,
             const ParallelFor* parallel, Tally* tally) const;

  // Sums the gradients of equal ids of a table, features in order, each in
  // batch order. gradients[f]: shaped as the rows that Lookup gave.
  // ResourceExhausted: out of memory.
  // REQUIRES: num_ids(t) positions, each kNoPosition or in [0, num_unique).
  Status SumGradients(const std::vector<const void*>& gradients,
                      const std::vector<const int64_t*>& winners,
                      const std::vector<Sums>& tables,
                      const ParallelFor* parallel) const;

  // A feature's share in the part of a table that lies in one place.
  struct PartBags {
    std::vector<int64_t> ids;         // as the table knows them
    std::vector<int64_t> row_splits;  // [bags + 1]
    std::vector<float> factors;       // one an id
  };
  // Shares the ids of features out to the parts of their tables (PartOfId):
  // sums of rows times factors, over all parts, are the pooled rows. parts[f]:
  // one for each part. places[f]: of each id of tensors[f] the index among the
  // ids of all parts, one part after another, -1 for what max_length leaves
  // out. Padding is an id of factor 0 in part 0.
  // ResourceExhausted: out of memory.
  // REQUIRES: not Ids::kCount; pooled features with another combiner than max,
  // and without a default id.
  Status PartitionBags(int64_t num_parts,
                       std::vector<std::vector<PartBags>>* parts,
                       const std::vector<Span<int64_t>>& places,
                       const ParallelFor* parallel) const;

  // gradients[f], of its table's type -> weight_gradients[f], one number for
  // each of tensors[f].ids, of the features where the latter is not null.
  // Positions are read of tables whose rows were fetched. REQUIRES: not
  // Ids::kCount.
  void WeightGradients(const std::vector<Table>& tables,
                       const std::vector<const void*>& gradients,
                       const std::vector<float*>& weight_gradients,
                       const ParallelFor* parallel) const;

 private:
  // A feature's batch as its table sees it.
  struct Part {
    const CollectionFeature* feature = nullptr;
    FeatureTensors tensors;
    Bags bags;           // of a feature that is not pooled, only the ids
    bool pooled = true;  // false, too, where each bag is one id: its row
    int64_t offset = 0;  // of its ids among those of the table
    int64_t padding_id = 0;
    int64_t default_id = 0;
    std::vector<int64_t> row_splits;  // if max_length cut any bag
    std::vector<float> weights;       // likewise

    bool truncated() const { return !row_splits.empty(); }
    int64_t num_items() const { return pooled ? bags.size() : bags.ids.size(); }
  };
  // Bags of a feature, or ids of one that is not pooled: about as much work in
  // each task.
  struct Task {
    int64_t part;
    int64_t begin;
    int64_t end;
  };

  void Truncate(Part* part) const;
  // Whether the bags of a pooled feature read, and train, as their ids do.
  static bool IsOneIdEach(const Part& part);
  void MakeTasks();
  void TakeIds(Ids ids, const ParallelFor* parallel);
  void CopyIds(const Task& task, int64_t* ids) const;
  // The ids of a task.
  static void IdRange(const Part& part, const Task& task, int64_t* begin,
                      int64_t* end);
  static void PartitionFeature(const Part& part, PartBags* parts,
                               int64_t num_parts, Span<int64_t> places);
  void LookupRows(const Task& task, const Table& table, bool found, void* rows,
                  int64_t* winners) const;
  // A part of a table's sums (GradientSums). T: the table's type.
  template <typename T>
  void SumPart(int64_t t, int64_t part, int64_t num_parts,
               const std::vector<const void*>& gradients,
               const std::vector<const int64_t*>& winners,
               const ComputeOf<T>* factors, const Sums& table) const;
  // read(begin, count, rows) copies the rows of ids [begin, begin + count).
  template <typename T, typename Read>
  void WeightGradientsOf(const Task& task, int dim, const T* gradients,
                         float* weight_gradients, const Read& read) const;
  // The positions of a part's ids.
  static Span<const int64_t> PositionsOf(const Part& part, const Table& table) {
    return table.positions.subspan(part.offset, part.bags.ids.size());
  }
  static int WidestOf(const std::vector<Table>& tables);
  // body(task) for all tasks; `cost`: nanoseconds an id. As RunParallel, it
  // allocates nothing itself and body must not throw.
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
    return ResourceExhausted("out of memory for the ids of a batch");
  }

  std::vector<Part> parts_;
  std::vector<Task> tasks_;
  std::vector<int64_t> num_ids_;  // by table
  // By table, the ids that are not read from the tensors themselves.
  std::vector<std::unique_ptr<int64_t[]>> table_ids_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_COLLECTION_EMBEDDING_COLLECTION_H_
