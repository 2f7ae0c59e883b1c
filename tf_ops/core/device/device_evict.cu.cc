// DeviceStore: selection of rows to evict.

#include <algorithm>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_sort.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/rows/admission_rule.h"

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
  const bool old = call.policy.max_age >= 0 &&
                   IsOlder(meta.last_seen, call.now, call.policy.max_age);
  const bool goes =
      may_go && (old || meta.frequency < call.policy.min_frequency ||
                 (call.policy.min_norm > 0.0f &&
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

}  // namespace

Status DeviceStore::FindVictims(const DeviceStream& on,
                                const EvictionPolicy& policy, int64_t now,
                                int64_t excess, DeviceArray<int64_t>* victims,
                                int64_t* count) {
  *count = 0;
  const bool by_rule = policy.scans_rows() || policy.max_age >= 0;
  if (!by_rule && excess <= 0) return Status();
  constexpr const char* kFor = "rows to evict";
  const int64_t rows_before = fetched_->high_water;
  DeviceArray<uint32_t> counts;
  DeviceArray<uint32_t> candidates;
  LODESTAR_RETURN_IF_ERROR(counts.Allocate(on.memory, 2, kFor));
  LODESTAR_RETURN_IF_ERROR(victims->Allocate(on.memory, rows_before, kFor));
  LODESTAR_RETURN_IF_ERROR(
      candidates.Allocate(on.memory, excess > 0 ? rows_before : 0, kFor));
  LODESTAR_RETURN_IF_ERROR(counts.Fill(on, 0));
  EvictCall call = {};
  call.rows = rows();
  call.high_water = fetched_->high_water;
  call.policy = policy;
  call.now = now;
  call.dim = dim();
  call.by_order = excess > 0;
  call.counts = counts.data();
  call.victims = victims->data();
  call.candidates = candidates.data();
  LODESTAR_RETURN_IF_ERROR(VisitRowType(type(), [&](auto zero) {
    return CudaStatus(
        Launch(FindVictimsKernel<decltype(zero)>, rows_before, on.stream, call),
        kFor);
  }));
  uint32_t found[2];
  LODESTAR_RETURN_IF_ERROR(CopyToHost(on, counts.data(), sizeof(found), found));
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
                             victims->data() + found[0]));
  }
  *count = int64_t{found[0]} + std::max<int64_t>(more, 0);
  return Status();
}

Status DeviceStore::EvictRows(const EvictionPolicy& policy,
                              const AllocateEvicted& allocate, int64_t* evicted,
                              const Execution& execution) {
  const DeviceStream& on = execution.stream();
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  const int64_t excess =
      policy.max_rows > 0 ? rows_bound_ - policy.max_rows : 0;
  const int64_t now = step();
  DeviceArray<int64_t> victims;
  DeviceArray<int64_t> removed;
  LODESTAR_RETURN_IF_ERROR(
      FindVictims(on, policy, now, excess, &victims, evicted));
  const Ids gone = {victims.data(), *evicted, nullptr};
  LODESTAR_RETURN_IF_ERROR(ReserveRemoval(on, *evicted, &removed));
  if (allocate) LODESTAR_RETURN_IF_ERROR(CopyVictims(on, gone, allocate));
  LODESTAR_RETURN_IF_ERROR(RemoveLocked(on, gone, true, removed));
  if (policy.max_age >= 0) {
    LODESTAR_RETURN_IF_ERROR(admission_.Forget(on, policy.max_age, now));
  }
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  return turn.End();
}

Status DeviceStore::EvictDue(const EvictionPolicy& due, const Execution& on) {
  EvictionPolicy policy = due;
  {
    // What an earlier call had no memory for.
    MutexLock lock(&mutex_);
    if (postponed_.min_norm > 0.0f) policy.min_norm = postponed_.min_norm;
    if (postponed_.min_frequency > 0) {
      policy.min_frequency = postponed_.min_frequency;
    }
  }
  int64_t evicted = 0;
  const Status status = Evict(policy, &evicted, on);
  const bool postpones = status.code() == StatusCode::kResourceExhausted;
  MutexLock lock(&mutex_);
  postponed_ = postpones ? policy : EvictionPolicy();
  return postpones ? Status() : status;
}

}  // namespace lodestar
