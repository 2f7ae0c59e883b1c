#include "tf_ops/core/device/device_admission.h"

#include <algorithm>
#include <utility>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_sort.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/rows/admission_rule.h"

namespace lodestar {

struct AdmissionView {
  DeviceIndex index;  // from pending ids to occurrences
  int64_t* last_seen;
  DeviceAdmission::PendingCounts* counts;
  bool none_pending;  // ignore the index
  bool sketched;
  uint32_t* sketch;  // null: nothing counted
  int64_t num_counters;
  int num_hashes;

  // Returns the cell of a pending id, or -1.
  __device__ int64_t Find(int64_t id, uint32_t* occurrences) const {
    int64_t value = 0;
    const int64_t cell = none_pending ? -1 : index.Find(id, &value);
    *occurrences = cell < 0 ? 0 : static_cast<uint32_t>(value);
    return cell;
  }
  __device__ uint32_t Estimate(int64_t id) const {
    if (sketch == nullptr) return 0;
    uint32_t estimate = kMaxSketchCount;
    ForEachCounter(id, num_counters, num_hashes, [&](int64_t c) {
      estimate = min(estimate, sketch[c / 4] >> (8 * (c % 4)) & 0xffu);
    });
    return estimate;
  }
  // Raises each counter to at least `count`. The result does not depend on the
  // order of threads.
  __device__ void Raise(int64_t id, uint32_t count) const {
    ForEachCounter(id, num_counters, num_hashes, [&](int64_t c) {
      const uint32_t shift = 8 * (c % 4);
      uint32_t was = *static_cast<volatile uint32_t*>(sketch + c / 4);
      while ((was >> shift & 0xffu) < count) {
        const uint32_t found = atomicCAS(
            sketch + c / 4, was, (was & ~(0xffu << shift)) | (count << shift));
        if (found == was) return;
        was = found;
      }
    });
  }
};

namespace {

using PlannedId = DeviceAdmission::PlannedId;

constexpr const char* kFor = "admission";
constexpr double kMaxLoad = 0.85;

// Flipping the sign bit makes ids sort as unsigned integers.
constexpr uint64_t kSignBit = uint64_t{1} << 63;

struct PlanCall {
  AdmissionView view;
  AdmissionRule rule;
  DeviceIds ids;
  const bool* skipped;
  const uint32_t* refs;
  DeviceAdmission::Call call;
  PlannedId* planned;
  uint64_t* mixed_ids;
  uint32_t* list;
  uint32_t* counts;  // admitted, waiting and missing ids
};

__global__ void PlanKernel(PlanCall call) {
  const int64_t i = ThreadNumber();
  const bool inside = i < SizeOf(call.ids);
  const bool missing = inside && call.refs[i] == DeviceStore::kNoRow &&
                       !(call.skipped != nullptr && call.skipped[i]);
  const int64_t id = inside ? call.ids.data[i] : 0;
  const uint32_t* const occurrences = call.call.occurrences;
  PlannedId planned = {};
  if (missing) {
    uint32_t before = 0;
    const int64_t cell = call.view.Find(id, &before);
    planned.pending = cell >= 0;
    if (call.call.admission) {
      const bool this_step =
          cell >= 0 && call.view.last_seen[cell] == call.call.now;
      if (call.view.sketched && !this_step) before = call.view.Estimate(id);
      const AdmissionRule::Result result = call.rule.Apply(
          before, this_step, occurrences == nullptr ? 0 : occurrences[i]);
      planned.occurrences = result.occurrences;
      planned.frequency = result.frequency;
      planned.fresh = result.fresh;
      planned.admitted = result.admitted;
    } else {
      planned.frequency =
          call.call.count_frequency && occurrences == nullptr ? 1 : 0;
      planned.admitted = true;
    }
  }
  if (inside) call.planned[i] = planned;
  const uint32_t place = TakePlaces(planned.admitted, call.counts);
  if (planned.admitted) {
    call.mixed_ids[place] = Mix64(static_cast<uint64_t>(id));
    call.list[place] = static_cast<uint32_t>(i);
  }
  CountBlock(planned.fresh && !planned.admitted && !planned.pending,
             call.counts + 1);
  CountBlock(missing, call.counts + 2);
}

__global__ void RefuseKernel(const uint32_t* list, int64_t count,
                             PlannedId* planned) {
  const int64_t k = ThreadNumber();
  if (k < count) planned[list[k]].admitted = false;
}

// Admitted ids are no longer pending.
__global__ void RemovePendingKernel(AdmissionView view, DeviceIds ids,
                                    const PlannedId* planned) {
  const int64_t i = ThreadNumber();
  int64_t value = 0;
  bool emptied = false;
  const bool removed = i < SizeOf(ids) && planned[i].admitted &&
                       planned[i].pending &&
                       view.index.Remove(ids.data[i], &value, &emptied);
  CountBlock(removed, &view.counts->removed);
  CountBlock(removed && emptied, &view.counts->emptied);
}

__global__ void InsertPendingKernel(AdmissionView view, DeviceIds ids,
                                    const PlannedId* planned) {
  const int64_t i = ThreadNumber();
  const bool mine = i < SizeOf(ids) && planned[i].fresh && !planned[i].admitted;
  bool reused_any = false;
  int64_t value = 0;
  const DeviceIndex::Outcome outcome = view.index.FindOrInsert(
      mine, mine ? ids.data[i] : 0,
      [&](bool, bool reused) -> int64_t {
        reused_any = reused_any || reused;
        return 0;
      },
      &value);
  CountBlock(outcome == DeviceIndex::Outcome::kInserted,
             &view.counts->inserted);
  CountBlock(reused_any, &view.counts->reused);
}

__global__ void SetPendingKernel(AdmissionView view, DeviceIds ids,
                                 const PlannedId* planned,
                                 const int64_t* last_seen, int64_t now) {
  const int64_t i = ThreadNumber();
  if (i >= SizeOf(ids) || !planned[i].fresh || planned[i].admitted) return;
  int64_t value = 0;
  const int64_t cell = view.index.Find(ids.data[i], &value);
  if (cell < 0) return;
  view.index.entries[cell].value = planned[i].occurrences;
  view.last_seen[cell] = last_seen == nullptr ? now : last_seen[i];
}

__global__ void RaiseKernel(AdmissionView view, DeviceIds ids,
                            const PlannedId* planned) {
  const int64_t i = ThreadNumber();
  if (i >= SizeOf(ids) || !planned[i].fresh) return;
  constexpr uint32_t kMost = kMaxSketchCount;
  view.Raise(ids.data[i], min(planned[i].occurrences, kMost));
}

// Returns the entry of a cell, if it is in use.
__device__ bool ReadCell(const DeviceIndex& index, int64_t cells, int64_t cell,
                         IndexEntry* entry) {
  if (cell >= cells ||
      reinterpret_cast<const uint8_t*>(index.tags)[cell] < kFirstTag) {
    return false;
  }
  *entry = index.entries[cell];
  return true;
}

// Two kernels move the pending ids: the first inserts them, the second finds
// their cells.
__global__ void MovePendingKernel(DeviceIndex from, int64_t cells,
                                  AdmissionView to) {
  IndexEntry entry = {};
  const bool mine = ReadCell(from, cells, ThreadNumber(), &entry);
  int64_t value = 0;
  to.index.FindOrInsert(
      mine, entry.key, [&](bool, bool) { return entry.value; }, &value);
  CountBlock(mine, &to.counts->inserted);
}

__global__ void MoveLastSeenKernel(DeviceIndex from, int64_t cells,
                                   const int64_t* from_seen, DeviceIndex to,
                                   int64_t* to_seen) {
  const int64_t from_cell = ThreadNumber();
  IndexEntry entry = {};
  if (!ReadCell(from, cells, from_cell, &entry)) return;
  int64_t value = 0;
  const int64_t cell = to.Find(entry.key, &value);
  if (cell >= 0) to_seen[cell] = from_seen[from_cell];
}

__global__ void ForgetKernel(AdmissionView view, int64_t cells, int64_t max_age,
                             int64_t now) {
  const int64_t cell = ThreadNumber();
  IndexEntry entry = {};
  int64_t value = 0;
  bool emptied = false;
  const bool removed = ReadCell(view.index, cells, cell, &entry) &&
                       IsOlder(view.last_seen[cell], now, max_age) &&
                       view.index.Remove(entry.key, &value, &emptied);
  CountBlock(removed, &view.counts->removed);
  CountBlock(removed && emptied, &view.counts->emptied);
}

__global__ void ReadCountsKernel(AdmissionView view, DeviceIds ids,
                                 int64_t* occurrences, int64_t* last_seen) {
  const int64_t i = ThreadNumber();
  if (i >= SizeOf(ids)) return;
  uint32_t count = 0;
  const int64_t cell = view.Find(ids.data[i], &count);
  occurrences[i] = cell >= 0 ? count : view.Estimate(ids.data[i]);
  last_seen[i] = cell >= 0 ? view.last_seen[cell] : -1;
}

// Lists pending ids, with a sketch only those of step `now`.
__global__ void ListPendingKernel(AdmissionView view, int64_t cells,
                                  int64_t now, uint32_t* count, uint64_t* keys,
                                  uint32_t* list) {
  const int64_t cell = ThreadNumber();
  IndexEntry entry = {};
  const bool mine = ReadCell(view.index, cells, cell, &entry) &&
                    (!view.sketched || view.last_seen[cell] == now);
  const uint32_t place = TakePlaces(mine, count);
  if (!mine) return;
  keys[place] = static_cast<uint64_t>(entry.key) ^ kSignBit;
  list[place] = static_cast<uint32_t>(cell);
}

__global__ void TakePendingKernel(AdmissionView view, const uint32_t* list,
                                  int64_t count, int64_t* ids,
                                  int64_t* occurrences, int64_t* last_seen) {
  const int64_t k = ThreadNumber();
  if (k >= count) return;
  const IndexEntry entry = view.index.entries[list[k]];
  ids[k] = entry.key;
  occurrences[k] = entry.value;
  last_seen[k] = view.last_seen[list[k]];
}

}  // namespace

AdmissionView DeviceAdmission::view(int64_t step) const {
  AdmissionView view = {};
  view.index = DeviceIndex::Of(tags_, entries_);
  view.last_seen = last_seen_.data();
  view.counts = counts_.data();
  view.none_pending = NonePending(step);
  view.sketched = sketched();
  view.sketch = sketch_.data();
  view.num_counters = policy_.num_counters;
  view.num_hashes = static_cast<int>(policy_.num_hashes);
  return view;
}

int64_t DeviceAdmission::bytes() const {
  return tags_.bytes() + entries_.bytes() + last_seen_.bytes() +
         sketch_.bytes();
}

Status DeviceAdmission::Init(const DeviceStream& on) {
  if (!any()) return Status();
  LODESTAR_RETURN_IF_ERROR(counts_.Allocate(allocator_, 1, kFor));
  return Rehash(on, kBucket, 0);
}

Status DeviceAdmission::ClearPending(const DeviceStream& on) {
  LODESTAR_RETURN_IF_ERROR(tags_.Fill(on, 0));
  LODESTAR_RETURN_IF_ERROR(entries_.Fill(on, 0xff));
  LODESTAR_RETURN_IF_ERROR(counts_.Fill(on, 0));
  cells_bound_ = 0;
  return Status();
}

Status DeviceAdmission::Rehash(const DeviceStream& on, int64_t cells,
                               int64_t ids) {
  DeviceArray<uint32_t> tags;
  DeviceArray<IndexEntry> entries;
  DeviceArray<int64_t> last_seen;
  LODESTAR_RETURN_IF_ERROR(tags.Allocate(allocator_, cells / 4, kFor));
  LODESTAR_RETURN_IF_ERROR(entries.Allocate(allocator_, cells, kFor));
  LODESTAR_RETURN_IF_ERROR(last_seen.Allocate(allocator_, cells, kFor));
  std::swap(tags, tags_);
  std::swap(entries, entries_);
  std::swap(last_seen, last_seen_);
  LODESTAR_RETURN_IF_ERROR(ClearPending(on));
  if (ids == 0) return Status();
  const int64_t before = entries.size();
  const DeviceIndex from = DeviceIndex::Of(tags, entries);
  const AdmissionView to = view(0);
  LODESTAR_CUDA_TRY(
      Launch(MovePendingKernel, before, on.stream, from, before, to));
  cells_bound_ = ids;
  return CudaStatus(Launch(MoveLastSeenKernel, before, on.stream, from, before,
                           last_seen.data(), to.index, last_seen_.data()),
                    kFor);
}

Status DeviceAdmission::Fetch(const DeviceStream& on,
                              PendingCounts* counts) const {
  return CopyToHost(on, counts_.data(), sizeof(*counts), counts);
}

Status DeviceAdmission::ReservePending(const DeviceStream& on, int64_t more) {
  const auto fits = [&] {
    return static_cast<double>(cells_bound_ + more) <=
           kMaxLoad * static_cast<double>(entries_.size());
  };
  if (fits()) return Status();
  PendingCounts counts;
  LODESTAR_RETURN_IF_ERROR(Fetch(on, &counts));
  cells_bound_ = counts.cells();
  if (fits()) return Status();
  // Leaves some room, or the next call would rehash again.
  const int64_t ids = counts.ids() + more;
  const double wanted = static_cast<double>(ids + ids / 4) / kMaxLoad;
  int64_t cells = kBucket;
  while (static_cast<double>(cells) <= wanted) cells *= 2;
  if (cells > int64_t{1} << 31) {
    return ResourceExhausted("a table on a GPU cannot count ", ids,
                             " ids that wait for a row.");
  }
  return Rehash(on, cells, counts.ids());
}

Status DeviceAdmission::ReserveSketch(const DeviceStream& on) {
  if (sketch_.data() != nullptr) return Status();
  LODESTAR_RETURN_IF_ERROR(sketch_.Allocate(
      allocator_, DivideUp(policy_.num_counters, 4), "admission counters"));
  return sketch_.Fill(on, 0);
}

Status DeviceAdmission::PlanIds(const DeviceStream& on, const DeviceIds& ids,
                                const bool* skipped, const uint32_t* refs,
                                const Call& call, Plan* plan) {
  using Admit = LookupOptions::Admit;
  DeviceArray<uint32_t> counts;
  LODESTAR_RETURN_IF_ERROR(counts.Allocate(on.memory, 3, kFor));
  LODESTAR_RETURN_IF_ERROR(plan->ids.Allocate(on.memory, ids.size, kFor));
  LODESTAR_RETURN_IF_ERROR(plan->list.Allocate(on.memory, ids.size, kFor));
  LODESTAR_RETURN_IF_ERROR(plan->mixed_ids.Allocate(on.memory, ids.size, kFor));
  LODESTAR_RETURN_IF_ERROR(counts.Fill(on, 0));
  PlanCall plan_call = {};
  plan_call.view = view(call.now);
  AdmissionRule& rule = plan_call.rule;
  rule.min_count = static_cast<uint32_t>(policy_.min_count);
  rule.sketch = sketched();
  rule.counts = call.count_frequency;
  rule.by_occurrence = call.occurrences != nullptr;
  rule.admits_all = call.admit == Admit::kAll;
  rule.admits_none = call.admit == Admit::kNone;
  plan_call.ids = ids;
  plan_call.skipped = skipped;
  plan_call.refs = refs;
  plan_call.call = call;
  plan_call.call.admission = call.admission && any();
  plan_call.planned = plan->ids.data();
  plan_call.mixed_ids = plan->mixed_ids.data();
  plan_call.list = plan->list.data();
  plan_call.counts = counts.data();
  LODESTAR_CUDA_TRY(Launch(PlanKernel, ids.size, on.stream, plan_call));
  uint32_t found[3];
  LODESTAR_RETURN_IF_ERROR(CopyToHost(on, counts.data(), sizeof(found), found));
  plan->num_admitted = found[0];
  plan->num_waiting = found[1];
  plan->num_missing = found[2];
  return Status();
}

Status DeviceAdmission::Reserve(const DeviceStream& on, const Plan& plan,
                                int64_t refused) {
  if (!any() || plan.num_missing == 0) return Status();
  if (sketched()) LODESTAR_RETURN_IF_ERROR(ReserveSketch(on));
  return ReservePending(on, plan.num_waiting + refused);
}

Status DeviceAdmission::Refuse(const DeviceStream& on, const Plan& plan,
                               int64_t refused) {
  return CudaStatus(Launch(RefuseKernel, refused, on.stream, plan.list.data(),
                           refused, plan.ids.data()),
                    kFor);
}

Status DeviceAdmission::Put(const DeviceStream& on, const DeviceIds& ids,
                            const PlannedId* planned, const int64_t* last_seen,
                            int64_t now) {
  LODESTAR_CUDA_TRY(Launch(InsertPendingKernel, ids.size, on.stream, view(now),
                           ids, planned));
  return CudaStatus(Launch(SetPendingKernel, ids.size, on.stream, view(now),
                           ids, planned, last_seen, now),
                    kFor);
}

Status DeviceAdmission::Commit(const DeviceStream& on, const DeviceIds& ids,
                               const Call& call, const Plan& plan) {
  if (!any() || plan.num_missing == 0) return Status();
  if (sketched()) {
    if (NonePending(call.now)) LODESTAR_RETURN_IF_ERROR(ClearPending(on));
    pending_step_ = call.now;
  }
  const PlannedId* const planned = plan.ids.data();
  LODESTAR_CUDA_TRY(Launch(RemovePendingKernel, ids.size, on.stream,
                           view(call.now), ids, planned));
  if (!call.admission || !call.count_frequency) return Status();
  cells_bound_ += plan.num_missing;
  LODESTAR_RETURN_IF_ERROR(Put(on, ids, planned, nullptr, call.now));
  if (!sketched()) return Status();
  counted_ = true;
  return CudaStatus(
      Launch(RaiseKernel, ids.size, on.stream, view(call.now), ids, planned),
      kFor);
}

Status DeviceAdmission::CountPending(const DeviceStream& on, int64_t step,
                                     int64_t* pending) const {
  *pending = 0;
  if (NonePending(step)) return Status();
  PendingCounts counts;
  LODESTAR_RETURN_IF_ERROR(Fetch(on, &counts));
  *pending = counts.ids();
  return Status();
}

Status DeviceAdmission::ReadCounts(const DeviceStream& on, const DeviceIds& ids,
                                   int64_t step,
                                   std::vector<int64_t>* occurrences,
                                   std::vector<int64_t>* last_seen) const {
  occurrences->assign(ids.size, 0);
  last_seen->assign(ids.size, -1);
  if (!any() || ids.size == 0) return Status();
  DeviceArray<int64_t> counts;
  LODESTAR_RETURN_IF_ERROR(counts.Allocate(on.memory, 2 * ids.size, kFor));
  int64_t* const seen = counts.data() + ids.size;
  LODESTAR_CUDA_TRY(Launch(ReadCountsKernel, ids.size, on.stream, view(step),
                           ids, counts.data(), seen));
  const int64_t bytes = counts.bytes() / 2;
  LODESTAR_CUDA_TRY(cudaMemcpyAsync(occurrences->data(), counts.data(), bytes,
                                    cudaMemcpyDeviceToHost, on.stream));
  return CopyToHost(on, seen, bytes, last_seen->data());
}

Status DeviceAdmission::Export(const DeviceStream& on,
                               EmbeddingRows* out) const {
  if (!any()) return Status();
  const auto download = [&](void* to, const void* from, int64_t bytes) {
    return CudaStatus(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, on.stream),
        kFor);
  };
  PendingCounts counts;
  LODESTAR_RETURN_IF_ERROR(Fetch(on, &counts));
  const int64_t most = counts.ids();
  const int64_t cells = entries_.size();
  const AdmissionView from = view(out->step);
  DeviceArray<uint32_t> count;
  DeviceArray<uint64_t> keys;
  DeviceArray<uint32_t> list;
  DeviceArray<int64_t> numbers;
  LODESTAR_RETURN_IF_ERROR(count.Allocate(on.memory, 1, kFor));
  LODESTAR_RETURN_IF_ERROR(keys.Allocate(on.memory, most, kFor));
  LODESTAR_RETURN_IF_ERROR(list.Allocate(on.memory, most, kFor));
  LODESTAR_RETURN_IF_ERROR(numbers.Allocate(on.memory, 3 * most, kFor));
  LODESTAR_RETURN_IF_ERROR(count.Fill(on, 0));
  LODESTAR_CUDA_TRY(Launch(ListPendingKernel, cells, on.stream, from, cells,
                           out->step, count.data(), keys.data(), list.data()));
  uint32_t n = 0;
  LODESTAR_RETURN_IF_ERROR(download(&n, count.data(), sizeof(n)));
  LODESTAR_CUDA_TRY(cudaStreamSynchronize(on.stream));
  LODESTAR_RETURN_IF_ERROR(SortPairs(on, n, 64, &keys, &list));
  LODESTAR_CUDA_TRY(Launch(TakePendingKernel, n, on.stream, from, list.data(),
                           int64_t{n}, numbers.data(), numbers.data() + n,
                           numbers.data() + 2 * n));
  std::vector<int64_t>* const parts[] = {
      &out->pending_ids, &out->pending_sightings, &out->pending_last_seen};
  for (int p = 0; n > 0 && p < 3; ++p) {
    parts[p]->resize(n);
    LODESTAR_RETURN_IF_ERROR(download(parts[p]->data(), numbers.data() + p * n,
                                      n * sizeof(int64_t)));
  }
  if (counted_) {
    out->sketch.resize(policy_.num_counters);
    LODESTAR_RETURN_IF_ERROR(
        download(out->sketch.data(), sketch_.data(), policy_.num_counters));
  }
  return CudaStatus(cudaStreamSynchronize(on.stream), kFor);
}

Status DeviceAdmission::Import(const DeviceStream& on,
                               const EmbeddingRowsView& rows) {
  if (!any()) return Status();
  const auto upload = [&](void* to, const void* from, int64_t bytes) {
    return CopyToDevice(on, from, bytes, to);
  };
  if (!rows.sketch.empty()) {
    LODESTAR_RETURN_IF_ERROR(ReserveSketch(on));
    LODESTAR_RETURN_IF_ERROR(
        upload(sketch_.data(), rows.sketch.data(), rows.sketch.size()));
    counted_ = true;
  }
  const int64_t n = rows.pending_ids.size();
  if (n == 0) return Status();
  std::vector<PlannedId> planned(n);
  for (int64_t i = 0; i < n; ++i) {
    planned[i].occurrences = static_cast<uint32_t>(rows.pending_sightings[i]);
    planned[i].fresh = true;
  }
  DeviceArray<PlannedId> device_planned;
  DeviceArray<int64_t> numbers;
  LODESTAR_RETURN_IF_ERROR(device_planned.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(numbers.Allocate(on.memory, 2 * n, kFor));
  LODESTAR_RETURN_IF_ERROR(ReservePending(on, n));
  LODESTAR_RETURN_IF_ERROR(
      upload(device_planned.data(), planned.data(), device_planned.bytes()));
  const int64_t bytes = numbers.bytes() / 2;
  LODESTAR_RETURN_IF_ERROR(
      upload(numbers.data(), rows.pending_ids.data(), bytes));
  LODESTAR_RETURN_IF_ERROR(
      upload(numbers.data() + n, rows.pending_last_seen.data(), bytes));
  pending_step_ = rows.pending_last_seen[0];
  cells_bound_ += n;
  return Put(on, {numbers.data(), n, nullptr}, device_planned.data(),
             numbers.data() + n, pending_step_);
}

Status DeviceAdmission::Forget(const DeviceStream& on, int64_t max_age,
                               int64_t now) {
  if (!any() || sketched()) return Status();
  return CudaStatus(Launch(ForgetKernel, entries_.size(), on.stream, view(now),
                           entries_.size(), max_age, now),
                    kFor);
}

Status DeviceAdmission::Clear(const DeviceStream& on) {
  if (!any()) return Status();
  sketch_ = DeviceArray<uint32_t>();
  counted_ = false;
  return ClearPending(on);
}

}  // namespace lodestar
