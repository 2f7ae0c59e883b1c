// DeviceStore: selection of rows to evict.

#include <algorithm>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_sort.h"
#include "tf_ops/core/device/device_store.h"

namespace lodestar {
namespace {

struct EvictCall {
  DeviceRows rows;
  uint32_t high_water;
  EvictionPolicy policy;
  int64_t now;
  int64_t dim;
  bool by_order;         // other rows are candidates
  uint32_t* counts;      // number of victims and of candidates
  int64_t* victims;      // ids
  uint32_t* candidates;  // rows
};

template <typename T>
__global__ void FindVictimsKernel(EvictCall call) {
  const int64_t thread = ThreadNumber();
  const uint32_t row = static_cast<uint32_t>(thread);
  DeviceRowMeta meta = {};
  if (thread < call.high_water) meta = *call.rows.meta(row);
  const bool may_go = meta.live != 0 && meta.live != kMarkedRow &&
                      !(meta.last_seen == call.now && meta.frequency > 0);
  const bool old =
      call.policy.max_age >= 0 &&
      static_cast<__int128>(call.now) - meta.last_seen > call.policy.max_age;
  const bool goes =
      may_go &&
      (old || (call.policy.min_norm > 0.0f &&
               IsShorter(reinterpret_cast<const T*>(call.rows.values(row)),
                         call.dim, call.policy.min_norm)));
  const uint32_t victim = TakePlaces(goes, call.counts);
  if (goes) call.victims[victim] = meta.id;
  const bool left = may_go && !goes && call.by_order;
  const uint32_t candidate = TakePlaces(left, call.counts + 1);
  if (left) call.candidates[candidate] = row;
}

enum class EvictionKeyPart { kMixedId, kLastSeen, kFrequency };

__global__ void KeysKernel(DeviceRows rows, const uint32_t* candidates,
                           int64_t count, EvictionKeyPart part,
                           uint64_t* keys) {
  const int64_t i = ThreadNumber();
  if (i >= count) return;
  const DeviceRowMeta meta = *rows.meta(candidates[i]);
  switch (part) {
    case EvictionKeyPart::kMixedId:
      keys[i] = Mix64(static_cast<uint64_t>(meta.id));
      return;
    case EvictionKeyPart::kLastSeen:
      keys[i] = static_cast<uint64_t>(meta.last_seen) ^ (uint64_t{1} << 63);
      return;
    case EvictionKeyPart::kFrequency:
      keys[i] = meta.frequency;
      return;
  }
}

__global__ void IdsOfRowsKernel(DeviceRows rows, const uint32_t* candidates,
                                int64_t count, int64_t* ids) {
  const int64_t i = ThreadNumber();
  if (i < count) ids[i] = rows.meta(candidates[i])->id;
}

// Protects rows that a call has found from eviction.
__global__ void MarkRowsKernel(DeviceRows rows, const uint32_t* refs,
                               int64_t count, uint32_t mark) {
  const int64_t i = ThreadNumber();
  if (i < count && refs[i] != DeviceStore::kNoRow) {
    rows.meta(refs[i])->live = mark;
  }
}

__global__ void ListMissingKernel(DeviceStore::Ids ids, const bool* skipped,
                                  const uint32_t* refs, uint32_t* count,
                                  uint64_t* mixed_ids, uint32_t* list) {
  const int64_t i = ThreadNumber();
  const bool mine = i < SizeOf(ids) && refs[i] == DeviceStore::kNoRow &&
                    !(skipped != nullptr && skipped[i]);
  const uint32_t place = TakePlaces(mine, count);
  if (!mine) return;
  mixed_ids[place] = Mix64(static_cast<uint64_t>(ids.data[i]));
  list[place] = static_cast<uint32_t>(i);
}

// Compacts the listed ids of a batch into a batch of their own, with their
// sources (taken from `from` if given).
__global__ void TakeListedKernel(const uint32_t* list, int64_t count,
                                 const int64_t* ids, const int64_t* from,
                                 int64_t* listed_ids, int64_t* listed_from) {
  const int64_t k = ThreadNumber();
  if (k >= count) return;
  const int64_t i = list[k];
  listed_ids[k] = ids[i];
  listed_from[k] = from == nullptr ? i : from[i];
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

Status DeviceStore::EvictLocked(const DeviceStream& on,
                                const EvictionPolicy& policy, int64_t excess,
                                int64_t* evicted) {
  *evicted = 0;
  const bool by_rule = policy.min_norm > 0.0f || policy.max_age >= 0;
  if (!by_rule && excess <= 0) return Status();
  constexpr const char* kFor = "rows to evict";
  const int64_t rows_before = fetched_->high_water;
  DeviceArray<uint32_t> counts;
  DeviceArray<int64_t> victims;
  DeviceArray<uint32_t> candidates;
  LODESTAR_RETURN_IF_ERROR(counts.Allocate(on.memory, 2, kFor));
  LODESTAR_RETURN_IF_ERROR(victims.Allocate(on.memory, rows_before, kFor));
  LODESTAR_RETURN_IF_ERROR(
      candidates.Allocate(on.memory, excess > 0 ? rows_before : 0, kFor));
  LODESTAR_CUDA_TRY(
      cudaMemsetAsync(counts.data(), 0, counts.bytes(), on.stream));
  EvictCall call = {};
  call.rows = rows();
  call.high_water = fetched_->high_water;
  call.policy = policy;
  call.now = step();
  call.dim = dim();
  call.by_order = excess > 0;
  call.counts = counts.data();
  call.victims = victims.data();
  call.candidates = candidates.data();
  LODESTAR_RETURN_IF_ERROR(VisitRowType(type(), [&](auto zero) {
    return CudaStatus(
        Launch(FindVictimsKernel<decltype(zero)>, rows_before, on.stream, call),
        kFor);
  }));
  uint32_t found[2];
  LODESTAR_CUDA_TRY(cudaMemcpyAsync(found, counts.data(), sizeof(found),
                                    cudaMemcpyDeviceToHost, on.stream));
  LODESTAR_CUDA_TRY(cudaStreamSynchronize(on.stream));
  const int64_t more = std::min<int64_t>(excess - int64_t{found[0]}, found[1]);
  if (more > 0) {
    // Sorts by the last part of the key first, with stable sorts.
    DeviceArray<uint64_t> keys;
    LODESTAR_RETURN_IF_ERROR(keys.Allocate(on.memory, rows_before, kFor));
    const auto sort = [&](EvictionKeyPart part, int bits) -> Status {
      LODESTAR_CUDA_TRY(Launch(KeysKernel, found[1], on.stream, call.rows,
                               candidates.data(), int64_t{found[1]}, part,
                               keys.data()));
      return SortPairs(on, found[1], bits, &keys, &candidates);
    };
    LODESTAR_RETURN_IF_ERROR(sort(EvictionKeyPart::kMixedId, 64));
    LODESTAR_RETURN_IF_ERROR(sort(EvictionKeyPart::kLastSeen, 64));
    if (policy.order == EvictionPolicy::Order::kLfu) {
      LODESTAR_RETURN_IF_ERROR(sort(EvictionKeyPart::kFrequency, 32));
    }
    LODESTAR_CUDA_TRY(Launch(IdsOfRowsKernel, more, on.stream, call.rows,
                             candidates.data(), more,
                             victims.data() + found[0]));
  }
  *evicted = int64_t{found[0]} + std::max<int64_t>(more, 0);
  return RemoveLocked(on, {victims.data(), *evicted, nullptr}, true);
}

Status DeviceStore::InsertUnderCap(const DeviceStream& on, const Ids& ids,
                                   const InsertOptions& options,
                                   const Assigned& assigned,
                                   const Outputs& outputs) {
  const int64_t cap = eviction().max_rows;
  bool binds = cap > 0 && options.insert && rows_bound_ + ids.size > cap;
  if (binds) {
    LODESTAR_RETURN_IF_ERROR(Fetch(on));
    binds = rows_bound_ + ids.size > cap;
  }
  if (options.insert) LODESTAR_RETURN_IF_ERROR(ReserveMore(on, ids));
  if (!binds) return InsertLocked(on, ids, options, assigned, outputs);
  // Finds which ids have a row. All allocations happen before the first row is
  // evicted.
  constexpr const char* kFor = "insertion under the cap";
  DeviceArray<uint32_t> refs;
  DeviceArray<uint32_t> count;
  DeviceArray<uint64_t> mixed_ids;
  DeviceArray<uint32_t> list;
  DeviceArray<int64_t> listed;
  DeviceArray<uint32_t> listed_refs;
  LODESTAR_RETURN_IF_ERROR(refs.Allocate(on.memory, ids.size, kFor));
  LODESTAR_RETURN_IF_ERROR(count.Allocate(on.memory, 1, kFor));
  LODESTAR_RETURN_IF_ERROR(mixed_ids.Allocate(on.memory, ids.size, kFor));
  LODESTAR_RETURN_IF_ERROR(list.Allocate(on.memory, ids.size, kFor));
  LODESTAR_RETURN_IF_ERROR(listed.Allocate(on.memory, 2 * ids.size, kFor));
  LODESTAR_RETURN_IF_ERROR(listed_refs.Allocate(on.memory, ids.size, kFor));
  LODESTAR_CUDA_TRY(
      cudaMemsetAsync(refs.data(), 0xff, refs.bytes(), on.stream));
  InsertOptions look;
  look.insert = false;
  look.count_events = false;
  look.skipped = options.skipped;
  LODESTAR_RETURN_IF_ERROR(
      InsertLocked(on, ids, look, {}, {refs.data(), nullptr, nullptr}));
  LODESTAR_CUDA_TRY(cudaMemsetAsync(count.data(), 0, count.bytes(), on.stream));
  LODESTAR_CUDA_TRY(Launch(ListMissingKernel, ids.size, on.stream, ids,
                           options.skipped, refs.data(), count.data(),
                           mixed_ids.data(), list.data()));
  uint32_t missing = 0;
  LODESTAR_CUDA_TRY(cudaMemcpyAsync(&missing, count.data(), sizeof(missing),
                                    cudaMemcpyDeviceToHost, on.stream));
  LODESTAR_CUDA_TRY(cudaStreamSynchronize(on.stream));
  int64_t refused = 0;
  const int64_t excess = rows_bound_ + missing - cap;
  if (excess > 0) {
    // Refuses the ids with the smallest mixed ids.
    LODESTAR_RETURN_IF_ERROR(SortPairs(on, missing, 64, &mixed_ids, &list));
    const auto mark = [&](uint32_t what) {
      return CudaStatus(Launch(MarkRowsKernel, ids.size, on.stream, rows(),
                               refs.data(), ids.size, what),
                        kFor);
    };
    EvictionPolicy by_order;
    by_order.order = eviction().order;
    int64_t evicted = 0;
    LODESTAR_RETURN_IF_ERROR(mark(kMarkedRow));
    const Status status = EvictLocked(on, by_order, excess, &evicted);
    LODESTAR_RETURN_IF_ERROR(mark(1));
    LODESTAR_RETURN_IF_ERROR(status);
    refused = excess - evicted;
    LODESTAR_CUDA_TRY(
        Launch(AddRefusedKernel, 1, on.stream, state_.data(), refused));
    LODESTAR_RETURN_IF_ERROR(Fetch(on));
  }
  // Counts the resident ids first, then inserts the others.
  InsertOptions see = options;
  see.insert = false;
  LODESTAR_RETURN_IF_ERROR(InsertLocked(on, ids, see, assigned,
                                        {refs.data(), outputs.found, nullptr}));
  const int64_t added = missing - refused;
  int64_t* const from = listed.data() + ids.size;
  LODESTAR_CUDA_TRY(Launch(TakeListedKernel, added, on.stream,
                           list.data() + refused, added, ids.data,
                           assigned.from, listed.data(), from));
  InsertOptions insert = options;
  insert.count_events = false;
  insert.skipped = nullptr;
  LODESTAR_RETURN_IF_ERROR(InsertLocked(
      on, {listed.data(), added, nullptr}, insert, {from, assigned.rows},
      {listed_refs.data(), nullptr, nullptr}));
  LODESTAR_CUDA_TRY(Launch(PutListedKernel, added, on.stream,
                           list.data() + refused, added, listed_refs.data(),
                           refs.data()));
  if (outputs.refs != nullptr) {
    LODESTAR_CUDA_TRY(cudaMemcpyAsync(outputs.refs, refs.data(), refs.bytes(),
                                      cudaMemcpyDeviceToDevice, on.stream));
  }
  if (outputs.rows == nullptr) return Status();
  return ReadRowsLocked(on, ids, nullptr, refs.data(), {}, outputs.rows);
}

Status DeviceStore::Evict(const EvictionPolicy& policy, int64_t* evicted,
                          const Execution& execution) {
  const DeviceStream& on = execution.stream();
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  const int64_t excess =
      policy.max_rows > 0 ? rows_bound_ - policy.max_rows : 0;
  LODESTAR_RETURN_IF_ERROR(EvictLocked(on, policy, excess, evicted));
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  return turn.End();
}

}  // namespace lodestar
