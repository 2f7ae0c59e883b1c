// What a table is made of. EmbeddingStore is what one does with it; snapshots
// and restores know the parts themselves.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_

#include <atomic>
#include <cstdint>

#include "tf_ops/core/embedding/optimizer_binding.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/embedding/shared_rows.h"
#include "tf_ops/core/embedding/sightings.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

// What a table counts of what happens to it, in the order in which the op
// EmbeddingStats gives it out. Of training look-ups: ids, distinct ids of a
// batch, padding; and distinct ids with and without a row when they were looked
// up.
enum class Event {
  kIds,
  kUniqueIds,
  kPadding,
  kHits,
  kMisses,
  kInserts,
  kAdmitted,  // rows made by a sighting
  kRefused,   // ids of a call that found no room under the cap
  kEvicted,
  kRemoved,
  kGradientsDropped,
  kNonfiniteGradients,
};
constexpr int kNumEvents = 12;

// Thread-safe.
class TableEvents {
 public:
  void Add(Event event, int64_t count) {
    counts_[static_cast<int>(event)].fetch_add(count,
                                               std::memory_order_relaxed);
  }
  int64_t count(Event event) const {
    return counts_[static_cast<int>(event)].load(std::memory_order_relaxed);
  }
  void CopyFrom(const TableEvents& other) {
    for (int e = 0; e < kNumEvents; ++e) {
      counts_[e].store(other.count(static_cast<Event>(e)),
                       std::memory_order_relaxed);
    }
  }

 private:
  std::atomic<int64_t> counts_[kNumEvents] = {};
};

// What sightings are dated by. Thread-safe.
class TableStep {
 public:
  int64_t value() const { return value_.load(std::memory_order_relaxed); }
  // Someone else than the optimizer drives it.
  bool own() const { return own_.load(std::memory_order_relaxed); }
  void Set(int64_t value, bool own) {
    own_.store(own, std::memory_order_relaxed);
    value_.store(value, std::memory_order_relaxed);
  }
  void Release() { own_.store(false, std::memory_order_relaxed); }
  // By an optimizer.
  void Advance() {
    if (!own()) value_.fetch_add(1, std::memory_order_relaxed);
  }
  void MoveTo(int64_t value) {
    if (!own()) value_.store(value, std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> value_{0};
  std::atomic<bool> own_{false};
};

struct TableParts {
  TableParts(int dim, int num_shards, const RowInitializer& initializer,
             const TablePolicies& policies, RowType type)
      : policies(policies),
        initializer(initializer),
        rows(dim, type, num_shards, policies),
        optimizer(&rows),
        sightings(policies.admission, &rows),
        shared(policies.shared_rows, initializer, &rows, &optimizer) {}

  // A row that no one can see yet begins.
  void FillNewRow(int64_t id, const RowRef& ref) {
    RowStore& store = rows.shard(ref.shard).rows;
    rows.DrawInto(initializer, id, &store, ref.row);
    optimizer.FillSlots(&store, ref.row);
  }

  const TablePolicies policies;
  const RowInitializer initializer;
  TableStep step;
  TableEvents events;
  ShardedRows rows;
  OptimizerBinding optimizer;
  Sightings sightings;
  SharedRows shared;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_
