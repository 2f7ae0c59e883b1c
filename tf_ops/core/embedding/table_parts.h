// What a table is made of. EmbeddingStore is what one does with it; snapshots
// and restores know the parts themselves.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "tf_ops/core/embedding/optimizer_binding.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/embedding/shared_rows.h"
#include "tf_ops/core/embedding/sightings.h"
#include "tf_ops/core/embedding/table_step.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

// What a table counts of what happens to it, in the order in which the op
// EmbeddingStats gives it out. Of training lookups: ids, distinct ids of a
// batch, padding; and distinct ids with and without a row when they were looked
// up. Of lookups that only read: each id that is no padding, with and without
// a row.
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
  kReadHits,
  kReadMisses,
};
constexpr int kNumEvents = 14;

// Ids of a lookup that only reads.
struct ReadCounts {
  int64_t hits = 0;
  int64_t misses = 0;
  ReadCounts& operator+=(const ReadCounts& other) {
    hits += other.hits;
    misses += other.misses;
    return *this;
  }
};

// Thread-safe.
class TableEvents {
 public:
  void Add(Event event, int64_t count) {
    counts_->of[static_cast<int>(event)].fetch_add(count,
                                                   std::memory_order_relaxed);
  }
  // Once a batch. Many threads read one table at once, so each adds to a cache
  // line that it shares with few.
  void AddReads(const ReadCounts& reads) {
    static thread_local const size_t line =
        std::hash<std::thread::id>()(std::this_thread::get_id()) % kLines;
    Reads& shared = counts_->reads[line];
    shared.hits.fetch_add(reads.hits, std::memory_order_relaxed);
    shared.misses.fetch_add(reads.misses, std::memory_order_relaxed);
  }
  int64_t count(Event event) const {
    int64_t count =
        counts_->of[static_cast<int>(event)].load(std::memory_order_relaxed);
    for (const Reads& line : counts_->reads) {
      if (event == Event::kReadHits) {
        count += line.hits.load(std::memory_order_relaxed);
      } else if (event == Event::kReadMisses) {
        count += line.misses.load(std::memory_order_relaxed);
      }
    }
    return count;
  }
  // Both count as one from here on: a table that takes the place of another
  // misses nothing that is read of the other meanwhile.
  // REQUIRES: no other thread uses this one yet.
  void Share(const TableEvents& other) { counts_ = other.counts_; }

 private:
  static constexpr int kLines = 16;
  struct alignas(64) Reads {
    std::atomic<int64_t> hits{0};
    std::atomic<int64_t> misses{0};
  };
  struct Counts {
    std::atomic<int64_t> of[kNumEvents] = {};
    Reads reads[kLines];
  };

  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

struct TableParts {
  TableParts(int dim, int num_shards, const RowInitializer& initializer,
             const TablePolicies& policies, RowType type)
      : policies(policies),
        initializer(initializer),
        rows(dim, type, num_shards, policies),
        optimizer(&rows),
        sightings(policies.admission, &rows, &step),
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
  mutable TableEvents events;  // who only reads counts, too
  ShardedRows rows;
  OptimizerBinding optimizer;
  Sightings sightings;
  SharedRows shared;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_TABLE_PARTS_H_
