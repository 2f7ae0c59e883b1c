// Sightings: who was seen in which step, and how often; of ids that have a row,
// in its metadata; of ids that wait for one, here.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_SIGHTINGS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_SIGHTINGS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_rows.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/embedding/table_step.h"
#include "tf_ops/core/rows/admission.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

// What a lookup does with ids that have no row.
struct SightingOptions {
  // Who gets a row.
  enum class Admit {
    kByPolicy,
    kAll,   // at once
    kNone,  // only sightings are counted
  };
  bool insert = false;  // make rows of ids that have none
  bool count_sightings = false;
  Admit admit = Admit::kByPolicy;
};

// What becomes of an id that admission was asked for.
struct PlannedSighting {
  int64_t index;
  uint32_t tag;
  uint32_t entry;      // in PendingIds, or kNoRow
  uint32_t sightings;  // this one included
  bool fresh;          // the first of the step
  bool admitted;
};

// A row that a shard is to get.
struct PlannedRow {
  int64_t index;       // of its id
  int64_t sighting;    // in the shard's; -1: none
  uint32_t frequency;  // that it begins with
};

// The rows that one shard is to get.
struct ShardPlan {
  std::vector<PlannedRow> rows;
  std::vector<uint32_t> tags;
  // With admission only: of these rows, and of ids that go on waiting.
  std::vector<PlannedSighting> sightings;

  void Keep(const std::vector<char>& kept);
};

// Whether that is more than max_age steps ago.
inline bool IsOlder(int64_t last_seen, int64_t now, int64_t max_age) {
  return static_cast<__int128>(now) - last_seen > max_age;
}

class Sightings {
 public:
  // The ids of a shard that wait for a row; null: none ever does.
  struct ShardPending {
    std::unique_ptr<PendingIds> ids;
    int64_t step = 0;  // of all of them, with a sketch
  };
  // How a call sees ids.
  struct Call {
    int64_t now = 0;
    bool count_sightings = false;
    bool admission = false;  // of which an id may need several
    SightingOptions::Admit admit = SightingOptions::Admit::kByPolicy;
    // As many sightings of each id; empty: one a step.
    Span<const uint32_t> occurrences = {};
  };

  // `step` is the table's.
  Sightings(const AdmissionPolicy& policy, ShardedRows* rows,
            const TableStep* step);

  // False: every id is admitted, and none waits.
  bool uses_admission() const {
    return policy_.kind != AdmissionPolicy::Kind::kAll;
  }

  // That of a row whose id has not waited. Occurrences are counted when the row
  // is there.
  static uint32_t FirstFrequency(const Call& call) {
    return call.count_sightings && call.occurrences.empty() ? 1 : 0;
  }

  // Rows, by anyone: counts a sighting of each at step `now`, once; or its
  // `occurrences`.
  void Touch(Span<const int64_t> ids, Span<const RowRef> refs, int64_t now,
             Span<const uint32_t> occurrences);
  // The same of rows that go in an order, under all locks; `members` from
  // GroupByShard(ids).
  void TouchInOrder(Span<const int64_t> ids,
                    const ShardedRows::IndexLists& members,
                    Span<const RowRef> refs, int64_t now,
                    Span<const uint32_t> occurrences,
                    const ParallelFor* parallel);

  // Ids that ask for a row. With admission, and with the locks of their shards;
  // from before the first Plan to after the last Commit that of the sketch,
  // too, which is none where there is no sketch.
  std::unique_lock<Mutex> LockSketch() const;
  Status ReserveSketch();
  // Fills sightings, and keeps the ids that are admitted.
  void Plan(Span<const int64_t> ids, const Call& call, size_t shard,
            ShardPlan* plan);
  // Memory for Commit. may_refuse: even who is admitted may find no room.
  Status Reserve(size_t shard, const ShardPlan& plan, bool may_refuse);
  void Commit(Span<const int64_t> ids, int64_t now, size_t shard,
              const ShardPlan& plan);

  // Multiplies the frequencies of a shard's rows with `rate`, rounding down;
  // those of step `now` stay above 0.
  static void Decay(double rate, int64_t now, RowShard* shard)
      LODESTAR_REQUIRES(shard->mutex);

  // Ids that wait for a row. Under the lock of the shard.

  // Null: none ever does. With a sketch: those of one step.
  PendingIds* pending_ids(size_t shard) { return pending_[shard].ids.get(); }
  const PendingIds* pending_ids(size_t shard) const {
    return pending_[shard].ids.get();
  }
  int64_t bytes(size_t shard) const {
    return pending_ids(shard) == nullptr ? 0 : pending_ids(shard)->bytes();
  }
  // How many there are at this step: those of an earlier one, which a sketch
  // has counted, go when the next id comes.
  int64_t num_pending(size_t shard, int64_t step) const {
    return NonePending(shard, step) ? 0 : pending_ids(shard)->size();
  }
  // An id that waits at this step; or an estimate of the sketch, which does not
  // know when the id was last seen.
  struct Seen {
    int64_t sightings = 0;
    int64_t last_seen = -1;
  };
  Seen SeenOf(size_t shard, uint32_t tag, int64_t id, int64_t step) const;

  // Under all locks.

  // fn(id, sightings, last_seen). A sketch counts for itself but within the
  // step.
  template <typename Fn>
  void ForEachPending(int64_t step, const Fn& fn) const {
    for (const ShardPending& shard : pending_) {
      if (shard.ids == nullptr) continue;
      shard.ids->ForEach([&](int64_t id, uint32_t count, int64_t last_seen) {
        if (sketch_ == nullptr || last_seen == step) fn(id, count, last_seen);
      });
    }
  }
  // Its counters; empty if there is none.
  std::vector<uint8_t> sketch() const;
  // The ids, ascending, that wait at out->step, and the sketch.
  void Export(EmbeddingRows* out) const;
  // Ids that were last seen more than max_age steps before `now`; a sketch
  // forgets none.
  void Forget(int64_t max_age, int64_t now);
  void Clear();

  // The pending ids and the sketch of `rows`, to go in here.
  // InvalidArgument: they are of another kind of admission, or no such thing.
  Status Check(const EmbeddingRowsView& rows) const;
  struct State {
    std::vector<ShardPending> pending;
    std::vector<uint8_t> sketch;
  };
  Status Build(const EmbeddingRowsView& rows, State* state) const;
  // Takes all locks; cannot fail.
  void Install(State* state);

  // Any thread.
  int64_t sketch_bytes() const;

 private:
  // Of all shards.
  struct Sketch {
    explicit Sketch(const AdmissionPolicy& policy)
        : counts(policy.num_counters, static_cast<int>(policy.num_hashes)) {}

    Mutex mutex;
    CountingSketch counts LODESTAR_GUARDED_BY(mutex);
  };

  // Whether a sighting of a row at step `now` remains to be counted.
  bool IsToCount(const RowMeta* meta, int64_t now,
                 Span<const uint32_t> occurrences) const;
  // Counts it. Requires the row's word, or its shard's mutex.
  void Count(RowMeta* meta, int64_t now, int64_t i,
             Span<const uint32_t> occurrences) const;

  // For who has LockSketch; null: there is none.
  CountingSketch* held_sketch() {
    if (sketch_ == nullptr) return nullptr;
    sketch_->mutex.AssertHeld();
    return &sketch_->counts;
  }
  // No id of the shard is pending at this step.
  bool NonePending(size_t shard, int64_t step) const {
    return pending_ids(shard) == nullptr ||
           (sketch_ != nullptr && pending_[shard].step != step);
  }

  const AdmissionPolicy policy_;
  ShardedRows& rows_;
  const TableStep& step_;
  std::vector<ShardPending> pending_;  // by shard
  // Null: there is none.
  const std::unique_ptr<Sketch> sketch_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_SIGHTINGS_H_
