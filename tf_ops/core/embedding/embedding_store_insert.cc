// How EmbeddingStore makes rows: admission, room under the cap, insertion.

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "tf_ops/core/base/guards.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

// What becomes of an id that admission was asked for.
struct EmbeddingStore::Sighting {
  int64_t index;
  uint32_t tag;
  uint32_t entry;      // in PendingIds, or kNoRow
  uint32_t sightings;  // this one included
  bool fresh;          // the first of the step
  bool admitted;
};

// The rows that one shard is to get.
struct EmbeddingStore::ShardPlan {
  std::vector<int64_t> indices;
  std::vector<uint32_t> tags;
  // With admission only: those of rows to come and of ids that go on waiting,
  // which of them belongs to a row (-1: none), and what a row begins with.
  std::vector<Sighting> sightings;
  std::vector<int64_t> sighting_of;
  std::vector<uint32_t> frequencies;

  void Keep(const std::vector<char>& kept) {
    Keep(kept, &indices);
    Keep(kept, &tags);
    if (!sighting_of.empty()) Keep(kept, &sighting_of);
    if (!frequencies.empty()) Keep(kept, &frequencies);
  }

 private:
  template <typename T>
  static void Keep(const std::vector<char>& kept, std::vector<T>* values) {
    size_t count = 0;
    for (size_t k = 0; k < values->size(); ++k) {
      if (kept[k]) (*values)[count++] = (*values)[k];
    }
    values->resize(count);
  }
};

void EmbeddingStore::ForgetOtherSteps(Shard* shard, int64_t now) {
  if (shard->pending_step != now) shard->pending->Clear();
  shard->pending_step = now;
}

// Fills sightings, and keeps the ids that are admitted.
void EmbeddingStore::PlanSightings(Span<const int64_t> ids,
                                   const InsertOptions& options, int number,
                                   ShardPlan* plan) const {
  const AdmissionPolicy& policy = policies_.admission;
  const PendingIds& pending = *shards_[number]->pending;
  plan->sighting_of.resize(plan->indices.size(), -1);
  if (!options.admission) {
    // Whoever waits here comes in now.
    for (size_t k = 0; k < plan->indices.size(); ++k) {
      const int64_t i = plan->indices[k];
      const uint32_t entry = pending.Find(plan->tags[k], ids[i]);
      if (entry == LeafIndex::kNoRow) continue;
      plan->sighting_of[k] = plan->sightings.size();
      plan->sightings.push_back({i, plan->tags[k], entry, 0, false, true});
    }
    return;
  }
  using Admit = SightingOptions::Admit;
  const bool by_occurrence = !options.occurrences.empty();
  std::vector<char> kept(plan->indices.size());
  plan->frequencies.resize(plan->indices.size());
  for (size_t k = 0; k < plan->indices.size(); ++k) {
    Sighting s;
    s.index = plan->indices[k];
    s.tag = plan->tags[k];
    const int64_t id = ids[s.index];
    s.entry = pending.Find(s.tag, id);
    const bool there = s.entry != LeafIndex::kNoRow;
    const bool this_step = GuardHolds(StoreGuard::kSightingSet) && there &&
                           pending.last_seen(s.entry) == options.now;
    s.fresh = options.count && (by_occurrence || !this_step);
    if (sketch_ == nullptr || this_step) {
      s.sightings = there ? pending.sightings(s.entry) : 0;
    } else {
      s.sightings = sketch_->Estimate(id);
    }
    const uint32_t before = s.sightings;
    if (s.fresh) {
      s.sightings = SaturatingAdd(
          s.sightings, by_occurrence ? options.occurrences[s.index] : 1);
    }
    s.admitted =
        options.admit == Admit::kAll ||
        (options.admit == Admit::kByPolicy && s.sightings >= policy.min_count);
    kept[k] = s.admitted;
    plan->frequencies[k] = by_occurrence ? before : s.sightings;
    if (sketch_ != nullptr) {
      // An estimate may count strangers.
      plan->frequencies[k] = static_cast<uint32_t>(
          std::min<int64_t>(plan->frequencies[k], policy.min_count));
    }
    plan->sighting_of[k] = plan->sightings.size();
    plan->sightings.push_back(s);
  }
  plan->Keep(kept);
}

Status EmbeddingStore::ReservePlan(int number, const ShardPlan& plan,
                                   int64_t excess) {
  Shard& shard = *shards_[number];
  if (!plan.indices.empty()) {
    LODESTAR_RETURN_IF_ERROR(shard.rows.Reserve(plan.indices.size()));
    LODESTAR_RETURN_IF_ERROR(shard.index.Reserve(plan.tags));
    if (shard.order != nullptr) {
      LODESTAR_RETURN_IF_ERROR(shard.order->Reserve(shard.rows.capacity()));
    }
  }
  if (plan.sightings.empty()) return Status();
  std::vector<uint32_t> tags;
  for (const Sighting& sighting : plan.sightings) {
    // An admitted one may still find no room.
    if (sighting.entry == LeafIndex::kNoRow &&
        (!sighting.admitted || excess > 0)) {
      tags.push_back(sighting.tag);
    }
  }
  return shard.pending->Reserve(tags);
}

Status EmbeddingStore::CheckRoom(int64_t rows) const {
  const int64_t max_rows = policies_.eviction.max_rows;
  if (max_rows == 0 || rows <= max_rows) return Status();
  return FailedPrecondition("the import makes ", rows,
                            " rows, but the variable's cap is ", max_rows,
                            " rows");
}

// What MakeRoom works with: all its memory.
struct EmbeddingStore::RoomPlan {
  struct Head {
    EvictionKey key;
    size_t shard;
  };
  struct NewRow {
    uint64_t mixed_id;
    size_t place;  // in its shard's plan
  };

  RoomPlan(int64_t excess, const std::vector<ShardPlan>& plans)
      : excess(excess) {
    if (excess <= 0) return;
    victims.reserve(plans.size());
    heads.reserve(plans.size());
    size_t most = 0;
    for (const ShardPlan& plan : plans) {
      most = std::max(most, plan.indices.size());
    }
    new_rows.reserve(most);
    kept.reserve(most);
  }

  const int64_t excess;
  std::vector<EvictionList::Victims> victims;
  std::vector<Head> heads;
  std::vector<NewRow> new_rows;
  std::vector<char> kept;
};

int64_t EmbeddingStore::EvictFirst(int64_t count, int64_t now, RoomPlan* room) {
  using Head = RoomPlan::Head;
  const auto later = [](const Head& a, const Head& b) { return b.key < a.key; };
  std::vector<Head>& heads = room->heads;
  for (size_t s = 0; s < shards_.size(); ++s) {
    EvictionList* order = shards_[s]->order.get();
    room->victims.emplace_back(order, now);
    const uint32_t row = room->victims.back().Peek();
    if (row != EvictionList::kNone) heads.push_back({order->KeyOf(row), s});
  }
  std::make_heap(heads.begin(), heads.end(), later);
  // Off the list first; then out of the index, whose slots are on their way
  // meanwhile: rows that go together lie anywhere in it.
  struct Victim {
    Shard* shard;
    uint32_t tag;
    uint32_t row;
  };
  Victim taken[kRun];
  int num_taken = 0;
  const auto remove_taken = [&] {
    for (int i = 0; i < num_taken; ++i) {
      taken[i].shard->index.Remove(taken[i].tag, taken[i].row);
      FreeRow(taken[i].shard, taken[i].row);
    }
    num_taken = 0;
  };
  int64_t evicted = 0;
  while (evicted < count && !heads.empty()) {
    std::pop_heap(heads.begin(), heads.end(), later);
    Head& head = heads.back();
    Shard& shard = *shards_[head.shard];
    EvictionList::Victims& victims = room->victims[head.shard];
    const uint32_t row = victims.Peek();
    victims.Pop();
    const uint32_t tag = static_cast<uint32_t>(head.key.mixed_id);
    LeafIndex::Prefetch(shard.index.Begin(tag));
    taken[num_taken++] = {&shard, tag, row};
    if (num_taken == kRun) remove_taken();
    ++evicted;
    const uint32_t next = victims.Peek();
    if (next == EvictionList::kNone) {
      heads.pop_back();
    } else {
      head.key = shard.order->KeyOf(next);
      std::push_heap(heads.begin(), heads.end(), later);
    }
  }
  remove_taken();
  size_.fetch_sub(evicted, std::memory_order_relaxed);
  evicted_.fetch_add(evicted, std::memory_order_relaxed);
  return evicted;
}

// Evicts, and refuses what finds no room even so.
void EmbeddingStore::MakeRoom(Span<const int64_t> ids, int64_t now,
                              Span<const RowRef> refs,
                              std::vector<ShardPlan>* plans, RoomPlan* room) {
  for (const RowRef& ref : refs) {
    if (ref.found()) shards_[ref.shard]->order->Mark(ref.row);
  }
  int64_t excess = room->excess - EvictFirst(room->excess, now, room);
  for (const RowRef& ref : refs) {
    if (ref.found()) shards_[ref.shard]->order->Unmark(ref.row);
  }
  refused_.fetch_add(excess, std::memory_order_relaxed);
  // Shards are ranges of mixed ids, in ascending order.
  for (size_t s = 0; s < plans->size() && excess > 0; ++s) {
    ShardPlan& plan = (*plans)[s];
    room->new_rows.clear();
    for (size_t k = 0; k < plan.indices.size(); ++k) {
      room->new_rows.push_back(
          {Mix64(static_cast<uint64_t>(ids[plan.indices[k]])), k});
    }
    std::sort(room->new_rows.begin(), room->new_rows.end(),
              [](const RoomPlan::NewRow& a, const RoomPlan::NewRow& b) {
                return a.mixed_id < b.mixed_id;
              });
    room->kept.assign(plan.indices.size(), 1);
    for (const RoomPlan::NewRow& row : room->new_rows) {
      if (excess == 0) break;
      --excess;
      room->kept[row.place] = 0;
      // Goes on waiting.
      if (plan.sighting_of.empty()) continue;
      const int64_t sighting = plan.sighting_of[row.place];
      if (sighting >= 0) plan.sightings[sighting].admitted = false;
    }
    plan.Keep(room->kept);
  }
}

void EmbeddingStore::CommitSightings(Span<const int64_t> ids, int64_t now,
                                     int number, const ShardPlan& plan) {
  if (plan.sightings.empty()) return;
  PendingIds& pending = *shards_[number]->pending;
  for (const Sighting& s : plan.sightings) {
    const bool there = s.entry != LeafIndex::kNoRow;
    if (s.admitted) {
      if (there) pending.Remove(s.tag, s.entry);
    } else if (s.fresh && there) {
      pending.Set(s.entry, s.sightings, now);
    } else if (s.fresh) {
      pending.Add(s.tag, ids[s.index], s.sightings, now);
    }
    if (s.fresh && sketch_ != nullptr) {
      sketch_->Raise(ids[s.index], s.sightings);
    }
  }
}

Status EmbeddingStore::InsertMissing(Span<const int64_t> ids,
                                     const std::vector<int64_t>& indices,
                                     const InsertOptions& options,
                                     Span<RowRef> refs,
                                     const ParallelFor* parallel,
                                     const Fill& fill,
                                     const AttachedOptimizer* optimizer) {
  const auto attaches = [&] {
    return optimizer != nullptr && !attached_.load(std::memory_order_acquire);
  };
  // Another call may have attached one first.
  const auto check_optimizer = [&] {
    return optimizer == nullptr ? Status() : CheckOptimizer(*optimizer);
  };
  const bool may_attach = attaches();
  const auto before_commit = [&] {
    return options.before_commit == nullptr ? Status()
                                            : (*options.before_commit)();
  };
  if (indices.empty() && !may_attach) {
    LODESTAR_RETURN_IF_ERROR(check_optimizer());
    return before_commit();
  }
  const int64_t num_shards = static_cast<int64_t>(shards_.size());
  const int64_t max_rows = policies_.eviction.max_rows;
  // A cap is one for all shards, and so is an optimizer.
  const bool lock_all = may_attach || max_rows > 0;
  std::vector<ShardPlan> plans(num_shards);
  std::vector<int64_t> counts(num_shards, lock_all ? 1 : 0);
  for (int64_t i : indices) ++counts[PlaceOf(ids[i]).shard];
  for (int64_t s = 0; s < num_shards; ++s) {
    plans[s].indices.reserve(counts[s]);
    plans[s].tags.reserve(counts[s]);
  }
  ShardLocks locks(*this, counts);
  LODESTAR_RETURN_IF_ERROR(check_optimizer());
  AttachedOptimizer attached;
  if (may_attach && attaches()) {
    attached = *optimizer;
    LODESTAR_RETURN_IF_ERROR(ReserveOptimizer(attached));
  }
  const auto prefetch = [](const Shard& shard, uint32_t tag) {
    LeafIndex::Prefetch(shard.index.Begin(tag));
  };
  for (size_t k = 0; k < indices.size(); ++k) {
    if (k + kAhead < indices.size()) {
      const Place ahead = PlaceOf(ids[indices[k + kAhead]]);
      prefetch(*shards_[ahead.shard], ahead.tag);
    }
    const int64_t i = indices[k];
    const Place place = PlaceOf(ids[i]);
    // Another call may have made it since it was looked for.
    const uint32_t row = FindRow(*shards_[place.shard], place.tag, ids[i]);
    if (row != LeafIndex::kNoRow) {
      refs[i] = RefTo(place.shard, row);
    } else {
      plans[place.shard].indices.push_back(i);
      plans[place.shard].tags.push_back(place.tag);
    }
  }
  std::optional<std::lock_guard<std::mutex>> sketch_lock;
  if (UsesAdmission()) {
    if (sketch_ != nullptr) {
      sketch_lock.emplace(sketch_mutex_);
      LODESTAR_RETURN_IF_ERROR(sketch_->Reserve());
    }
    for (int64_t s = 0; s < num_shards; ++s) {
      if (plans[s].indices.empty()) continue;
      if (sketch_ != nullptr) ForgetOtherSteps(shards_[s].get(), options.now);
      PlanSightings(ids, options, static_cast<int>(s), &plans[s]);
    }
  }
  if (max_rows > 0) LookAgain(ids, refs);
  const auto total = [&] {
    int64_t sum = 0;
    for (const ShardPlan& plan : plans) sum += plan.indices.size();
    return sum;
  };
  RoomPlan room(max_rows > 0 ? size() + total() - max_rows : 0, plans);
  if (options.refuse_excess) {
    LODESTAR_RETURN_IF_ERROR(CheckRoom(size() + total()));
  }
  const auto commit = [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      Shard& shard = *shards_[s];
      const ShardPlan& plan = plans[s];
      for (size_t k = 0; k < plan.indices.size(); ++k) {
        if (k + kAhead < plan.indices.size()) {
          prefetch(shard, plan.tags[k + kAhead]);
        }
        const int64_t i = plan.indices[k];
        const uint32_t row = shard.rows.Allocate();
        refs[i] = RefTo(static_cast<uint32_t>(s), row);
        fill(i, refs[i]);
        const int64_t last_seen =
            options.last_seen.empty() ? options.now : options.last_seen[i];
        uint32_t frequency =
            options.count && options.occurrences.empty() ? 1 : 0;
        if (!options.frequencies.empty()) {
          frequency = static_cast<uint32_t>(options.frequencies[i]);
        } else if (!plan.frequencies.empty()) {
          frequency = plan.frequencies[k];
        }
        shard.rows.Publish(row, ids[i], last_seen, frequency);
        shard.index.Insert(plan.tags[k], row);
        if (shard.order != nullptr) shard.order->Add(row);
      }
    }
  };
  for (int64_t s = 0; s < num_shards; ++s) {
    LODESTAR_RETURN_IF_ERROR(
        ReservePlan(static_cast<int>(s), plans[s], room.excess));
    if (!GuardHolds(StoreGuard::kReservePhase)) commit(s, s + 1);
  }
  LODESTAR_RETURN_IF_ERROR(before_commit());
  // Nothing from here on can fail.
  if (!attached.name.empty()) {
    // Every row has new slots.
    ForgetBase();
    Attach(std::move(attached));
  }
  if (room.excess > 0) MakeRoom(ids, options.now, refs, &plans, &room);
  for (int64_t s = 0; s < num_shards; ++s) {
    CommitSightings(ids, options.now, static_cast<int>(s), plans[s]);
  }
  const int64_t added = total();
  if (GuardHolds(StoreGuard::kReservePhase)) {
    RunParallel(parallel, num_shards,
                added / num_shards * RowCost(2 * dim_) + 1, commit);
  }
  // Leaves that readers were in when they were replaced.
  epochs_.Collect();
  size_.fetch_add(added, std::memory_order_relaxed);
  inserts_.fetch_add(added, std::memory_order_relaxed);
  if (options.admission) admitted_.fetch_add(added, std::memory_order_relaxed);
  return Status();
}

}  // namespace lodestar
