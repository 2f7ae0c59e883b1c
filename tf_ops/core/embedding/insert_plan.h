// InsertPlan: adds rows to a table in two steps. Prepare may fail and changes
// nothing; Commit cannot fail. A call for several tables prepares all of them
// before it commits to any.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_INSERT_PLAN_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_INSERT_PLAN_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/occurrence_counter.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/embedding/table_parts.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/eviction_list.h"

namespace lodestar {

class InsertPlan {
 public:
  struct Options {
    // `now` becomes the last step of new rows. Prepare sets it, unless the
    // caller holds all locks.
    OccurrenceCounter::Call call;
    bool refuse_excess = false;  // fail if the cap is reached
    bool locked = false;         // the caller holds all locks
    // Overrides `now`, with one element per id.
    Span<const int64_t> last_seen = {};
    Span<const int64_t> frequencies = {};
    // Attached atomically with the new rows, unless the table has an optimizer
    // already.
    const AttachedOptimizer* optimizer = nullptr;
  };
  // Writes value and slots of the row of ids[index] before the row becomes
  // visible.
  using Fill = std::function<void(int64_t index, const RowRef& ref)>;

  // Creates rows for unique missing `ids`; refs[i] becomes the place of the row
  // of ids[i]. All arguments must outlive the plan.
  InsertPlan(Span<const int64_t> ids, Span<RowRef> refs, const Options& options,
             Fill fill, TableParts* table)
      : ids_(ids),
        refs_(refs),
        options_(options),
        fill_(std::move(fill)),
        table_(*table) {}
  InsertPlan(const InsertPlan&) = delete;
  InsertPlan& operator=(const InsertPlan&) = delete;

  // Locks the shards it needs until this is destroyed, unless the caller has
  // locked all, and reserves all memory. `indices`: ids without a row. Rows in
  // `refs` are not evicted. Returns FailedPrecondition if another optimizer is
  // attached, or if the cap is exceeded and the call or the table refuses that,
  // and ResourceExhausted if out of memory.
  Status Prepare(const std::vector<int64_t>& indices);
  void Commit(const ParallelFor* parallel);

 private:
  // Working state of MakeRoom.
  struct Head {
    EvictionKey key;
    size_t shard;
  };
  struct NewRow {
    uint64_t mixed_id;
    size_t in_plan;  // index in its shard's plan
  };

  bool Binds() const {
    return options_.optimizer != nullptr && !table_.optimizer.bound();
  }
  int64_t num_rows() const;
  Status PlanShards(const std::vector<int64_t>& indices);
  Status ReserveRoom();
  Status ReserveShard(size_t shard);
  // Evicts rows, and refuses new ones that still find no room.
  void MakeRoom();
  // Evicts the first `count` rows in eviction order, or all that may be
  // evicted.
  int64_t EvictFirst(int64_t count);
  void CommitShard(size_t shard);

  const Span<const int64_t> ids_;
  const Span<RowRef> refs_;
  Options options_;
  const Fill fill_;
  TableParts& table_;
  std::optional<ShardLocks> locks_;
  std::unique_lock<Mutex> sketch_lock_;
  std::optional<AttachedOptimizer> optimizer_;  // to be attached
  std::vector<ShardPlan> plans_;  // by shard; empty: nothing to commit
  int64_t excess_ = 0;            // rows above the cap
  std::vector<EvictionList::Victims> victims_;
  std::vector<Head> heads_;
  std::vector<NewRow> new_rows_;
  std::vector<char> kept_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_INSERT_PLAN_H_
