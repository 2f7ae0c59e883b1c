#include "tf_ops/core/embedding/insert_plan.h"

#include <algorithm>

#include "tf_ops/core/base/guards.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/table/embedding_rows.h"

namespace lodestar {
namespace {

void PrefetchCell(const RowShard& shard, uint32_t tag) {
  LeafIndex::Prefetch(shard.index.Begin(tag));
}

}  // namespace

int64_t InsertPlan::num_rows() const {
  int64_t sum = 0;
  for (const ShardPlan& plan : plans_) sum += plan.rows.size();
  return sum;
}

Status InsertPlan::Prepare(const std::vector<int64_t>& indices) {
  const bool may_bind = Binds();
  // Another call may have attached one first.
  const auto check_optimizer = [&] {
    return options_.optimizer == nullptr
               ? Status()
               : table_.optimizer.Check(*options_.optimizer);
  };
  if (indices.empty() && !may_bind) return check_optimizer();
  const ShardedRows& rows = table_.rows;
  // The cap and the optimizer apply to all shards.
  const bool lock_all = may_bind || table_.policies.eviction.max_rows > 0;
  plans_.resize(rows.num_shards());
  std::vector<int64_t> counts(rows.num_shards(), lock_all ? 1 : 0);
  for (int64_t i : indices) ++counts[rows.HashOf(ids_[i]).shard];
  for (size_t s = 0; s < plans_.size(); ++s) {
    plans_[s].rows.reserve(counts[s]);
    plans_[s].tags.reserve(counts[s]);
  }
  if (!options_.locked) {
    locks_.emplace(rows, counts);
    // Read the step only under the locks. A call with an older step would clear
    // the pending ids of the newer one, which would then be counted twice.
    options_.call.now = table_.step.value();
  }
  LODESTAR_RETURN_IF_ERROR(check_optimizer());
  if (Binds()) {
    optimizer_ = *options_.optimizer;
    LODESTAR_RETURN_IF_ERROR(table_.optimizer.Reserve(*optimizer_));
  }
  LODESTAR_RETURN_IF_ERROR(PlanShards(indices));
  LODESTAR_RETURN_IF_ERROR(ReserveRoom());
  for (size_t s = 0; s < plans_.size(); ++s) {
    LODESTAR_RETURN_IF_ERROR(ReserveShard(s));
    if (!GuardHolds(StoreGuard::kReservePhase)) CommitShard(s);
  }
  return Status();
}

Status InsertPlan::PlanShards(const std::vector<int64_t>& indices) {
  const ShardedRows& rows = table_.rows;
  const uint32_t frequency = OccurrenceCounter::FirstFrequency(options_.call);
  for (size_t k = 0; k < indices.size(); ++k) {
    if (k + kAhead < indices.size()) {
      const ShardedRows::IdHash ahead = rows.HashOf(ids_[indices[k + kAhead]]);
      PrefetchCell(rows.shard(ahead.shard), ahead.tag);
    }
    const int64_t i = indices[k];
    const ShardedRows::IdHash hash = rows.HashOf(ids_[i]);
    // Another call may have created it since the lookup.
    const uint32_t row = rows.shard(hash.shard).Find(hash.tag, ids_[i]);
    if (row != LeafIndex::kNoRow) {
      refs_[i] = rows.RefTo(hash.shard, row);
    } else {
      plans_[hash.shard].rows.push_back(
          {i, -1,
           options_.frequencies.empty()
               ? frequency
               : static_cast<uint32_t>(options_.frequencies[i])});
      plans_[hash.shard].tags.push_back(hash.tag);
    }
  }
  if (!table_.occurrence_counter.uses_admission()) return Status();
  sketch_lock_ = table_.occurrence_counter.LockSketch();
  LODESTAR_RETURN_IF_ERROR(table_.occurrence_counter.ReserveSketch());
  for (size_t s = 0; s < plans_.size(); ++s) {
    if (plans_[s].rows.empty()) continue;
    table_.occurrence_counter.Plan(ids_, options_.call, s, &plans_[s]);
  }
  return Status();
}

Status InsertPlan::ReserveRoom() {
  const int64_t max_rows = table_.policies.eviction.max_rows;
  if (max_rows == 0) return Status();
  table_.rows.LookAgain(ids_, refs_);
  const int64_t wanted = table_.rows.size() + num_rows();
  excess_ = wanted - max_rows;
  if (excess_ <= 0) return Status();
  if (options_.refuse_excess) {
    return MoreThanMaxRows(wanted, max_rows);
  }
  if (table_.policies.eviction.raise_when_full) {
    return TableIsFull(table_.policies, table_.rows.size(), num_rows());
  }
  victims_.reserve(plans_.size());
  heads_.reserve(plans_.size());
  size_t most = 0;
  for (const ShardPlan& plan : plans_) {
    most = std::max(most, plan.rows.size());
  }
  new_rows_.reserve(most);
  kept_.reserve(most);
  return Status();
}

Status InsertPlan::ReserveShard(size_t number) {
  const ShardPlan& plan = plans_[number];
  if (!plan.rows.empty()) {
    RowShard& shard = table_.rows.shard(number);
    shard.mutex.AssertHeld();
    LODESTAR_RETURN_IF_ERROR(table_.rows.Reserve(&shard, plan.tags));
  }
  return table_.occurrence_counter.Reserve(number, plan, excess_ > 0);
}

void InsertPlan::Commit(const ParallelFor* parallel) {
  if (plans_.empty()) return;
  if (optimizer_.has_value()) table_.optimizer.Bind(std::move(*optimizer_));
  if (excess_ > 0) MakeRoom();
  for (size_t s = 0; s < plans_.size(); ++s) {
    table_.occurrence_counter.Commit(ids_, options_.call.now, s, plans_[s]);
  }
  const int64_t num_shards = static_cast<int64_t>(plans_.size());
  const int64_t added = num_rows();
  if (GuardHolds(StoreGuard::kReservePhase)) {
    RunParallel(parallel, num_shards,
                added / num_shards * RowCost(2 * table_.rows.dim()) + 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t s = begin; s < end; ++s) CommitShard(s);
                });
  }
  // Frees index leaves that were still in use by readers when they were
  // replaced.
  table_.rows.epochs()->Collect();
  table_.rows.AddToSize(added);
  table_.events.Add(Event::kInserts, added);
  if (options_.call.admission) table_.events.Add(Event::kAdmitted, added);
}

void InsertPlan::CommitShard(size_t number) {
  RowShard& shard = table_.rows.shard(number);
  shard.mutex.AssertHeld();
  const ShardPlan& plan = plans_[number];
  for (size_t k = 0; k < plan.rows.size(); ++k) {
    if (k + kAhead < plan.rows.size()) {
      PrefetchCell(shard, plan.tags[k + kAhead]);
    }
    const int64_t i = plan.rows[k].index;
    const uint32_t row = shard.rows.Allocate();
    refs_[i] = table_.rows.RefTo(static_cast<uint32_t>(number), row);
    fill_(i, refs_[i]);
    const int64_t last_seen =
        options_.last_seen.empty() ? options_.call.now : options_.last_seen[i];
    table_.rows.Add(&shard, plan.tags[k], row, ids_[i], last_seen,
                    plan.rows[k].frequency);
  }
}

int64_t InsertPlan::EvictFirst(int64_t count) {
  const auto later = [](const Head& a, const Head& b) { return b.key < a.key; };
  for (size_t s = 0; s < plans_.size(); ++s) {
    EvictionList& order = table_.rows.shard(s).order->for_cap();
    victims_.emplace_back(&order, options_.call.now);
    const uint32_t row = victims_.back().Peek();
    if (row != EvictionList::kNone) heads_.push_back({order.KeyOf(row), s});
  }
  std::make_heap(heads_.begin(), heads_.end(), later);
  // Unlinks rows from the list before removing them from the index, which
  // overlaps the index's cache misses: evicted rows are scattered over it.
  struct Victim {
    RowShard* shard;
    uint32_t tag;
    uint32_t row;
  };
  constexpr int kTaken = 32;
  Victim taken[kTaken];
  int num_taken = 0;
  const auto remove_taken = [&] {
    for (int i = 0; i < num_taken; ++i) {
      taken[i].shard->mutex.AssertHeld();
      table_.rows.Erase(taken[i].shard, taken[i].tag, taken[i].row);
    }
    num_taken = 0;
  };
  int64_t evicted = 0;
  while (evicted < count && !heads_.empty()) {
    std::pop_heap(heads_.begin(), heads_.end(), later);
    Head& head = heads_.back();
    RowShard& shard = table_.rows.shard(head.shard);
    shard.mutex.AssertHeld();
    EvictionList::Victims& victims = victims_[head.shard];
    const uint32_t row = victims.Peek();
    victims.Pop();
    shard.order->RemoveFromOthers(row);
    const int64_t id = shard.rows.meta(row)->id.load(std::memory_order_relaxed);
    const uint32_t tag = table_.rows.HashOf(id).tag;
    PrefetchCell(shard, tag);
    taken[num_taken++] = {&shard, tag, row};
    if (num_taken == kTaken) remove_taken();
    ++evicted;
    const uint32_t next = victims.Peek();
    if (next == EvictionList::kNone) {
      heads_.pop_back();
    } else {
      head.key = shard.order->for_cap().KeyOf(next);
      std::push_heap(heads_.begin(), heads_.end(), later);
    }
  }
  remove_taken();
  table_.rows.AddToSize(-evicted);
  table_.events.Add(Event::kEvicted, evicted);
  return evicted;
}

void InsertPlan::MakeRoom() {
  const auto order_of = [&](const RowRef& ref) {
    return &table_.rows.shard(ref.shard).order->for_cap();
  };
  for (const RowRef& ref : refs_) {
    if (ref.found()) order_of(ref)->Mark(ref.row);
  }
  int64_t excess = excess_ - EvictFirst(excess_);
  for (const RowRef& ref : refs_) {
    if (ref.found()) order_of(ref)->Unmark(ref.row);
  }
  table_.events.Add(Event::kRefused, excess);
  // Shards are ranges of mixed ids, in ascending order.
  for (size_t s = 0; s < plans_.size() && excess > 0; ++s) {
    ShardPlan& plan = plans_[s];
    new_rows_.clear();
    for (size_t k = 0; k < plan.rows.size(); ++k) {
      new_rows_.push_back(
          {Mix64(static_cast<uint64_t>(ids_[plan.rows[k].index])), k});
    }
    std::sort(new_rows_.begin(), new_rows_.end(),
              [](const NewRow& a, const NewRow& b) {
                return a.mixed_id < b.mixed_id;
              });
    kept_.assign(plan.rows.size(), 1);
    for (const NewRow& row : new_rows_) {
      if (excess == 0) break;
      --excess;
      kept_[row.in_plan] = 0;
      // The id keeps waiting.
      const int64_t occurrence = plan.rows[row.in_plan].occurrence;
      if (occurrence >= 0) plan.occurrences[occurrence].admitted = false;
    }
    plan.Keep(kept_);
  }
}

}  // namespace lodestar
