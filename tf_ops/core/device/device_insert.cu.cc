// DeviceStore: creating, overwriting and removing rows.

#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "tf_ops/core/device/batch/device_batch.h"
#include "tf_ops/core/device/batch/staging_buffer.h"
#include "tf_ops/core/device/device_admission.h"
#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_sort.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/device/row_transfer.h"
#include "tf_ops/core/rows/admission_rule.h"

namespace lodestar {
namespace {

struct InsertCall {
  DeviceIndex index;
  DeviceRows rows;
  DeviceTableState* state;
  DeviceStore::Ids ids;
  DeviceStore::InsertOptions options;
  int64_t now;
  InitialRow initial;
  SlotFill slots;
  int64_t units;  // per row
  int lane_bits;
  // Values to assign: row from[i] of `values`, or row i without `from`.
  const int64_t* from;
  const void* values;
  const uint32_t* frequencies;  // of new rows; null: this occurrence
  uint32_t* refs;
  bool* found;

  // How often id i occurs, or by how much it counts.
  __device__ uint32_t Times(int64_t i) const {
    return options.occurrences == nullptr ? 1 : options.occurrences[i];
  }
  __device__ void Count(DeviceRowMeta* meta, int64_t i) const {
    if (options.occurrences == nullptr) return CountOccurrence(meta, now);
    meta->last_seen = now;
    meta->frequency = SaturatingAdd(meta->frequency, Times(i));
  }
};

// The action on an id's row, stored in the low bits of its address.
constexpr uint64_t kRead = 1;
constexpr uint64_t kBegin = 2;   // new row with drawn initial values
constexpr uint64_t kAssign = 3;  // row with given values
constexpr uint64_t kWhatToDo = 3;
constexpr uint64_t kFresh = 4;  // flag: slots are initialized
constexpr uint64_t kFlags = 7;

// One thread per id finds or allocates its row; then the warp reads or writes
// the rows, with lanes along each. `out`, if not null, receives all rows.
template <typename Unit>
__global__ void __launch_bounds__(kBlock, 4)
    InsertKernel(const __grid_constant__ InsertCall call, Unit* out) {
  constexpr int kAtOnce = 4;
  const int64_t i = ThreadNumber();
  const bool mine = i < SizeOf(call.ids) && !(call.options.skipped != nullptr &&
                                              call.options.skipped[i]);
  const int64_t id = mine ? call.ids.data[i] : 0;
  uint32_t row = DeviceStore::kNoRow;
  DeviceIndex::Outcome outcome = DeviceIndex::Outcome::kNone;
  int64_t value = 0;
  bool reused_any = false;
  if (call.options.insert) {
    const uint32_t free = call.state->free_rows;
    const uint32_t high_water = call.state->high_water;
    outcome = call.index.FindOrInsert(
        mine, id,
        [&](bool inserts, bool reused) -> int64_t {
          reused_any = reused_any || reused;
          const uint32_t place = TakePlaces(inserts, &call.state->taken);
          if (!inserts) return 0;
          return place < free ? *call.rows.free(free - 1 - place)
                              : high_water + (place - free);
        },
        &value);
  } else if (mine && call.index.Find(id, &value) >= 0) {
    outcome = DeviceIndex::Outcome::kFound;
  }
  const bool was = outcome == DeviceIndex::Outcome::kFound;
  const bool is_new = outcome == DeviceIndex::Outcome::kInserted;
  uint64_t what = 0;
  if (was || is_new) {
    row = static_cast<uint32_t>(value);
    if (is_new) {
      const uint32_t frequency = call.frequencies != nullptr
                                     ? call.frequencies[i]
                                 : call.options.count_frequency ? call.Times(i)
                                                                : 0;
      *call.rows.meta(row) = {id, call.now, frequency, 1u};
      if (call.rows.marking) {
        // The image of the row that was here is saved.
        uint32_t* const mark = call.rows.mark(row);
        *mark = (*mark & kTakenRow) | kChangedRow;
      }
    } else if (call.options.count_frequency && call.options.count_resident) {
      call.Count(call.rows.meta(row), i);
    }
    what = SourceOf(call.rows.values(row)) +
           (call.values != nullptr ? kAssign
            : is_new               ? kBegin
                                   : kRead) +
           (is_new ? kFresh : 0);
  }
  if (mine && call.refs != nullptr) call.refs[i] = row;
  if (mine && call.found != nullptr) call.found[i] = was;
  if (out == nullptr && (what & kWhatToDo) == kRead) what = 0;
  const uint64_t base = call.initial.value.BaseOf(id);
  const bool any = __ballot_sync(kWholeWarp, what != 0) != 0;
  const int lane = threadIdx.x % kWarp;
  const int lanes = 1 << call.lane_bits;
  const int step = kWarp >> call.lane_bits;
  const int own = lane >> call.lane_bits;
  const int64_t first = i - lane;
  for (int begin = own; any && begin < kWarp + own; begin += step * kAtOnce) {
    uint64_t at[kAtOnce];
    uint64_t bases[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int number = begin + k * step;
      at[k] = __shfl_sync(kWholeWarp, what, number % kWarp);
      bases[k] = __shfl_sync(kWholeWarp, base, number % kWarp);
      if (number >= kWarp) at[k] = 0;
    }
    for (int64_t u = lane & (lanes - 1); u < call.units; u += lanes) {
      Unit unit[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int64_t number = first + begin + k * step;
        if ((at[k] & kWhatToDo) == kRead) {
          unit[k] = reinterpret_cast<const Unit*>(at[k] & ~kFlags)[u];
        } else if ((at[k] & kWhatToDo) == kAssign) {
          const int64_t source =
              call.from == nullptr ? number : call.from[number];
          unit[k] =
              static_cast<const Unit*>(call.values)[source * call.units + u];
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (at[k] == 0) continue;
        if ((at[k] & kWhatToDo) == kBegin) {
          unit[k] = call.initial.Draw<Unit>(bases[k], u);
        }
        if ((at[k] & kWhatToDo) != kRead) {
          reinterpret_cast<Unit*>(at[k] & ~kFlags)[u] = unit[k];
        }
        if (out != nullptr) {
          out[(first + begin + k * step) * call.units + u] = unit[k];
        }
      }
    }
    if (call.slots.num_slots == 0) continue;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const uint32_t new_row =
          __shfl_sync(kWholeWarp, row, (begin + k * step) % kWarp);
      if ((at[k] & kFresh) != 0) {
        call.slots.Fill(call.rows, new_row, lane & (lanes - 1), lanes);
      }
    }
  }
  if (call.options.insert) CountBlock(reused_any, &call.state->reused);
  if (call.options.count_events) {
    CountBlock(was, &call.state->events[Event::kHits]);
    CountBlock(mine && !was, &call.state->events[Event::kMisses]);
  }
}

// Ends a call that allocated or freed rows.
__global__ void SettleKernel(DeviceTableState* state, bool admission,
                             bool evicted) {
  if (ThreadNumber() != 0) return;
  (evicted ? state->events[Event::kEvicted] : state->events[Event::kRemoved]) +=
      state->freed;
  const uint32_t taken = state->taken;
  const uint32_t again = min(taken, state->free_rows);
  state->free_rows += state->freed - again;
  state->high_water += taken - again;
  state->rows += taken;
  state->rows -= state->freed;
  state->cells += taken - state->reused - state->emptied;
  state->events[Event::kInserts] += taken;
  if (admission) state->events[Event::kAdmitted] += taken;
  state->taken = 0;
  state->reused = 0;
  state->emptied = 0;
  state->freed = 0;
}

__global__ void ClearKernel(DeviceTableState* state) {
  if (ThreadNumber() != 0) return;
  DeviceTableState cleared;
  cleared.events = state->events;
  cleared.events[Event::kRemoved] += state->rows;
  *state = cleared;
}

__global__ void RemoveKernel(DeviceIndex index, DeviceRows rows,
                             DeviceTableState* state, DeviceStore::Ids ids,
                             int64_t* removed_ids) {
  const int64_t i = ThreadNumber();
  int64_t value = 0;
  bool emptied = false;
  const bool removed =
      i < SizeOf(ids) && index.Remove(ids.data[i], &value, &emptied);
  TakePlaces(removed && emptied, &state->emptied);
  const uint32_t place = TakePlaces(removed, &state->freed);
  if (!removed) return;
  const uint32_t row = static_cast<uint32_t>(value);
  rows.meta(row)->live = 0;
  *rows.free(state->free_rows + place) = row;
  if (removed_ids != nullptr) removed_ids[place] = ids.data[i];
}

__global__ void ListIdsKernel(DeviceRows rows, uint32_t high_water,
                              uint32_t* count, int64_t* ids) {
  const int64_t row = ThreadNumber();
  const DeviceRowMeta* const meta =
      row < high_water ? rows.meta(static_cast<uint32_t>(row)) : nullptr;
  const bool live = meta != nullptr && meta->live != 0;
  const uint32_t place = TakePlaces(live, count);
  if (live) ids[place] = meta->id;
}

// Protects rows that a call has found from eviction.
__global__ void MarkRowsKernel(DeviceRows rows, const uint32_t* refs,
                               int64_t count, uint32_t mark) {
  const int64_t i = ThreadNumber();
  if (i < count && refs[i] != DeviceStore::kNoRow) {
    rows.meta(refs[i])->live = mark;
  }
}

// Compacts the listed ids of a batch into a batch of their own, with their
// sources (taken from `from` if given) and the frequencies of their rows.
struct TakeCall {
  const uint32_t* list;
  int64_t count;
  const int64_t* ids;
  const int64_t* from;
  const DeviceAdmission::PlannedId* planned;
  const uint32_t* occurrences;  // to be added; null: none
  int64_t* listed_ids;
  int64_t* listed_from;
  uint32_t* frequencies;
};

__global__ void TakeListedKernel(TakeCall call) {
  const int64_t k = ThreadNumber();
  if (k >= call.count) return;
  const int64_t i = call.list[k];
  call.listed_ids[k] = call.ids[i];
  call.listed_from[k] = call.from == nullptr ? i : call.from[i];
  call.frequencies[k] =
      SaturatingAdd(call.planned[i].frequency,
                    call.occurrences == nullptr ? 0 : call.occurrences[i]);
}

__global__ void PutListedKernel(const uint32_t* list, int64_t count,
                                const uint32_t* listed_refs, uint32_t* refs) {
  const int64_t k = ThreadNumber();
  if (k < count) refs[list[k]] = listed_refs[k];
}

__global__ void AddRefusedKernel(DeviceTableState* state, int64_t refused) {
  if (ThreadNumber() == 0) state->events[Event::kRefused] += refused;
}

}  // namespace

Status DeviceStore::PlanInsert(const DeviceStream& on, const Ids& ids,
                               const InsertOptions& options,
                               PlannedInsert* plan) {
  using Admit = LookupOptions::Admit;
  plan->ids = ids;
  plan->options = options;
  plan->now = step();
  if (options.admit == Admit::kNone && !admission_.any()) {
    plan->options.insert = false;
  }
  if (!plan->options.insert) return Status();
  const int64_t cap = eviction().max_rows;
  bool binds = cap > 0 && rows_bound_ + ids.size > cap;
  if (binds) {
    LODESTAR_RETURN_IF_ERROR(Fetch(on));
    binds = rows_bound_ + ids.size > cap;
  }
  if (!binds && !admission_.any()) return ReserveMore(on, ids);
  plan->by_id = true;
  constexpr const char* kFor = "an insertion";
  LODESTAR_RETURN_IF_ERROR(plan->refs.Allocate(on.memory, ids.size, kFor));
  LODESTAR_RETURN_IF_ERROR(plan->refs.Fill(on, 0xff));
  InsertOptions look;
  look.insert = false;
  look.count_events = false;
  look.skipped = options.skipped;
  LODESTAR_RETURN_IF_ERROR(InsertLocked(on, ids, plan->now, look, {},
                                        {plan->refs.data(), nullptr, nullptr}));
  plan->call = {plan->now, options.admission, options.admit,
                options.count_frequency, options.occurrences};
  DeviceAdmission::Plan& admission = plan->admission;
  LODESTAR_RETURN_IF_ERROR(admission_.PlanIds(
      on, ids, options.skipped, plan->refs.data(), plan->call, &admission));
  const int64_t excess = binds ? rows_bound_ + admission.num_admitted - cap : 0;
  if (excess > 0 && eviction().raise_when_full) {
    return TableIsFull(policies(), rows_bound_, admission.num_admitted);
  }
  if (excess > 0) {
    // Refuses the ids with the smallest mixed ids.
    LODESTAR_RETURN_IF_ERROR(SortPairs(on, admission.num_admitted, 64,
                                       &admission.mixed_ids, &admission.list));
    const auto mark = [&](uint32_t what) {
      mutex_.AssertHeld();
      return CudaStatus(Launch(MarkRowsKernel, ids.size, on.stream, rows(),
                               plan->refs.data(), ids.size, what),
                        kFor);
    };
    EvictionPolicy by_order;
    by_order.order = eviction().order;
    LODESTAR_RETURN_IF_ERROR(mark(kMarkedRow));
    const Status status = FindVictims(on, by_order, plan->now, excess,
                                      &plan->victims, &plan->num_victims);
    LODESTAR_RETURN_IF_ERROR(mark(1));
    LODESTAR_RETURN_IF_ERROR(status);
    plan->refused = excess - plan->num_victims;
    LODESTAR_RETURN_IF_ERROR(
        ReserveRemoval(on, plan->num_victims, &plan->removed));
  }
  plan->added = admission.num_admitted - plan->refused;
  LODESTAR_RETURN_IF_ERROR(
      plan->listed.Allocate(on.memory, 2 * plan->added, kFor));
  LODESTAR_RETURN_IF_ERROR(
      plan->listed_numbers.Allocate(on.memory, 2 * plan->added, kFor));
  LODESTAR_RETURN_IF_ERROR(admission_.Reserve(on, admission, plan->refused));
  return ReserveRows(on, plan->added);
}

Status DeviceStore::CommitInsert(const DeviceStream& on,
                                 const PlannedInsert& plan,
                                 const Assigned& assigned,
                                 const Outputs& outputs) {
  const Ids& ids = plan.ids;
  const InsertOptions& options = plan.options;
  if (!plan.by_id) {
    return InsertLocked(on, ids, plan.now, options, assigned, outputs);
  }
  if (plan.num_victims > 0) {
    LODESTAR_RETURN_IF_ERROR(
        RemoveLocked(on, {plan.victims.data(), plan.num_victims, nullptr}, true,
                     plan.removed));
  }
  if (plan.refused > 0) {
    LODESTAR_CUDA_TRY(
        Launch(AddRefusedKernel, 1, on.stream, state_.data(), plan.refused));
    LODESTAR_RETURN_IF_ERROR(
        admission_.Refuse(on, plan.admission, plan.refused));
  }
  LODESTAR_RETURN_IF_ERROR(
      admission_.Commit(on, ids, plan.call, plan.admission));
  // Counts the resident ids first, then inserts the others.
  InsertOptions see = options;
  see.insert = false;
  LODESTAR_RETURN_IF_ERROR(
      InsertLocked(on, ids, plan.now, see, assigned,
                   {plan.refs.data(), outputs.found, nullptr}));
  TakeCall take = {};
  take.list = plan.admission.list.data() + plan.refused;
  take.count = plan.added;
  take.ids = ids.data;
  take.from = assigned.from;
  take.planned = plan.admission.ids.data();
  if (options.count_frequency && options.count_resident) {
    take.occurrences = options.occurrences;
  }
  take.listed_ids = plan.listed.data();
  take.listed_from = plan.listed.data() + plan.added;
  take.frequencies = plan.listed_numbers.data();
  uint32_t* const listed_refs = plan.listed_numbers.data() + plan.added;
  LODESTAR_CUDA_TRY(Launch(TakeListedKernel, plan.added, on.stream, take));
  InsertOptions insert;
  insert.admission = options.admission;
  insert.count_events = false;
  LODESTAR_RETURN_IF_ERROR(
      InsertLocked(on, {take.listed_ids, plan.added, nullptr}, plan.now, insert,
                   {take.listed_from, assigned.rows},
                   {listed_refs, nullptr, nullptr}, take.frequencies));
  LODESTAR_CUDA_TRY(Launch(PutListedKernel, plan.added, on.stream, take.list,
                           plan.added, listed_refs, plan.refs.data()));
  if (outputs.refs != nullptr) {
    LODESTAR_RETURN_IF_ERROR(
        CopyOnDevice(on, plan.refs.data(), plan.refs.bytes(), outputs.refs));
  }
  if (outputs.rows == nullptr) return Status();
  return ReadRowsLocked(on, ids, nullptr, plan.refs.data(), {}, outputs.rows);
}

Status DeviceStore::InsertLocked(const DeviceStream& on, const Ids& ids,
                                 int64_t now, const InsertOptions& options,
                                 const Assigned& assigned,
                                 const Outputs& outputs,
                                 const uint32_t* frequencies) {
  if (ids.size == 0) return Status();
  if (options.count_frequency || assigned.rows != nullptr) {
    std::optional<int64_t> counted;
    if (assigned.rows == nullptr && options.occurrences == nullptr) {
      counted = now;
    }
    LODESTAR_RETURN_IF_ERROR(BeforeWrite(on, ids, counted));
  }
  InsertCall call = {};
  call.index = index();
  call.rows = rows();
  call.state = state_.data();
  call.ids = ids;
  call.options = options;
  call.now = now;
  call.initial = initial();
  call.slots = slot_fill();
  call.from = assigned.from;
  call.values = assigned.rows;
  call.frequencies = frequencies;
  call.refs = outputs.refs;
  call.found = outputs.found;
  const int unit = UnitBytes(row_bytes(), assigned.rows, outputs.rows);
  call.units = row_bytes() / unit;
  call.lane_bits = LaneBits(call.units);
  LODESTAR_RETURN_IF_ERROR(VisitUnit(unit, [&](auto zero) {
    using Unit = decltype(zero);
    return CudaStatus(Launch(InsertKernel<Unit>, ids.size, on.stream, call,
                             static_cast<Unit*>(outputs.rows)),
                      "insert");
  }));
  if (!options.insert) return Status();
  rows_bound_ += ids.size;
  cells_bound_ += ids.size;
  return CudaStatus(Launch(SettleKernel, 1, on.stream, state_.data(),
                           options.admission, false),
                    "insert");
}

Status DeviceStore::FindOrInsert(const DeviceStream& on,
                                 Span<const TableInsert> tables) try {
  std::vector<DeviceStore*> stores;
  for (const TableInsert& insert : tables) stores.push_back(insert.store);
  std::vector<PlannedInsert> plans(tables.size());
  WriteTurns turns;
  LODESTAR_RETURN_IF_ERROR(turns.Begin(on, std::move(stores)));
  for (int64_t t = 0; t < tables.size(); ++t) {
    LODESTAR_RETURN_IF_ERROR(tables[t].store->PlanInsert(
        on, tables[t].unique_ids, tables[t].options, &plans[t]));
  }
  for (int64_t t = 0; t < tables.size(); ++t) {
    LODESTAR_RETURN_IF_ERROR(
        tables[t].store->CommitInsert(on, plans[t], {}, tables[t].outputs));
  }
  return turns.End();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the rows of a batch.");
}

Status DeviceStore::Lookup(const TableLookup& lookup,
                           const Execution& execution) {
  const DeviceStream& on = execution.stream();
  const Ids ids = {lookup.ids.data(), lookup.ids.size(), nullptr};
  DeviceBatch batch;
  LODESTAR_RETURN_IF_ERROR(batch.Unique(on, ids, lookup.padding_id));
  int64_t count = 0;
  int64_t padding = 0;
  LODESTAR_RETURN_IF_ERROR(batch.Count(on, &count, &padding));
  int64_t* unique_ids = nullptr;
  LookupPlan* plan = nullptr;
  LODESTAR_RETURN_IF_ERROR(lookup.allocate(count, &unique_ids, &plan));
  LODESTAR_RETURN_IF_ERROR(
      batch.Copy(on, count, unique_ids, lookup.positions.data()));
  DeviceArray<uint32_t> refs;
  LODESTAR_RETURN_IF_ERROR(refs.Allocate(on.memory, count, "row locations"));
  DeviceArray<uint32_t> occurrences;
  if (counts_occurrences()) {
    LODESTAR_RETURN_IF_ERROR(batch.CountOccurrences(on, count, &occurrences));
  }
  LODESTAR_RETURN_IF_ERROR(
      FindOrInsert(on, {batch.ids().data, count, nullptr},
                   InsertOptions(lookup.options, occurrences.data()),
                   {refs.data(), nullptr, nullptr}));
  CountBatch(ids.size, count, padding);
  return ReadRows(on, ids, batch.positions(), refs.data(), lookup.missing,
                  lookup.rows);
}

Status DeviceStore::LookupUnique(const UniqueLookup& lookup,
                                 const Execution& execution) {
  const DeviceStream& on = execution.stream();
  const Ids ids = {lookup.ids.data(), lookup.ids.size(), nullptr};
  if (!lookup.known_unique) {
    int64_t unique = 0;
    DeviceBatch batch;
    LODESTAR_RETURN_IF_ERROR(batch.Unique(on, ids, nullptr));
    LODESTAR_RETURN_IF_ERROR(batch.Count(on, &unique));
    if (unique != ids.size) {
      return InvalidArgument("`ids` must be unique, but only ", unique, " of ",
                             ids.size, " ids are.");
    }
  }
  DeviceArray<uint32_t> refs;
  LODESTAR_RETURN_IF_ERROR(refs.Allocate(on.memory, ids.size, "row locations"));
  DeviceArray<uint32_t> occurrences;
  int64_t num_ids = lookup.occurrences.empty() ? ids.size : 0;
  for (const uint32_t times : lookup.occurrences) num_ids += times;
  LODESTAR_RETURN_IF_ERROR(occurrences.Allocate(
      on.memory, lookup.occurrences.size(), "the occurrences of ids"));
  LODESTAR_RETURN_IF_ERROR(StageToDevice(
      on, lookup.occurrences.data(), occurrences.bytes(), occurrences.data()));
  LODESTAR_RETURN_IF_ERROR(
      FindOrInsert(on, ids, InsertOptions(lookup.options, occurrences.data()),
                   {refs.data(), lookup.resident, nullptr}));
  CountBatch(num_ids, ids.size, 0);
  return ReadRows(on, ids, nullptr, refs.data(), lookup.missing, lookup.rows);
}

Status DeviceStore::InsertOrAssign(Span<const int64_t> ids, const void* rows,
                                   const Execution& execution) {
  const DeviceStream& on = execution.stream();
  DeviceBatch batch;
  LODESTAR_RETURN_IF_ERROR(batch.Unique(on, {ids.data(), ids.size(), nullptr},
                                        nullptr, DeviceBatch::Which::kLast));
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  InsertOptions options;
  options.count_events = false;
  options.admission = false;
  PlannedInsert plan;
  LODESTAR_RETURN_IF_ERROR(PlanInsert(on, batch.ids(), options, &plan));
  LODESTAR_RETURN_IF_ERROR(
      CommitInsert(on, plan, {batch.occurrences(), rows}, {}));
  return turn.End();
}

Status DeviceStore::Remove(Span<const int64_t> ids, int64_t* removed,
                           const Execution& execution) {
  const DeviceStream& on = execution.stream();
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  const int64_t before = rows_bound_;
  DeviceArray<int64_t> gone;
  LODESTAR_RETURN_IF_ERROR(ReserveRemoval(on, ids.size(), &gone));
  LODESTAR_RETURN_IF_ERROR(
      RemoveLocked(on, {ids.data(), ids.size(), nullptr}, false, gone));
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  *removed = before - rows_bound_;
  return turn.End();
}

Status DeviceStore::ReserveRemoval(const DeviceStream& on, int64_t count,
                                   DeviceArray<int64_t>* removed) const {
  if (!marking()) return Status();
  return removed->Allocate(on.memory, count, "the removed ids");
}

Status DeviceStore::RemoveLocked(const DeviceStream& on, const Ids& ids,
                                 bool evicted,
                                 const DeviceArray<int64_t>& removed) {
  LODESTAR_RETURN_IF_ERROR(BeforeWrite(on, ids));
  LODESTAR_CUDA_TRY(Launch(RemoveKernel, ids.size, on.stream, index(), rows(),
                           state_.data(), ids, removed.data()));
  LODESTAR_RETURN_IF_ERROR(NoteRemoved(on, removed));
  return CudaStatus(
      Launch(SettleKernel, 1, on.stream, state_.data(), false, evicted),
      "removal");
}

Status DeviceStore::Clear(const Execution& execution) {
  const DeviceStream& on = execution.stream();
  MutexLock lock(&mutex_);
  WaitForEndOfSnapshot();
  ForgetBase();
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(RemoveAllLocked(on));
  LODESTAR_RETURN_IF_ERROR(admission_.Clear(on));
  LODESTAR_RETURN_IF_ERROR(FillShared(on));
  return turn.End();
}

Status DeviceStore::RemoveAll(const Execution& execution) {
  const DeviceStream& on = execution.stream();
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  if (!snapshot_runs()) {
    LODESTAR_RETURN_IF_ERROR(RemoveAllLocked(on));
    ForgetBase();
    return turn.End();
  }
  constexpr const char* kFor = "the removal of all rows";
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  DeviceArray<int64_t> ids;
  DeviceArray<uint32_t> count;
  LODESTAR_RETURN_IF_ERROR(ids.Allocate(on.memory, fetched_->rows, kFor));
  LODESTAR_RETURN_IF_ERROR(count.Allocate(on.memory, 1, kFor));
  LODESTAR_RETURN_IF_ERROR(count.Fill(on, 0));
  LODESTAR_CUDA_TRY(Launch(ListIdsKernel, fetched_->high_water, on.stream,
                           rows(), fetched_->high_water, count.data(),
                           ids.data()));
  DeviceArray<int64_t> removed;
  LODESTAR_RETURN_IF_ERROR(ReserveRemoval(on, ids.size(), &removed));
  LODESTAR_RETURN_IF_ERROR(
      RemoveLocked(on, {ids.data(), ids.size(), nullptr}, false, removed));
  return turn.End();
}

Status DeviceStore::RemoveAllLocked(const DeviceStream& on) {
  LODESTAR_RETURN_IF_ERROR(tags_.Fill(on, 0));
  LODESTAR_RETURN_IF_ERROR(entries_.Fill(on, 0xff));
  LODESTAR_CUDA_TRY(Launch(ClearKernel, 1, on.stream, state_.data()));
  rows_bound_ = 0;
  cells_bound_ = 0;
  number_ = NextNumber();
  return Status();
}

}  // namespace lodestar
