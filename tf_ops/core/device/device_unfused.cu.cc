// DeviceStore: updates computed outside of the table (unfused optimizers).
//
// The version of a row consists of its number and a count of its changes, which
// is stored behind its optimizer slots. BeforeWrite advances the count.

#include <cstdint>
#include <new>

#include "tf_ops/core/device/device_checked_gradients.h"
#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_sort.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/stochastic_rounding.h"
#include "tf_ops/core/table/lookup_plan.h"

namespace lodestar {
namespace {

constexpr const char* kFor = "an update of gathered rows";

__global__ void ChangeVersionsKernel(DeviceIndex index, DeviceRows rows,
                                     DeviceStore::Ids ids) {
  const int64_t i = ThreadNumber();
  int64_t row = 0;
  if (i < SizeOf(ids) && index.Find(ids.data[i], &row) >= 0) {
    atomicAdd(rows.version(static_cast<uint32_t>(row)), 1u);
  }
}

// Which of the ids are gathered, and where.
struct GatherIds {
  DeviceIndex index;
  DeviceStore::Ids ids;
  const bool* shared;
  const bool* skipped;  // null: none
  int64_t num_shared;
  uint32_t* refs;               // [N], the row of each id, or kNoRow
  uint32_t* found;              // [N], whether it has one
  unsigned long long* missing;  // how many have none
  unsigned long long* bad;      // index of the first number of no shared row
};

__global__ void FindGatheredKernel(GatherIds call) {
  const int64_t i = ThreadNumber();
  int64_t row = 0;
  bool found = false;
  bool missing = false;
  if (i < call.ids.size && !(call.skipped != nullptr && call.skipped[i])) {
    const int64_t id = call.ids.data[i];
    if (!call.shared[i]) {
      found = call.index.Find(id, &row) >= 0;
      missing = !found;
    } else if (id < 0 || id >= call.num_shared) {
      atomicMin(call.bad, static_cast<unsigned long long>(i));
    }
  }
  CountBlock(missing, call.missing);
  if (i >= call.ids.size) return;
  call.refs[i] = found ? static_cast<uint32_t>(row) : DeviceStore::kNoRow;
  call.found[i] = found;
}

// Sets first[k] to whether the readers of a shared row begin at place k.
__global__ void FirstReadersKernel(const uint32_t* keys, int64_t count,
                                   uint32_t* first) {
  const int64_t k = ThreadNumber();
  if (k >= count) return;
  first[k] =
      keys[k] != DeviceStore::kNoRow && (k == 0 || keys[k - 1] != keys[k]);
}

// Copies rows to arrays, or back.
struct RowsCall {
  DeviceRows rows;
  int64_t number;
  int64_t dim;
  int64_t count;
  int64_t* ids;
  bool* shared;
  float* gradients;
  float* values;
  float* slots;
  int64_t* versions;

  __device__ float* Slot(int64_t k, int s) const {
    return slots + (s * count + k) * dim;
  }
  // Called by all threads of a warp. gradient(c): column c of the gradient.
  template <typename T, typename Gradient>
  __device__ void Gather(int64_t k, int64_t id, bool is_shared, uint32_t row,
                         const Gradient& gradient) const {
    const int lane = threadIdx.x % kWarp;
    if (lane == 0) {
      ids[k] = id;
      shared[k] = is_shared;
      versions[k] = VersionOf(row, *rows.version(row));
    }
    const T* const from = reinterpret_cast<const T*>(rows.values(row));
    for (int64_t c = lane; c < dim; c += kWarp) {
      gradients[k * dim + c] = gradient(c);
      values[k * dim + c] = ToCompute(from[c]);
      for (int s = 0; s < rows.num_slots; ++s) {
        Slot(k, s)[c] = reinterpret_cast<const float*>(rows.slot(row, s))[c];
      }
    }
  }
  __device__ int64_t VersionOf(uint32_t row, uint32_t changes) const {
    return static_cast<int64_t>(uint64_t{row} << 32 | changes) ^ number;
  }
};

// One warp per id with a row. before: [N], the number of such ids up to and
// including each.
template <typename T>
__global__ void GatherOwnKernel(RowsCall call, DeviceStore::Ids ids,
                                const uint32_t* refs, const uint32_t* before,
                                const float* gradients) {
  const int64_t i = ThreadNumber() / kWarp;
  if (i >= ids.size || refs[i] == DeviceStore::kNoRow) return;
  call.template Gather<T>(
      int64_t{before[i]} - 1, ids.data[i], false, refs[i],
      [&](int64_t c) { return gradients[i * call.dim + c]; });
}

// One warp per place of a reader. before: as above, of first readers.
template <typename T>
__global__ void GatherSharedKernel(RowsCall call, ReadersCall readers,
                                   const uint32_t* before, int64_t own) {
  const int64_t first = ThreadNumber() / kWarp;
  if (first >= readers.count) return;
  const int64_t end = readers.EndOf(first);
  if (end == first) return;
  const uint32_t row = readers.keys[first];
  call.template Gather<T>(
      own + before[first] - 1, row, true, row, [&](int64_t c) {
        return readers.Sum(first, end, c, [](int64_t) { return true; });
      });
}

// Finds the rows that have the versions of `rows`, and changes their versions,
// so that no one else gets them. refs: [K], the row, or kNoRow if it has
// changed. written: the ids of those rows that are not shared.
__global__ void ClaimKernel(RowsCall call, RowsCall shared_rows,
                            DeviceIndex index, int64_t num_shared,
                            uint32_t* refs, bool* changed, uint32_t* count,
                            int64_t* written) {
  const int64_t k = ThreadNumber();
  const bool mine = k < call.count;
  const int64_t id = mine ? call.ids[k] : 0;
  const bool is_shared = mine && call.shared[k];
  int64_t row = id;
  bool claimed = mine && (is_shared ? id >= 0 && id < num_shared
                                    : index.Find(id, &row) >= 0);
  if (claimed) {
    const uint32_t number = static_cast<uint32_t>(row);
    uint32_t* const version =
        (is_shared ? shared_rows : call).rows.version(number);
    const uint32_t changes =
        static_cast<uint32_t>(call.versions[k] ^ call.number);
    claimed = call.VersionOf(number, changes) == call.versions[k] &&
              atomicCAS(version, changes, changes + 1) == changes;
  }
  const uint32_t place = TakePlaces(claimed && !is_shared, count);
  if (claimed && !is_shared) written[place] = id;
  if (!mine) return;
  refs[k] = claimed ? static_cast<uint32_t>(row) : DeviceStore::kNoRow;
  changed[k] = !claimed;
}

// One warp per row.
template <typename T>
__global__ void AssignKernel(RowsCall call, DeviceRows shared,
                             const uint32_t* refs, StochasticRounding own,
                             StochasticRounding of_shared) {
  const int64_t k = ThreadNumber() / kWarp;
  if (k >= call.count || refs[k] == DeviceStore::kNoRow) return;
  const DeviceRows& rows = call.shared[k] ? shared : call.rows;
  const StochasticRounding& rounding = call.shared[k] ? of_shared : own;
  const uint32_t word = rounding.WordOf(call.ids[k]);
  T* const to = reinterpret_cast<T*>(rows.values(refs[k]));
  for (int64_t c = threadIdx.x % kWarp; c < call.dim; c += kWarp) {
    float x = call.values[k * call.dim + c];
    if constexpr (kIsHalf<T>) {
      if (rounding.enabled) x = RoundStochastically<T>(x, word, c);
    }
    to[c] = RoundTo<T>(x);
    for (int s = 0; s < rows.num_slots; ++s) {
      reinterpret_cast<float*>(rows.slot(refs[k], s))[c] = call.Slot(k, s)[c];
    }
  }
}

}  // namespace

Status DeviceStore::ChangeVersions(const DeviceStream& on, const Ids& ids) {
  if (!optimizer_.unfused()) return Status();
  return CudaStatus(
      Launch(ChangeVersionsKernel, ids.size, on.stream, index(), rows(), ids),
      kFor);
}

Status DeviceStore::GatherForUpdate(const TableUpdate& update,
                                    Span<const bool> shared,
                                    const AttachedOptimizer& optimizer,
                                    const AllocateUpdate& allocate,
                                    const Execution& execution) try {
  const DeviceStream& on = execution.stream();
  LODESTAR_RETURN_IF_ERROR(optimizer.CheckUnfused());
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(optimizer));
  static const LookupPlan unique;
  TableUpdate of_unique = update;
  of_unique.plan = &unique;
  CheckedGradients gradients;
  LODESTAR_RETURN_IF_ERROR(
      gradients.Init(on, of_unique, update.nonfinite, shared.data()));
  const Ids ids = gradients.ids();
  const int64_t n = ids.size;

  MutexLock lock(&mutex_);
  SharedReaders readers;
  DeviceArray<uint32_t> refs;
  DeviceArray<uint32_t> flags;
  DeviceArray<uint32_t> own_before;
  DeviceArray<uint32_t> shared_before;
  DeviceArray<unsigned long long> counts;
  LODESTAR_RETURN_IF_ERROR(refs.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(flags.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(own_before.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(
      shared_before.Allocate(on.memory, num_shared() > 0 ? n : 0, kFor));
  LODESTAR_RETURN_IF_ERROR(counts.Allocate(on.memory, 2, kFor));
  unsigned long long found[2] = {};  // missing ids, first bad one
  uint32_t own = 0;
  uint32_t num_shared_rows = 0;
  if (n > 0) {
    StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
    LODESTAR_RETURN_IF_ERROR(turn.begun());
    LODESTAR_CUDA_TRY(
        cudaMemsetAsync(counts.data(), 0, sizeof(found[0]), on.stream));
    LODESTAR_CUDA_TRY(
        cudaMemsetAsync(counts.data() + 1, 0xff, sizeof(found[1]), on.stream));
    const GatherIds find = {
        index(),          ids,         shared.data(), gradients.skipped(),
        num_shared(),     refs.data(), flags.data(),  counts.data(),
        counts.data() + 1};
    LODESTAR_CUDA_TRY(Launch(FindGatheredKernel, n, on.stream, find));
    LODESTAR_RETURN_IF_ERROR(
        InclusiveSum(on, n, flags.data(), own_before.data()));
    const auto read_last = [&](const DeviceArray<uint32_t>& sums,
                               uint32_t* last) {
      return CudaStatus(
          cudaMemcpyAsync(last, sums.data() + n - 1, sizeof(*last),
                          cudaMemcpyDeviceToHost, on.stream),
          kFor);
    };
    LODESTAR_RETURN_IF_ERROR(read_last(own_before, &own));
    if (num_shared() > 0) {
      LODESTAR_RETURN_IF_ERROR(
          ListReaders(on, ids, shared.data(), gradients.skipped(), &readers));
      LODESTAR_CUDA_TRY(Launch(
          FirstReadersKernel, n, on.stream,
          static_cast<const uint32_t*>(readers.keys.data()), n, flags.data()));
      LODESTAR_RETURN_IF_ERROR(
          InclusiveSum(on, n, flags.data(), shared_before.data()));
      LODESTAR_RETURN_IF_ERROR(read_last(shared_before, &num_shared_rows));
    }
    LODESTAR_RETURN_IF_ERROR(
        CopyToHost(on, counts.data(), sizeof(found), found));
    if (found[1] != ~0ull) {
      int64_t id = 0;
      LODESTAR_RETURN_IF_ERROR(
          CopyToHost(on, ids.data + found[1], sizeof(id), &id));
      return CheckSharedRowNumber(id, static_cast<int64_t>(found[1]),
                                  num_shared());
    }
    LODESTAR_RETURN_IF_ERROR(turn.End());
  }
  const int64_t count = int64_t{own} + num_shared_rows;
  RowsForUpdate out;
  LODESTAR_RETURN_IF_ERROR(allocate(count, &out));

  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(AttachLocked(on, optimizer));
  LODESTAR_RETURN_IF_ERROR(VisitRowType(type(), [&](auto zero) -> Status {
    mutex_.AssertHeld();
    using T = decltype(zero);
    RowsCall call = {rows(),
                     number_,
                     dim(),
                     count,
                     out.ids,
                     out.shared,
                     static_cast<float*>(out.gradients),
                     static_cast<float*>(out.values),
                     static_cast<float*>(out.slots),
                     out.versions};
    const float* const of_ids = static_cast<const float*>(gradients.sums());
    LODESTAR_CUDA_TRY(Launch(GatherOwnKernel<T>, n * kWarp, on.stream, call,
                             ids, static_cast<const uint32_t*>(refs.data()),
                             static_cast<const uint32_t*>(own_before.data()),
                             of_ids));
    if (num_shared_rows == 0) return Status();
    call.rows = shared_rows();
    const ReadersCall of_rows = {readers.keys.data(), readers.order.data(), n,
                                 of_ids, dim()};
    return CudaStatus(
        Launch(GatherSharedKernel<T>, n * kWarp, on.stream, call, of_rows,
               static_cast<const uint32_t*>(shared_before.data()),
               int64_t{own}),
        kFor);
  }));
  LODESTAR_RETURN_IF_ERROR(turn.End());
  if (num_shared() == 0) {
    events_.Add(Event::kGradientsDropped, static_cast<int64_t>(found[0]));
  }
  CountNonfiniteGradients(gradients.num_skipped());
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the gradients of a batch.");
}

Status DeviceStore::AssignIfUnchanged(const UpdatedRows& updated,
                                      const AttachedOptimizer& optimizer,
                                      int64_t next_step, bool* changed,
                                      const Execution& on) {
  LODESTAR_RETURN_IF_ERROR(
      AssignRows(on.stream(), updated, optimizer, changed));
  return MoveStep(next_step, on);
}

Status DeviceStore::AssignRows(const DeviceStream& on,
                               const UpdatedRows& updated,
                               const AttachedOptimizer& optimizer,
                               bool* changed) {
  LODESTAR_RETURN_IF_ERROR(optimizer.CheckUnfused());
  MutexLock lock(&mutex_);
  LODESTAR_RETURN_IF_ERROR(CheckOptimizerLocked(optimizer));
  const int64_t count = updated.ids.size();
  const int64_t now = step();
  DeviceArray<uint32_t> refs;
  DeviceArray<int64_t> written;
  DeviceArray<int64_t> num_written;
  LODESTAR_RETURN_IF_ERROR(refs.Allocate(on.memory, count, kFor));
  LODESTAR_RETURN_IF_ERROR(written.Allocate(on.memory, count, kFor));
  LODESTAR_RETURN_IF_ERROR(num_written.Allocate(on.memory, 1, kFor));
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(num_written.Fill(on, 0));
  if (optimizer_.name.empty()) {
    // Another table has replaced the one that the rows come from.
    LODESTAR_CUDA_TRY(cudaMemsetAsync(changed, 1, count, on.stream));
  } else if (count > 0) {
    LODESTAR_RETURN_IF_ERROR(VisitRowType(type(), [&](auto zero) -> Status {
      mutex_.AssertHeld();
      using T = decltype(zero);
      // Only read.
      const RowsCall call = {
          rows(),
          number_,
          dim(),
          count,
          const_cast<int64_t*>(updated.ids.data()),
          const_cast<bool*>(updated.shared.data()),
          nullptr,
          static_cast<float*>(const_cast<void*>(updated.values)),
          static_cast<float*>(const_cast<void*>(updated.slots)),
          const_cast<int64_t*>(updated.versions.data())};
      RowsCall shared = call;
      shared.rows = shared_rows();
      // The machine is little-endian.
      uint32_t* const counter = reinterpret_cast<uint32_t*>(num_written.data());
      LODESTAR_CUDA_TRY(Launch(ClaimKernel, count, on.stream, call, shared,
                               index(), num_shared(), refs.data(), changed,
                               counter, written.data()));
      LODESTAR_RETURN_IF_ERROR(
          BeforeWrite(on, {written.data(), count, num_written.data()}));
      return CudaStatus(
          Launch(AssignKernel<T>, count * kWarp, on.stream, call, shared.rows,
                 static_cast<const uint32_t*>(refs.data()),
                 rounding(now, /*shared=*/false),
                 rounding(now, /*shared=*/true)),
          kFor);
    }));
  }
  return turn.End();
}

}  // namespace lodestar
