#include "tf_ops/core/embedding/occurrence_counter.h"

#include <algorithm>
#include <numeric>

#include "tf_ops/core/base/guards.h"
#include "tf_ops/core/embedding/embedding_run.h"

namespace lodestar {
namespace {

template <typename T>
void KeepSome(const std::vector<char>& kept, std::vector<T>* values) {
  size_t count = 0;
  for (size_t k = 0; k < values->size(); ++k) {
    if (kept[k]) (*values)[count++] = (*values)[k];
  }
  values->resize(count);
}

}  // namespace

// A row last seen in a step that has overtaken the call counts as seen.
// Counting it for the call's own step would move its date back, and the next
// call of the newer step would count it twice.
bool OccurrenceCounter::IsToCount(const RowMeta* meta, int64_t now,
                                  Span<const uint32_t> occurrences) const {
  if (!occurrences.empty() || !GuardHolds(StoreGuard::kOncePerStep)) {
    return true;
  }
  const int64_t last_seen = meta->last_seen.load(std::memory_order_relaxed);
  return (last_seen != now && !step_.IsOvertaken(now, last_seen)) ||
         meta->frequency.load(std::memory_order_relaxed) == 0;
}

void OccurrenceCounter::Count(RowMeta* meta, int64_t now, int64_t i,
                              Span<const uint32_t> occurrences) const {
  const uint32_t frequency = meta->frequency.load(std::memory_order_relaxed);
  const int64_t last_seen = meta->last_seen.load(std::memory_order_relaxed);
  if (!step_.IsOvertaken(now, last_seen)) {
    meta->last_seen.store(now, std::memory_order_relaxed);
  }
  meta->frequency.store(
      SaturatingAdd(frequency, occurrences.empty() ? 1 : occurrences[i]),
      std::memory_order_relaxed);
}

void ShardPlan::Keep(const std::vector<char>& kept) {
  KeepSome(kept, &rows);
  KeepSome(kept, &tags);
}

OccurrenceCounter::OccurrenceCounter(const TablePolicies& policies,
                                     ShardedRows* rows, const TableStep* step)
    : policy_(policies.admission),
      keeps_age_order_(policies.eviction.keeps_age_order() &&
                       policies.admission.kind ==
                           AdmissionPolicy::Kind::kMinCount),
      rows_(*rows),
      step_(*step),
      pending_(rows->num_shards()),
      sketch_(policy_.kind == AdmissionPolicy::Kind::kCountingBloom
                  ? std::make_unique<Sketch>(policy_)
                  : nullptr) {
  if (!uses_admission()) return;
  for (ShardPending& shard : pending_) shard.ids = NewPending();
}

std::unique_ptr<PendingIds> OccurrenceCounter::NewPending() const {
  return std::make_unique<PendingIds>(rows_.epochs(), keeps_age_order_);
}

void OccurrenceCounter::Touch(Span<const int64_t> ids, Span<const RowRef> refs,
                              int64_t now, Span<const uint32_t> occurrences) {
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (i + kAhead < ids.size() && refs[i + kAhead].found()) {
      const RowRef& ahead = refs[i + kAhead];
      __builtin_prefetch(ahead.meta, 1);
      rows_.shard(ahead.shard).rows.PrefetchMarks(ahead.row);
    }
    if (!refs[i].found()) continue;
    RowRef ref = refs[i];
    if (!IsToCount(ref.meta, now, occurrences) &&
        RowStore::Holds(ref.meta, ids[i])) {
      continue;
    }
    RowShard& shard = rows_.shard(ref.shard);
    if (!RowStore::Lock(ref.meta, ids[i])) {
      EpochDomain::Guard guard(rows_.epochs());
      if (!shard.LockAgain(rows_.HashOf(ids[i]).tag, ids[i], &ref)) continue;
    }
    RowMeta* const meta = ref.meta;
    if (IsToCount(meta, now, occurrences)) {
      shard.rows.BeforeWrite(ref.row);
      Count(meta, now, i, occurrences);
    }
    RowStore::Unlock(meta);
  }
}

void OccurrenceCounter::TouchInOrder(Span<const int64_t> ids,
                                     const ShardedRows::IndexLists& members,
                                     Span<const RowRef> refs, int64_t now,
                                     Span<const uint32_t> occurrences,
                                     const ParallelFor* parallel) {
  const int64_t num_shards = static_cast<int64_t>(members.size());
  const auto body = [&](int64_t begin, int64_t end) {
    constexpr size_t kListAhead = 16;
    constexpr size_t kNeighborsAhead = 8;
    for (int64_t s = begin; s < end; ++s) {
      RowShard& shard = rows_.shard(s);
      shard.mutex.AssertHeld();
      for (size_t k = 0; k < members[s].size(); ++k) {
        if (k + kListAhead < members[s].size()) {
          const RowRef& ahead = refs[members[s][k + kListAhead]];
          if (ahead.found()) {
            __builtin_prefetch(ahead.meta, 1);
            shard.order->Prefetch(ahead.row);
          }
        }
        if (k + kNeighborsAhead < members[s].size()) {
          const RowRef& ahead = refs[members[s][k + kNeighborsAhead]];
          if (ahead.found()) shard.order->PrefetchNeighbors(ahead.row);
        }
        const int64_t i = members[s][k];
        if (!refs[i].found()) continue;
        uint32_t row = refs[i].row;
        if (!shard.rows.Holds(row, ids[i])) {
          // Evicted or moved since it was found.
          row = shard.Find(rows_.HashOf(ids[i]).tag, ids[i]);
          if (row == LeafIndex::kNoRow) continue;
        }
        RowMeta* meta = shard.rows.meta(row);
        if (!IsToCount(meta, now, occurrences)) continue;
        const bool held =
            shard.rows.IsUnsaved(row) && shard.rows.Lock(row, ids[i]);
        shard.rows.BeforeWrite(row);
        shard.order->Remove(row);
        Count(meta, now, i, occurrences);
        if (held) shard.rows.Unlock(row);
        shard.order->Add(row);
      }
    }
  };
  RunParallel(parallel, num_shards, ids.size() / num_shards * 60 + 1, body);
}

void OccurrenceCounter::Decay(double rate, int64_t now, RowShard* shard) {
  shard->ForEachRow([&](uint32_t row, int64_t id) {
    RowMeta* const meta = shard->rows.meta(row);
    shard->rows.Lock(row, id);
    shard->rows.BeforeWrite(row);
    const uint32_t before = meta->frequency.load(std::memory_order_relaxed);
    const uint32_t after = static_cast<uint32_t>(before * rate);
    const bool current = meta->last_seen.load(std::memory_order_relaxed) == now;
    meta->frequency.store(current && before > 0 && after == 0 ? 1 : after,
                          std::memory_order_relaxed);
    shard->rows.Unlock(row);
  });
}

std::unique_lock<Mutex> OccurrenceCounter::LockSketch() const {
  return sketch_ == nullptr ? std::unique_lock<Mutex>()
                            : std::unique_lock<Mutex>(sketch_->mutex);
}

Status OccurrenceCounter::ReserveSketch() {
  CountingSketch* const sketch = held_sketch();
  return sketch == nullptr ? Status() : sketch->Reserve();
}

void OccurrenceCounter::Plan(Span<const int64_t> ids, const Call& call,
                             size_t shard, ShardPlan* plan) {
  const CountingSketch* const sketch = held_sketch();
  PendingIds& pending = *pending_[shard].ids;
  if (sketch != nullptr) {
    if (NonePending(shard, call.now)) pending.Clear();
    pending_[shard].step = call.now;
  }
  if (!call.admission) {
    // Pending ids get their row now.
    for (size_t k = 0; k < plan->rows.size(); ++k) {
      PlannedRow& row = plan->rows[k];
      const uint32_t entry = pending.Find(plan->tags[k], ids[row.index]);
      if (entry == LeafIndex::kNoRow) continue;
      row.occurrence = plan->occurrences.size();
      plan->occurrences.push_back(
          {row.index, plan->tags[k], entry, 0, false, true});
    }
    return;
  }
  using Admit = LookupOptions::Admit;
  AdmissionRule rule;
  rule.min_count = static_cast<uint32_t>(policy_.min_count);
  rule.sketch = sketch != nullptr;
  rule.counts = call.count_frequency;
  rule.by_occurrence = !call.occurrences.empty();
  rule.admits_all = call.admit == Admit::kAll;
  rule.admits_none = call.admit == Admit::kNone;
  std::vector<char> kept(plan->rows.size());
  for (size_t k = 0; k < plan->rows.size(); ++k) {
    PlannedRow& row = plan->rows[k];
    PlannedOccurrence s;
    s.index = row.index;
    s.tag = plan->tags[k];
    const int64_t id = ids[s.index];
    s.entry = pending.Find(s.tag, id);
    const bool there = s.entry != LeafIndex::kNoRow;
    const bool this_step = GuardHolds(StoreGuard::kOncePerStep) && there &&
                           pending.last_seen(s.entry) == call.now;
    uint32_t before = 0;
    if (sketch == nullptr || this_step) {
      if (there) before = pending.occurrences(s.entry);
    } else {
      before = sketch->Estimate(id);
    }
    const AdmissionRule::Result result = rule.Apply(
        before, this_step, rule.by_occurrence ? call.occurrences[s.index] : 0);
    s.occurrences = result.occurrences;
    s.fresh = result.fresh;
    s.admitted = result.admitted;
    kept[k] = result.admitted;
    row.frequency = result.frequency;
    row.occurrence = plan->occurrences.size();
    plan->occurrences.push_back(s);
  }
  plan->Keep(kept);
}

Status OccurrenceCounter::Reserve(size_t shard, const ShardPlan& plan,
                                  bool may_refuse) {
  if (plan.occurrences.empty()) return Status();
  std::vector<uint32_t> tags;
  for (const PlannedOccurrence& occurrence : plan.occurrences) {
    if (occurrence.entry == LeafIndex::kNoRow &&
        (!occurrence.admitted || may_refuse)) {
      tags.push_back(occurrence.tag);
    }
  }
  return pending_ids(shard)->Reserve(tags);
}

void OccurrenceCounter::Commit(Span<const int64_t> ids, int64_t now,
                               size_t shard, const ShardPlan& plan) {
  if (plan.occurrences.empty()) return;
  CountingSketch* const sketch = held_sketch();
  PendingIds& pending = *pending_ids(shard);
  for (const PlannedOccurrence& s : plan.occurrences) {
    const bool there = s.entry != LeafIndex::kNoRow;
    if (s.admitted) {
      if (there) pending.Remove(s.tag, s.entry);
    } else if (s.fresh && there) {
      pending.Set(s.entry, s.occurrences, now);
    } else if (s.fresh) {
      pending.Add(s.tag, ids[s.index], s.occurrences, now);
    }
    if (s.fresh && sketch != nullptr) {
      sketch->Raise(ids[s.index], s.occurrences);
    }
  }
}

OccurrenceCounter::Counts OccurrenceCounter::CountsOf(size_t shard,
                                                      uint32_t tag, int64_t id,
                                                      int64_t step) const {
  if (!NonePending(shard, step)) {
    const PendingIds& pending = *pending_ids(shard);
    const uint32_t entry = pending.Find(tag, id);
    if (entry != LeafIndex::kNoRow) {
      return {pending.occurrences(entry), pending.last_seen(entry)};
    }
  }
  if (sketch_ == nullptr) return {};
  MutexLock lock(&sketch_->mutex);
  return {sketch_->counts.Estimate(id), -1};
}

std::vector<uint8_t> OccurrenceCounter::sketch() const {
  if (sketch_ == nullptr) return {};
  MutexLock lock(&sketch_->mutex);
  const Span<const uint8_t> counters = sketch_->counts.counters();
  return {counters.begin(), counters.end()};
}

void OccurrenceCounter::Export(EmbeddingRows* out) const {
  struct Entry {
    int64_t id;
    int64_t occurrences;
    int64_t last_seen;
  };
  std::vector<Entry> entries;
  ForEachPending(out->step,
                 [&](int64_t id, uint32_t occurrences, int64_t last_seen) {
                   entries.push_back({id, occurrences, last_seen});
                 });
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.id < b.id; });
  for (const Entry& entry : entries) {
    out->pending_ids.push_back(entry.id);
    out->pending_sightings.push_back(entry.occurrences);
    out->pending_last_seen.push_back(entry.last_seen);
  }
  out->sketch = sketch();
}

int64_t OccurrenceCounter::sketch_bytes() const {
  if (sketch_ == nullptr) return 0;
  MutexLock lock(&sketch_->mutex);
  return sketch_->counts.counters().size();
}

void OccurrenceCounter::Forget(size_t shard, int64_t max_age, int64_t now) {
  if (sketch_ != nullptr || !uses_admission()) return;
  pending_ids(shard)->RemoveOlder(
      max_age, now, [this](int64_t id) { return rows_.HashOf(id).tag; });
}

void OccurrenceCounter::Clear() {
  for (ShardPending& shard : pending_) {
    if (shard.ids != nullptr) shard.ids->Clear();
  }
  if (sketch_ == nullptr) return;
  MutexLock lock(&sketch_->mutex);
  sketch_->counts.Clear();
}

Status OccurrenceCounter::Build(const EmbeddingRowsView& rows,
                                State* state) const {
  if (!uses_admission()) return Status();
  std::vector<std::vector<uint32_t>> tags(pending_.size());
  for (int64_t id : rows.pending_ids) {
    const ShardedRows::IdHash hash = rows_.HashOf(id);
    tags[hash.shard].push_back(hash.tag);
  }
  state->pending.resize(pending_.size());
  for (size_t s = 0; s < pending_.size(); ++s) {
    ShardPending& shard = state->pending[s];
    shard.ids = NewPending();
    LODESTAR_RETURN_IF_ERROR(shard.ids->Reserve(tags[s]));
    if (!rows.pending_last_seen.empty()) {
      shard.step = rows.pending_last_seen[0];
    }
  }
  // By last step: adding an id takes constant time then.
  std::vector<int64_t> order(rows.pending_ids.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  if (keeps_age_order_) {
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return rows.pending_last_seen[a] < rows.pending_last_seen[b];
    });
  }
  for (const int64_t i : order) {
    const ShardedRows::IdHash hash = rows_.HashOf(rows.pending_ids[i]);
    state->pending[hash.shard].ids->Add(
        hash.tag, rows.pending_ids[i],
        static_cast<uint32_t>(rows.pending_sightings[i]),
        rows.pending_last_seen[i]);
  }
  if (sketch_ == nullptr) return Status();
  state->sketch = std::make_unique<CountingSketch>(policy_.num_counters,
                                                   policy_.num_hashes);
  return state->sketch->Assign(rows.sketch);
}

void OccurrenceCounter::Install(State* state) {
  if (!uses_admission()) return;
  const ShardLocks locks(rows_);
  pending_.swap(state->pending);
  if (sketch_ == nullptr) return;
  MutexLock lock(&sketch_->mutex);
  sketch_->counts.Swap(state->sketch.get());
}

}  // namespace lodestar
