// DeviceStore: export to and import from host memory.

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_sort.h"
#include "tf_ops/core/device/device_store.h"

namespace lodestar {
namespace {

// Rows are copied in pieces of about this many bytes.
constexpr int64_t kPieceBytes = int64_t{64} << 20;

// Flipping the sign bit makes ids sort as unsigned integers.
constexpr uint64_t kSignBit = uint64_t{1} << 63;

__global__ void ListRowsKernel(DeviceRows rows, uint32_t high_water,
                               uint32_t* count, uint64_t* keys,
                               uint32_t* list) {
  const int64_t thread = ThreadNumber();
  const uint32_t row = static_cast<uint32_t>(thread);
  const DeviceRowMeta* const meta =
      thread < high_water ? rows.meta(row) : nullptr;
  const bool live = meta != nullptr && meta->live != 0;
  const uint32_t place = TakePlaces(live, count);
  if (!live) return;
  keys[place] = static_cast<uint64_t>(meta->id) ^ kSignBit;
  list[place] = row;
}

// Copies rows between the table and dense arrays.
struct PieceCall {
  DeviceRows rows;
  const uint32_t* list;  // null: rows from `first` on, without metadata
  int64_t first;
  int64_t count;
  int64_t row_bytes;
  int64_t slot_bytes;
  int num_slots;
  char* values;  // [count, row_bytes]
  char* slots;   // [num_slots, count, slot_bytes]
  int64_t* ids;  // this and the following arrays: [count]
  int64_t* frequencies;
  int64_t* last_seen;

  __device__ uint32_t Row(int64_t i) const {
    return list == nullptr ? static_cast<uint32_t>(first + i) : list[i];
  }
};

__device__ void CopyWords(const char* from, int64_t bytes, int lane, char* to) {
  for (int64_t b = lane * 2; b < bytes; b += kWarp * 2) {
    *reinterpret_cast<uint16_t*>(to + b) =
        *reinterpret_cast<const uint16_t*>(from + b);
  }
}

// One warp per row.
__global__ void CopyOutKernel(PieceCall call) {
  const int64_t i = ThreadNumber() / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (i >= call.count || call.Row(i) == DeviceStore::kNoRow) return;
  const uint32_t row = call.Row(i);
  CopyWords(call.rows.values(row), call.row_bytes, lane,
            call.values + i * call.row_bytes);
  for (int s = 0; s < call.num_slots; ++s) {
    CopyWords(call.rows.slot(row, s), call.slot_bytes, lane,
              call.slots + (s * call.count + i) * call.slot_bytes);
  }
  if (lane != 0 || call.list == nullptr) return;
  const DeviceRowMeta meta = *call.rows.meta(row);
  call.ids[i] = meta.id;
  call.frequencies[i] = meta.frequency;
  call.last_seen[i] = meta.last_seen;
}

__global__ void CopyInKernel(PieceCall call, SlotFill fill) {
  const int64_t i = ThreadNumber() / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (i >= call.count) return;
  const uint32_t row = call.Row(i);
  if (row == DeviceStore::kNoRow) return;
  CopyWords(call.values + i * call.row_bytes, call.row_bytes, lane,
            call.rows.values(row));
  if (call.num_slots == 0) fill.Fill(call.rows, row, lane, kWarp);
  for (int s = 0; s < call.num_slots; ++s) {
    CopyWords(call.slots + (s * call.count + i) * call.slot_bytes,
              call.slot_bytes, lane, call.rows.slot(row, s));
  }
  if (lane != 0 || call.list == nullptr) return;
  DeviceRowMeta* const meta = call.rows.meta(row);
  meta->last_seen = call.last_seen[i];
  meta->frequency = static_cast<uint32_t>(call.frequencies[i]);
}

__global__ void FrequencyKernel(DeviceIndex index, DeviceRows rows,
                                DeviceStore::Ids ids, int64_t* frequencies) {
  const int64_t i = ThreadNumber();
  if (i >= SizeOf(ids)) return;
  int64_t row = 0;
  frequencies[i] = index.Find(ids.data[i], &row) < 0
                       ? 0
                       : rows.meta(static_cast<uint32_t>(row))->frequency;
}

__global__ void RefsKernel(DeviceIndex index, DeviceStore::Ids ids,
                           uint32_t* refs) {
  const int64_t i = ThreadNumber();
  if (i >= SizeOf(ids)) return;
  int64_t row = 0;
  refs[i] = index.Find(ids.data[i], &row) < 0 ? DeviceStore::kNoRow
                                              : static_cast<uint32_t>(row);
}

__global__ void DecayKernel(DeviceRows rows, uint32_t high_water, double rate,
                            int64_t now) {
  const int64_t row = ThreadNumber();
  if (row >= high_water) return;
  DeviceRowMeta* const meta = rows.meta(static_cast<uint32_t>(row));
  if (meta->live == 0) return;
  const uint32_t before = meta->frequency;
  const uint32_t after = static_cast<uint32_t>(before * rate);
  if (rows.marking) *rows.mark(static_cast<uint32_t>(row)) |= kChangedRow;
  meta->frequency =
      meta->last_seen == now && before > 0 && after == 0 ? 1 : after;
}

// Device memory for one piece.
struct Piece {
  DeviceArray<char> values;
  DeviceArray<char> slots;
  DeviceArray<int64_t> numbers;

  Status Allocate(const DeviceStream& on, int64_t size, PieceCall* call) {
    constexpr const char* kFor = "rows to copy";
    LODESTAR_RETURN_IF_ERROR(
        values.Allocate(on.memory, size * call->row_bytes, kFor));
    LODESTAR_RETURN_IF_ERROR(slots.Allocate(
        on.memory, size * call->slot_bytes * call->num_slots, kFor));
    LODESTAR_RETURN_IF_ERROR(numbers.Allocate(on.memory, 3 * size, kFor));
    call->values = values.data();
    call->slots = slots.data();
    call->ids = numbers.data();
    call->frequencies = numbers.data() + size;
    call->last_seen = numbers.data() + 2 * size;
    return Status();
  }
  // Sets the values reported for missing ids.
  Status Clear(const DeviceStream& on) const {
    LODESTAR_RETURN_IF_ERROR(values.Fill(on, 0));
    LODESTAR_RETURN_IF_ERROR(slots.Fill(on, 0));
    const int64_t seen = numbers.bytes() / 3;
    LODESTAR_CUDA_TRY(cudaMemsetAsync(numbers.data(), 0, 2 * seen, on.stream));
    return CudaStatus(cudaMemsetAsync(numbers.data() + numbers.size() / 3 * 2,
                                      0xff, seen, on.stream),
                      "rows to copy");
  }
};

// Number of rows per piece.
int64_t MostRows(const PieceCall& call) {
  return std::max<int64_t>(
      1, kPieceBytes / (call.row_bytes + call.num_slots * call.slot_bytes));
}

// Copies `n` rows into the rows `list` of call.rows, in pieces of `most` rows.
// Waits.
Status Upload(const DeviceStream& on, PieceCall call, const SlotFill& fill,
              const uint32_t* list, int64_t n, int64_t most,
              const NumbersView& values, const NumbersView& slots,
              Span<const int64_t> frequencies, Span<const int64_t> last_seen) {
  const auto upload = [&](void* to, const void* from, int64_t bytes) {
    return CopyToDevice(on, from, bytes, to);
  };
  const int64_t dim = call.row_bytes / SizeOf(values.type());
  const int64_t width = call.slot_bytes / SizeOf(slots.type());
  for (int64_t first = 0; first < n; first += most) {
    call.first = first;
    call.count = std::min(most, n - first);
    call.list = list == nullptr ? nullptr : list + first;
    LODESTAR_RETURN_IF_ERROR(upload(call.values, values.at(first * dim),
                                    call.count * call.row_bytes));
    for (int s = 0; s < call.num_slots; ++s) {
      LODESTAR_RETURN_IF_ERROR(upload(
          call.slots + s * call.count * call.slot_bytes,
          slots.at((s * n + first) * width), call.count * call.slot_bytes));
    }
    if (list != nullptr) {
      const int64_t bytes = call.count * static_cast<int64_t>(sizeof(int64_t));
      LODESTAR_RETURN_IF_ERROR(
          upload(call.frequencies, frequencies.data() + first, bytes));
      LODESTAR_RETURN_IF_ERROR(
          upload(call.last_seen, last_seen.data() + first, bytes));
    }
    LODESTAR_CUDA_TRY(
        Launch(CopyInKernel, call.count * kWarp, on.stream, call, fill));
  }
  return Status();
}

}  // namespace

Status DeviceStore::Download(const DeviceStream& on, const DeviceRows& rows,
                             const uint32_t* list, int64_t n,
                             const SlotShape& slots, EmbeddingRows* out) const {
  constexpr const char* kFor = "rows to copy";
  out->ids.resize(n);
  out->frequencies.resize(n);
  out->last_seen.resize(n);
  out->values.Resize(type(), n * dim());
  const int64_t width = slots.Width(dim());
  out->slots.Resize(RowType::kFloat32, n * width * slots.count);
  PieceCall call = {};
  call.rows = rows;
  call.row_bytes = row_bytes();
  call.slot_bytes = width * sizeof(float);
  call.num_slots = static_cast<int>(slots.count);
  const int64_t most = MostRows(call);
  Piece piece;
  LODESTAR_RETURN_IF_ERROR(piece.Allocate(on, std::min(n, most), &call));
  for (int64_t first = 0; first < n; first += most) {
    call.count = std::min(most, n - first);
    call.first = first;
    call.list = list == nullptr ? nullptr : list + first;
    LODESTAR_RETURN_IF_ERROR(piece.Clear(on));
    LODESTAR_CUDA_TRY(
        Launch(CopyOutKernel, call.count * kWarp, on.stream, call));
    const auto download = [&](void* to, const void* from, int64_t bytes) {
      return CudaStatus(
          cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, on.stream),
          kFor);
    };
    LODESTAR_RETURN_IF_ERROR(download(out->values.at(first * dim()),
                                      call.values,
                                      call.count * call.row_bytes));
    for (int s = 0; s < call.num_slots; ++s) {
      LODESTAR_RETURN_IF_ERROR(
          download(out->slots.at((s * n + first) * width),
                   call.slots + s * call.count * call.slot_bytes,
                   call.count * call.slot_bytes));
    }
    const int64_t bytes = call.count * static_cast<int64_t>(sizeof(int64_t));
    LODESTAR_RETURN_IF_ERROR(download(&out->ids[first], call.ids, bytes));
    LODESTAR_RETURN_IF_ERROR(
        download(&out->frequencies[first], call.frequencies, bytes));
    LODESTAR_RETURN_IF_ERROR(
        download(&out->last_seen[first], call.last_seen, bytes));
    LODESTAR_CUDA_TRY(cudaStreamSynchronize(on.stream));
  }
  return Status();
}

Status DeviceStore::ExportParts(Exported what, EmbeddingRows* out,
                                const Execution& execution) const try {
  const DeviceStream& on = execution.stream();
  constexpr const char* kFor = "an export";
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  EmbeddingRows result;
  result.step = step();
  result.own_step = step_.own();
  result.seed = options_.initializer.seed();
  result.salt = options_.initializer.salt();
  if (what == Exported::kAll || what == Exported::kState) {
    result.optimizer = optimizer_;
  }
  const SlotShape slots = result.optimizer.slots();
  const bool any_rows = what != Exported::kState;
  const int64_t n = any_rows ? fetched_->rows : 0;
  const int64_t listed = any_rows ? fetched_->high_water : 0;
  DeviceArray<uint32_t> count;
  DeviceArray<uint64_t> keys;
  DeviceArray<uint32_t> list;
  LODESTAR_RETURN_IF_ERROR(count.Allocate(on.memory, 1, kFor));
  LODESTAR_RETURN_IF_ERROR(keys.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(list.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(count.Fill(on, 0));
  LODESTAR_CUDA_TRY(Launch(ListRowsKernel, listed, on.stream, rows(),
                           fetched_->high_water, count.data(), keys.data(),
                           list.data()));
  LODESTAR_RETURN_IF_ERROR(SortPairs(on, n, 64, &keys, &list));

  if (what != Exported::kIds) {
    LODESTAR_RETURN_IF_ERROR(
        Download(on, rows(), list.data(), n, slots, &result));
  } else {
    std::vector<uint64_t> sorted(n);
    LODESTAR_RETURN_IF_ERROR(
        CopyToHost(on, keys.data(), keys.bytes(), sorted.data()));
    for (const uint64_t key : sorted) {
      result.ids.push_back(static_cast<int64_t>(key ^ kSignBit));
    }
  }
  LODESTAR_RETURN_IF_ERROR(admission_.Export(on, &result));
  if (num_shared() > 0) {
    EmbeddingRows shared;
    LODESTAR_RETURN_IF_ERROR(
        Download(on, shared_rows(), nullptr, num_shared(), slots, &shared));
    result.shared_values = std::move(shared.values);
    result.shared_slots = std::move(shared.slots);
  }
  *out = std::move(result);
  return turn.End();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while exporting rows.");
}

Status DeviceStore::Inspect(Span<const int64_t> ids, InspectedIds* out,
                            const Execution& execution) const try {
  const DeviceStream& on = execution.stream();
  constexpr const char* kFor = "an inspection";
  const int64_t n = ids.size();
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  DeviceArray<int64_t> device_ids;
  DeviceArray<uint32_t> refs;
  LODESTAR_RETURN_IF_ERROR(device_ids.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(refs.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(
      CopyToDevice(on, ids.data(), device_ids.bytes(), device_ids.data()));
  const Ids batch = {device_ids.data(), n, nullptr};
  LODESTAR_CUDA_TRY(
      Launch(RefsKernel, n, on.stream, index(), batch, refs.data()));
  EmbeddingRows inspected;
  LODESTAR_RETURN_IF_ERROR(
      Download(on, rows(), refs.data(), n, optimizer_.slots(), &inspected));
  std::vector<uint32_t> found(n);
  LODESTAR_RETURN_IF_ERROR(
      CopyToHost(on, refs.data(), refs.bytes(), found.data()));
  InspectedIds result;
  result.values = std::move(inspected.values);
  result.slots = std::move(inspected.slots);
  result.slot_width = optimizer_.slots().Width(dim());
  result.slot_names = optimizer_.slot_names;
  result.frequencies = std::move(inspected.frequencies);
  result.last_seen = std::move(inspected.last_seen);
  result.shards.resize(n);
  std::vector<int64_t> occurrences;
  std::vector<int64_t> last_seen;
  LODESTAR_RETURN_IF_ERROR(
      admission_.ReadCounts(on, batch, step(), &occurrences, &last_seen));
  for (int64_t i = 0; i < n; ++i) {
    if (found[i] != kNoRow) {
      result.states.push_back(InspectedIds::kResident);
      continue;
    }
    result.frequencies[i] = occurrences[i];
    result.last_seen[i] = last_seen[i];
    result.states.push_back(occurrences[i] > 0 ? InspectedIds::kPending
                                               : InspectedIds::kMissing);
  }
  *out = std::move(result);
  return turn.End();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while inspecting ", ids.size(),
                           " ids.");
}

Status DeviceStore::Frequency(Span<const int64_t> ids,
                              Span<int64_t> frequencies,
                              const Execution& execution) const {
  const DeviceStream& on = execution.stream();
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_CUDA_TRY(Launch(FrequencyKernel, ids.size(), on.stream, index(),
                           rows(), Ids{ids.data(), ids.size(), nullptr},
                           frequencies.data()));
  return turn.End();
}

Status DeviceStore::DecayFrequencies(double rate, const Execution& execution) {
  const DeviceStream& on = execution.stream();
  if (!(rate >= 0.0 && rate <= 1.0)) {
    return InvalidArgument("`rate` must be in [0, 1], got ", rate, ".");
  }
  MutexLock lock(&mutex_);
  WaitForEndOfSnapshot();
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  LODESTAR_CUDA_TRY(Launch(DecayKernel, fetched_->high_water, on.stream, rows(),
                           fetched_->high_water, rate, step()));
  return turn.End();
}

Status DeviceStore::CheckImportLocked(const EmbeddingRowsView& view) const {
  LODESTAR_RETURN_IF_ERROR(CheckRowsView(view, dim(), type()));
  LODESTAR_RETURN_IF_ERROR(CheckPending(view, options_.policies.admission));
  LODESTAR_RETURN_IF_ERROR(CheckSharedRows(view, num_shared(), dim(), type()));
  if (!view.optimizer.name.empty()) {
    LODESTAR_RETURN_IF_ERROR(CheckOptimizerLocked(view.optimizer));
  }
  return Status();
}

Status DeviceStore::CreateReplacement(const EmbeddingRowsView& view,
                                      const Execution& on,
                                      std::unique_ptr<Table>* out) const {
  {
    MutexLock lock(&mutex_);
    LODESTAR_RETURN_IF_ERROR(CheckImportLocked(view));
  }
  Options options = options_;
  if (view.with_counters) options.initializer.SetSeed(view.seed, view.salt);
  std::unique_ptr<DeviceStore> store;
  LODESTAR_RETURN_IF_ERROR(Create(options, allocator_, on.stream(), &store));
  if (view.with_counters) store->step_.Set(view.step, view.own_step);
  {
    MutexLock lock(&store->mutex_);
    LODESTAR_RETURN_IF_ERROR(
        store->ImportLocked(on.stream(), view, /*counted=*/false));
    LODESTAR_RETURN_IF_ERROR(store->ImportPolicies(on.stream(), view));
  }
  *out = std::move(store);
  return Status();
}

Status DeviceStore::ImportPolicies(const DeviceStream& on,
                                   const EmbeddingRowsView& view) try {
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(admission_.Import(on, view));
  const bool any_slots = !view.shared_slots.empty();
  if (num_shared() > 0 && (any_slots || !view.shared_values.empty())) {
    PieceCall call = {};
    call.rows = shared_rows();
    if (!view.shared_values.empty()) call.row_bytes = row_bytes();
    const SlotShape slots = optimizer_.slots();
    call.slot_bytes = slots.Width(dim()) * sizeof(float);
    call.num_slots = any_slots ? static_cast<int>(slots.count) : 0;
    const int64_t most = MostRows(call);
    Piece piece;
    LODESTAR_RETURN_IF_ERROR(
        piece.Allocate(on, std::min(num_shared(), most), &call));
    LODESTAR_RETURN_IF_ERROR(Upload(on, call, slot_fill(), nullptr,
                                    num_shared(), most, view.shared_values,
                                    view.shared_slots, {}, {}));
    number_ = NextNumber();
  }
  return turn.End();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while importing pending ids.");
}

Status DeviceStore::CopyLiveState(const Table& like, const OwnState& own,
                                  const Execution& on) {
  const DeviceStore& old = static_cast<const DeviceStore&>(like);
  DeviceTableState before;
  DeviceTableState after;
  LODESTAR_RETURN_IF_ERROR(old.ReadState(on.stream(), &before));
  LODESTAR_RETURN_IF_ERROR(ReadState(on.stream(), &after));
  if (!own.step) step_.Set(old.step(), old.step_.own());
  events_.Share(old.events_);
  // Imported rows do not count as events.
  for (int e = 0; e < kNumEvents; ++e) {
    const Event event = static_cast<Event>(e);
    events_.Add(event, before.events[event] - after.events[event]);
  }
  if (num_shared() == 0 || own.shared_rows) return Status();
  const cudaStream_t stream = on.stream().stream;
  // No other thread holds the mutex of this table, which is not shared yet.
  MutexLock old_lock(&old.mutex_);
  MutexLock lock(&mutex_);
  StreamTurn old_turn(&old.order_, stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(old_turn.begun());
  StreamTurn turn(&order_, stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(CopyOnDevice(on.stream(), old.shared_values_.data(),
                                        shared_values_.bytes(),
                                        shared_values_.data()));
  LODESTAR_RETURN_IF_ERROR(old_turn.End());
  return turn.End();
}

Status DeviceStore::Import(const EmbeddingRowsView& view, const Execution& on) {
  MutexLock lock(&mutex_);
  LODESTAR_RETURN_IF_ERROR(CheckImportLocked(view));
  return ImportLocked(on.stream(), view, /*counted=*/false);
}

Status DeviceStore::ImportDelta(Span<const int64_t> removed,
                                const EmbeddingRowsView& view,
                                int64_t* num_removed, const Execution& on) {
  const DeviceStream& stream = on.stream();
  constexpr const char* kFor = "an incremental snapshot";
  MutexLock lock(&mutex_);
  LODESTAR_RETURN_IF_ERROR(CheckImportLocked(view));
  // Both may be longer than what is left of them in this table.
  DeviceArray<int64_t> ids;
  LODESTAR_RETURN_IF_ERROR(
      ids.Allocate(stream.memory, removed.size() + view.ids.size(), kFor));
  const Ids gone = {ids.data(), removed.size(), nullptr};
  const Ids written = {ids.data() + removed.size(), view.ids.size(), nullptr};
  {
    StreamTurn turn(&order_, stream.stream, StreamTurn::kWrite);
    LODESTAR_RETURN_IF_ERROR(turn.begun());
    const auto upload = [&](Span<const int64_t> from, const Ids& to) {
      return CopyToDevice(stream, from.data(), from.size() * sizeof(int64_t),
                          const_cast<int64_t*>(to.data));
    };
    LODESTAR_RETURN_IF_ERROR(upload(removed, gone));
    LODESTAR_RETURN_IF_ERROR(upload(view.ids, written));
    LODESTAR_RETURN_IF_ERROR(Fetch(stream));
    int64_t missing = 0;
    int64_t absent = 0;
    LODESTAR_RETURN_IF_ERROR(CountMissing(stream, written, &missing));
    LODESTAR_RETURN_IF_ERROR(CountMissing(stream, gone, &absent));
    *num_removed = removed.size() - absent;
    const int64_t rows = rows_bound_ - *num_removed + missing;
    if (eviction().max_rows > 0 && rows > eviction().max_rows) {
      return MoreThanMaxRows(rows, eviction().max_rows);
    }
    DeviceArray<int64_t> noted;
    LODESTAR_RETURN_IF_ERROR(ReserveRemoval(stream, gone.size, &noted));
    LODESTAR_RETURN_IF_ERROR(
        RemoveLocked(stream, gone, /*evicted=*/false, noted));
    LODESTAR_RETURN_IF_ERROR(turn.End());
  }
  LODESTAR_RETURN_IF_ERROR(ImportLocked(stream, view, /*counted=*/true));
  LODESTAR_RETURN_IF_ERROR(admission_.Clear(stream));
  LODESTAR_RETURN_IF_ERROR(ImportPolicies(stream, view));
  step_.Set(view.step, view.own_step);
  return Status();
}

Status DeviceStore::ImportLocked(const DeviceStream& on,
                                 const EmbeddingRowsView& view, bool counted) {
  constexpr const char* kFor = "an import";
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  const int64_t n = view.ids.size();
  const SlotShape slots = view.optimizer.slots();
  // Everything that can fail happens before the first row changes.
  DeviceArray<int64_t> ids;
  DeviceArray<uint32_t> refs;
  PieceCall call = {};
  call.row_bytes = row_bytes();
  call.slot_bytes = slots.Width(dim()) * sizeof(float);
  call.num_slots = static_cast<int>(slots.count);
  const int64_t most = MostRows(call);
  Piece piece;
  LODESTAR_RETURN_IF_ERROR(ids.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(refs.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(piece.Allocate(on, std::min(n, most), &call));
  LODESTAR_RETURN_IF_ERROR(
      CopyToDevice(on, view.ids.data(), ids.bytes(), ids.data()));
  const Ids batch = {ids.data(), n, nullptr};
  if (eviction().max_rows > 0) {
    int64_t missing = 0;
    LODESTAR_RETURN_IF_ERROR(Fetch(on));
    LODESTAR_RETURN_IF_ERROR(CountMissing(on, batch, &missing));
    if (rows_bound_ + missing > eviction().max_rows) {
      return MoreThanMaxRows(rows_bound_ + missing, eviction().max_rows);
    }
  }
  InsertOptions options;
  options.count_events = counted;
  options.admission = false;
  PlannedInsert plan;
  LODESTAR_RETURN_IF_ERROR(PlanInsert(on, batch, options, &plan));
  if (!view.optimizer.name.empty()) {
    LODESTAR_RETURN_IF_ERROR(AttachLocked(on, view.optimizer));
  }
  LODESTAR_RETURN_IF_ERROR(BeforeWrite(on, batch));
  LODESTAR_RETURN_IF_ERROR(
      CommitInsert(on, plan, {}, {refs.data(), nullptr, nullptr}));
  call.rows = rows();
  LODESTAR_RETURN_IF_ERROR(Upload(on, call, slot_fill(), refs.data(), n, most,
                                  view.values, view.slots, view.frequencies,
                                  view.last_seen));
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  return turn.End();
}

}  // namespace lodestar
