// InsertPlan: rows on their way into a table, in two parts: Prepare, which may
// fail and changes nothing, and Commit, which cannot. A call for several tables
// prepares all of them before it commits to any.

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
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/embedding/sightings.h"
#include "tf_ops/core/embedding/table_parts.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/eviction_list.h"

namespace lodestar {

class InsertPlan {
 public:
  struct Options {
    // `now` is when the new rows were last seen. Prepare sets it unless the
    // caller holds all locks.
    Sightings::Call call;
    bool refuse_excess = false;  // fail where the cap binds
    bool locked = false;         // the caller holds all locks
    // In place of what the call says, a number for each of the ids.
    Span<const int64_t> last_seen = {};
    Span<const int64_t> frequencies = {};
    // Bound as the rows come, if the table has none yet: both or nothing.
    const AttachedOptimizer* optimizer = nullptr;
  };
  // fill(index, ref) writes value and slots of the row of ids[index] before
  // anyone can see them.
  using Fill = std::function<void(int64_t index, const RowRef& ref)>;

  // Rows for those of distinct `ids` that have none; refs[i] is where the row
  // of ids[i] is. All that it is given has to live as long as this.
  InsertPlan(Span<const int64_t> ids, Span<RowRef> refs, const Options& options,
             Fill fill, TableParts* table)
      : ids_(ids),
        refs_(refs),
        options_(options),
        fill_(std::move(fill)),
        table_(*table) {}
  InsertPlan(const InsertPlan&) = delete;
  InsertPlan& operator=(const InsertPlan&) = delete;

  // Locks the shards it needs, until this ends, unless the caller has, and
  // reserves all memory.
  // `indices`: of ids that have no row. Rows in `refs` will not be evicted.
  // FailedPrecondition: another optimizer is bound, or more rows than the cap.
  // ResourceExhausted: out of memory.
  Status Prepare(const std::vector<int64_t>& indices);
  void Commit(const ParallelFor* parallel);

 private:
  // What MakeRoom works with.
  struct Head {
    EvictionKey key;
    size_t shard;
  };
  struct NewRow {
    uint64_t mixed_id;
    size_t in_plan;  // its number in its shard's
  };

  bool Binds() const {
    return options_.optimizer != nullptr && !table_.optimizer.bound();
  }
  int64_t num_rows() const;
  Status PlanShards(const std::vector<int64_t>& indices);
  Status ReserveRoom();
  Status ReserveShard(size_t shard);
  // Evicts, and refuses what finds no room even so.
  void MakeRoom();
  // Evicts the `count` rows that go first, or all that may go.
  int64_t EvictFirst(int64_t count);
  void CommitShard(size_t shard);

  const Span<const int64_t> ids_;
  const Span<RowRef> refs_;
  Options options_;
  const Fill fill_;
  TableParts& table_;
  std::optional<ShardLocks> locks_;
  std::unique_lock<Mutex> sketch_lock_;
  std::optional<AttachedOptimizer> optimizer_;  // to be bound
  std::vector<ShardPlan> plans_;  // by shard; empty: there is nothing to commit
  int64_t excess_ = 0;            // rows above the cap
  std::vector<EvictionList::Victims> victims_;
  std::vector<Head> heads_;
  std::vector<NewRow> new_rows_;
  std::vector<char> kept_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_INSERT_PLAN_H_
