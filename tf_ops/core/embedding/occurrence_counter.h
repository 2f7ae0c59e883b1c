// Counts occurrences of ids per step, and admits ids to a row. Counts of
// resident ids are stored in the metadata of their rows; ids that wait for a
// row are counted here.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_OCCURRENCE_COUNTER_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_OCCURRENCE_COUNTER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/rows/admission.h"
#include "tf_ops/core/rows/admission_rule.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/table_policies.h"
#include "tf_ops/core/table/embedding_rows.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/core/table/table_step.h"

namespace lodestar {

// The planned change of one id that asks for admission.
struct PlannedOccurrence {
  int64_t index;
  uint32_t tag;
  uint32_t entry;        // in PendingIds, or kNoRow
  uint32_t occurrences;  // including this one
  bool fresh;            // first occurrence in the step
  bool admitted;
};

// A row to be added to a shard.
struct PlannedRow {
  int64_t index;       // of its id
  int64_t occurrence;  // index in the shard's plan; -1: none
  uint32_t frequency;  // initial frequency
};

// All rows to be added to one shard.
struct ShardPlan {
  std::vector<PlannedRow> rows;
  std::vector<uint32_t> tags;
  // Ids of these rows and ids that keep waiting. With admission only.
  std::vector<PlannedOccurrence> occurrences;

  void Keep(const std::vector<char>& kept);
};

class OccurrenceCounter {
 public:
  // Ids of a shard waiting for a row; null without admission.
  struct ShardPending {
    std::unique_ptr<PendingIds> ids;
    int64_t step = 0;  // with a sketch: the step of all these ids
  };
  // How a call counts and admits ids.
  struct Call {
    int64_t now = 0;
    bool count_frequency = false;
    bool admission = false;  // ids may need several occurrences
    LookupOptions::Admit admit = LookupOptions::Admit::kByPolicy;
    // Number of occurrences per id; empty: count once per step.
    Span<const uint32_t> occurrences = {};
  };

  // `step` is the table's step.
  OccurrenceCounter(const TablePolicies& policies, ShardedRows* rows,
                    const TableStep* step);

  // Returns false if every id is admitted at once.
  bool uses_admission() const {
    return policy_.kind != AdmissionPolicy::Kind::kAll;
  }

  // Initial frequency of a row whose id was not pending. Occurrences are added
  // once the row exists.
  static uint32_t FirstFrequency(const Call& call) {
    return call.count_frequency && call.occurrences.empty() ? 1 : 0;
  }

  // Counts each resident id once for step `now`, or its `occurrences`.
  // Thread-safe.
  void Touch(Span<const int64_t> ids, Span<const RowRef> refs, int64_t now,
             Span<const uint32_t> occurrences);
  // The same for a table with an eviction order. `members`: GroupByShard(ids).
  // Requires all locks.
  void TouchInOrder(Span<const int64_t> ids,
                    const ShardedRows::IndexLists& members,
                    Span<const RowRef> refs, int64_t now,
                    Span<const uint32_t> occurrences,
                    const ParallelFor* parallel);

  // Admission. Requires the locks of the ids' shards. From before the first
  // Plan until after the last Commit, the caller must also hold LockSketch
  // (empty without a sketch).
  std::unique_lock<Mutex> LockSketch() const;
  Status ReserveSketch();
  // Fills plan->occurrences, and keeps only admitted rows in the plan.
  void Plan(Span<const int64_t> ids, const Call& call, size_t shard,
            ShardPlan* plan);
  // Reserves memory for Commit. may_refuse: admitted ids may find no room
  // either.
  Status Reserve(size_t shard, const ShardPlan& plan, bool may_refuse);
  void Commit(Span<const int64_t> ids, int64_t now, size_t shard,
              const ShardPlan& plan);

  // Multiplies the frequencies of a shard's rows by `rate`, rounding down.
  // Frequencies of rows seen at step `now` stay above 0.
  static void Decay(double rate, int64_t now, RowShard* shard)
      LODESTAR_REQUIRES(shard->mutex);

  // Pending ids. Requires the lock of the shard.

  // Null without admission. With a sketch: the pending ids of one step.
  PendingIds* pending_ids(size_t shard) { return pending_[shard].ids.get(); }
  const PendingIds* pending_ids(size_t shard) const {
    return pending_[shard].ids.get();
  }
  int64_t bytes(size_t shard) const {
    return pending_ids(shard) == nullptr ? 0 : pending_ids(shard)->bytes();
  }
  // Number of ids pending at this step. With a sketch, ids of an earlier step
  // are counted by the sketch and dropped when the next id arrives.
  int64_t num_pending(size_t shard, int64_t step) const {
    return NonePending(shard, step) ? 0 : pending_ids(shard)->size();
  }
  // State of an id that is pending at this step, or an estimate of the sketch,
  // which does not store when the id was last seen.
  struct Counts {
    int64_t occurrences = 0;
    int64_t last_seen = -1;
  };
  Counts CountsOf(size_t shard, uint32_t tag, int64_t id, int64_t step) const;

  // Drops pending ids of a shard that were last seen more than max_age steps
  // before `now`. A sketch drops none. Allocates nothing.
  void Forget(size_t shard, int64_t max_age, int64_t now);

  // The methods below require all locks.

  // Calls fn(id, occurrences, last_seen) for each pending id. With a sketch,
  // only ids of this step are listed.
  template <typename Fn>
  void ForEachPending(int64_t step, const Fn& fn) const {
    for (const ShardPending& shard : pending_) {
      if (shard.ids == nullptr) continue;
      shard.ids->ForEach([&](int64_t id, uint32_t count, int64_t last_seen) {
        if (sketch_ == nullptr || last_seen == step) fn(id, count, last_seen);
      });
    }
  }
  // The sketch's counters; empty without a sketch.
  std::vector<uint8_t> sketch() const;
  // Exports the ids pending at out->step, ascending, and the sketch.
  void Export(EmbeddingRows* out) const;
  void Clear();

  // See CheckPending.
  Status Check(const EmbeddingRowsView& rows) const {
    return CheckPending(rows, policy_);
  }
  struct State {
    std::vector<ShardPending> pending;
    std::unique_ptr<CountingSketch> sketch;  // null without a sketch
  };
  Status Build(const EmbeddingRowsView& rows, State* state) const;
  // Takes all locks. Cannot fail.
  void Install(State* state);

  // Thread-safe.
  int64_t sketch_bytes() const;

 private:
  // Shared by all shards.
  struct Sketch {
    explicit Sketch(const AdmissionPolicy& policy)
        : counts(policy.num_counters, policy.num_hashes) {}

    Mutex mutex;
    CountingSketch counts LODESTAR_GUARDED_BY(mutex);
  };

  // Returns true if the row has not been counted yet for step `now`.
  bool IsToCount(const RowMeta* meta, int64_t now,
                 Span<const uint32_t> occurrences) const;
  // Counts a row. Requires the row lock or the shard's mutex.
  void Count(RowMeta* meta, int64_t now, int64_t i,
             Span<const uint32_t> occurrences) const;

  // Null without a sketch. Requires LockSketch.
  CountingSketch* held_sketch() {
    if (sketch_ == nullptr) return nullptr;
    sketch_->mutex.AssertHeld();
    return &sketch_->counts;
  }
  // Returns true if no id of the shard is pending at this step.
  bool NonePending(size_t shard, int64_t step) const {
    return pending_ids(shard) == nullptr ||
           (sketch_ != nullptr && pending_[shard].step != step);
  }

  std::unique_ptr<PendingIds> NewPending() const;

  const AdmissionPolicy policy_;
  const bool keeps_age_order_;  // of pending ids
  ShardedRows& rows_;
  const TableStep& step_;
  std::vector<ShardPending> pending_;  // by shard
  // Null without a sketch.
  const std::unique_ptr<Sketch> sketch_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_OCCURRENCE_COUNTER_H_
