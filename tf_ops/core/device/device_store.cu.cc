// DeviceStore: memory and growth.

#include "tf_ops/core/device/device_store.h"

#include <algorithm>
#include <functional>
#include <new>
#include <utility>

#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/row_transfer.h"

namespace lodestar {
namespace {

// Bytes of values in the first and in the largest segments.
constexpr int64_t kFirstSegmentBytes = int64_t{64} << 10;
constexpr int64_t kLargestSegmentBytes = int64_t{256} << 20;
constexpr int64_t kFirstSegmentRows = 64;
// Maximum number of rows of a table on one GPU.
constexpr int64_t kMostRows = int64_t{1} << 31;

int64_t RoundUp(int64_t bytes, int64_t unit) {
  return DivideUp(bytes, unit) * unit;
}

// Returns the smallest k with 2^k >= n.
int CeilLog2(int64_t n) {
  int bits = 0;
  while ((int64_t{1} << bits) < n) ++bits;
  return bits;
}

__global__ void RehashKernel(DeviceIndex from, DeviceIndex to, int64_t cells) {
  const int64_t cell = ThreadNumber();
  const bool mine = cell < cells && reinterpret_cast<const uint8_t*>(
                                        from.tags)[cell] >= kFirstTag;
  const IndexEntry entry = mine ? from.entries[cell] : IndexEntry();
  int64_t value = 0;
  to.FindOrInsert(
      mine, entry.key, [&](bool, bool) { return entry.value; }, &value);
}

// Counts occurrences of ids that have no row.
__global__ void CountMissingKernel(DeviceIndex index, DeviceStore::Ids ids,
                                   unsigned long long* missing) {
  const int64_t i = ThreadNumber();
  int64_t row = 0;
  CountBlock(i < SizeOf(ids) && index.Find(ids.data[i], &row) < 0, missing);
}

// Gives shared rows their initial values.
template <typename T>
__global__ void FillSharedKernel(DeviceRows rows, int64_t count, int64_t dim,
                                 MissingRows initial) {
  const int64_t thread = ThreadNumber();
  const int64_t row = thread / kWarp;
  if (row >= count) return;
  T* const values =
      reinterpret_cast<T*>(rows.values(static_cast<uint32_t>(row)));
  for (int64_t c = thread % kWarp; c < dim; c += kWarp) {
    values[c] = initial.template ReadNumber<T>(row, c);
  }
}

// Segments are passed as an argument of the launch, which needs no memory and
// is copied before the launch returns.
struct SegmentBatch {
  static constexpr int64_t kMost = 64;
  int64_t count = 0;
  DeviceSegment segments[kMost];
};

__global__ void WriteSegmentsKernel(const __grid_constant__ SegmentBatch batch,
                                    DeviceSegment* to) {
  const int64_t i = ThreadNumber();
  if (i < batch.count) to[i] = batch.segments[i];
}

__global__ void FillSlotsKernel(DeviceRows rows, int64_t count,
                                SlotFill slots) {
  const int64_t thread = ThreadNumber();
  const int64_t row = thread / kWarp;
  if (row < count) {
    slots.Fill(rows, static_cast<uint32_t>(row),
               static_cast<int>(thread % kWarp), kWarp);
  }
}

}  // namespace

Status DeviceStore::Create(const Options& options,
                           std::shared_ptr<DeviceAllocator> allocator,
                           const DeviceStream& on,
                           std::unique_ptr<DeviceStore>* out) {
  const TablePolicies& policies = options.policies;
  LODESTAR_RETURN_IF_ERROR(CheckOptions(options.dim, policies));
  if (!(options.max_load > 0.0 && options.max_load <= 0.95)) {
    return InvalidArgument("`max_load` must be in (0, 0.95], got ",
                           options.max_load, ".");
  }
  std::unique_ptr<DeviceStore> store(
      new (std::nothrow) DeviceStore(options, std::move(allocator)));
  if (store == nullptr) return ResourceExhausted("out of memory for a table.");
  LODESTAR_RETURN_IF_ERROR(store->Init(on));
  *out = std::move(store);
  return Status();
}

Status DeviceStore::Init(const DeviceStream& on) {
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_CUDA_TRY(cudaMallocHost(reinterpret_cast<void**>(&fetched_),
                                   sizeof(DeviceTableState)));
  *fetched_ = DeviceTableState();
  LODESTAR_RETURN_IF_ERROR(CreateChanges());
  LODESTAR_RETURN_IF_ERROR(
      state_.Allocate(allocator_.get(), 1, "the counters of a table"));
  LODESTAR_CUDA_TRY(
      cudaMemsetAsync(state_.data(), 0, sizeof(DeviceTableState), on.stream));
  LODESTAR_RETURN_IF_ERROR(admission_.Init(on));
  if (num_shared() > 0) {
    LODESTAR_RETURN_IF_ERROR(shared_values_.Allocate(
        allocator_.get(), num_shared() * rows().value_stride, "shared rows"));
    LODESTAR_RETURN_IF_ERROR(
        shared_segment_.Allocate(allocator_.get(), 1, "shared rows"));
  }
  LODESTAR_RETURN_IF_ERROR(Grow(on, 1, kBucket));
  LODESTAR_RETURN_IF_ERROR(FillShared(on));
  return turn.End();
}

DeviceStore::~DeviceStore() {
  if (fetched_ != nullptr) cudaFreeHost(fetched_);
}

int64_t DeviceStore::capacity() const {
  const DeviceRows shape = rows();
  int64_t rows = 0;
  for (size_t k = 0; k < segments_.size(); ++k) {
    rows += shape.RowsOf(static_cast<int>(k));
  }
  return rows;
}

int64_t DeviceStore::MostCells() const {
  return static_cast<int64_t>(options_.max_load *
                              static_cast<double>(entries_.size()));
}

int64_t DeviceStore::CellsFor(int64_t rows) const {
  const int64_t cells =
      static_cast<int64_t>(static_cast<double>(rows) / options_.max_load) + 1;
  return int64_t{1} << CeilLog2(std::max<int64_t>(kBucket, cells));
}

DeviceIndex DeviceStore::index() const {
  return DeviceIndex::Of(tags_, entries_);
}

DeviceRows DeviceStore::rows() const { return RowsWith(optimizer_); }

DeviceRows DeviceStore::RowsWith(const AttachedOptimizer& optimizer) const {
  DeviceRows rows;
  rows.segments = segment_table_.data();
  rows.marking = marking();
  rows.value_stride = RoundUp(row_bytes(), 32);
  const SlotShape slots = optimizer.slots();
  constexpr int64_t number_bytes = sizeof(float);
  rows.slot_stride =
      slots.row_wise ? number_bytes : RoundUp(dim() * number_bytes, 16);
  rows.num_slots = static_cast<int>(slots.count);
  const int64_t slot_bytes = rows.slot_stride * rows.num_slots;
  rows.slots_stride = optimizer.unfused() ? slot_bytes + 16
                      : slots.row_wise    ? slot_bytes
                                          : RoundUp(slot_bytes, 32);
  rows.first_bits = CeilLog2(std::max(
      kFirstSegmentRows, DivideUp(kFirstSegmentBytes, rows.value_stride)));
  rows.last_bits =
      std::max(rows.first_bits,
               CeilLog2(DivideUp(kLargestSegmentBytes, rows.value_stride)));
  return rows;
}

DeviceRows DeviceStore::shared_rows() const {
  DeviceRows shared = rows();
  shared.segments = shared_segment_.data();
  shared.first_bits = shared.last_bits = 31;
  return shared;
}

Status DeviceStore::FillShared(const DeviceStream& on) {
  const int64_t threads = num_shared() * kWarp;
  const InitialRow initial = {OfSharedRows(options_.initializer).value(),
                              type()};
  LODESTAR_RETURN_IF_ERROR(VisitRowType(type(), [&](auto zero) {
    mutex_.AssertHeld();
    return CudaStatus(
        Launch(FillSharedKernel<decltype(zero)>, threads, on.stream,
               shared_rows(), num_shared(), int64_t{dim()},
               MissingRows{Missing::Kind::kInitial, nullptr, initial}),
        "fill of shared rows");
  }));
  if (shared_slots_.size() == 0) return Status();
  return CudaStatus(Launch(FillSlotsKernel, threads, on.stream, shared_rows(),
                           num_shared(), slot_fill()),
                    "fill of shared rows");
}

InitialRow DeviceStore::initial() const {
  return {options_.initializer.value(), type()};
}

SlotFill DeviceStore::slot_fill() const {
  SlotFill fill;
  fill.num_slots = static_cast<int>(optimizer_.slot_inits.size());
  fill.row_wise = optimizer_.slots().row_wise;
  std::copy(optimizer_.slot_inits.begin(), optimizer_.slot_inits.end(),
            fill.inits);
  return fill;
}

Status DeviceStore::Fetch(const DeviceStream& on) const {
  LODESTAR_RETURN_IF_ERROR(
      CopyToHost(on, state_.data(), sizeof(DeviceTableState), fetched_));
  rows_bound_ = fetched_->rows;
  cells_bound_ = static_cast<int64_t>(fetched_->cells);
  return Status();
}

Status DeviceStore::ReserveSegments() {
  const int64_t count = static_cast<int64_t>(segments_.size());
  if (count <= segment_table_.size()) return Status();
  return segment_table_.Allocate(allocator_.get(),
                                 std::max<int64_t>(64, 2 * count),
                                 "the list of a table's segments");
}

Status DeviceStore::UploadSegments(const DeviceStream& on) {
  const auto write = [&](const SegmentBatch& batch, DeviceSegment* to) {
    return CudaStatus(
        Launch(WriteSegmentsKernel, batch.count, on.stream, batch, to),
        "the list of a table's segments");
  };
  SegmentBatch batch;
  if (num_shared() > 0) {
    batch.count = 1;
    batch.segments[0] = {shared_values_.data(), shared_slots_.data(), nullptr,
                         nullptr, nullptr};
    LODESTAR_RETURN_IF_ERROR(write(batch, shared_segment_.data()));
  }
  const int64_t count = static_cast<int64_t>(segments_.size());
  for (int64_t first = 0; first < count; first += SegmentBatch::kMost) {
    batch.count = std::min(SegmentBatch::kMost, count - first);
    for (int64_t k = 0; k < batch.count; ++k) {
      const Segment& segment = segments_[first + k];
      batch.segments[k] = {segment.values.data(), segment.slots.data(),
                           segment.meta.data(), segment.free.data(),
                           segment.marks.data()};
    }
    LODESTAR_RETURN_IF_ERROR(write(batch, segment_table_.data() + first));
  }
  return Status();
}

Status DeviceStore::Rehash(const DeviceStream& on, int64_t cells) {
  DeviceArray<uint32_t> tags;
  DeviceArray<IndexEntry> entries;
  LODESTAR_RETURN_IF_ERROR(
      tags.Allocate(allocator_.get(), cells / 4, "the index of a table"));
  LODESTAR_RETURN_IF_ERROR(
      entries.Allocate(allocator_.get(), cells, "the index of a table"));
  LODESTAR_RETURN_IF_ERROR(tags.Fill(on, 0));
  LODESTAR_RETURN_IF_ERROR(entries.Fill(on, 0xff));
  const int64_t before = entries_.size();
  const DeviceIndex to = DeviceIndex::Of(tags, entries);
  if (before > 0) {
    LODESTAR_CUDA_TRY(
        Launch(RehashKernel, before, on.stream, index(), to, before));
  }
  tags_ = std::move(tags);
  entries_ = std::move(entries);
  // Rehashing drops the cells of removed rows.
  LODESTAR_CUDA_TRY(cudaMemcpyAsync(&state_.data()->cells, &state_.data()->rows,
                                    sizeof(uint32_t), cudaMemcpyDeviceToDevice,
                                    on.stream));
  cells_bound_ = rows_bound_;
  return Status();
}

Status DeviceStore::Grow(const DeviceStream& on, int64_t wanted_rows,
                         int64_t wanted_cells) {
  if (wanted_rows > kMostRows) {
    return ResourceExhausted("a table on a GPU can have at most ", kMostRows,
                             " rows, but needs ", wanted_rows, ".");
  }
  const size_t segments = segments_.size();
  const DeviceRows shape = rows();
  Status status;
  try {
    for (int64_t fit = capacity(); fit < wanted_rows && status.ok();) {
      const int64_t rows = shape.RowsOf(static_cast<int>(segments_.size()));
      Segment segment;
      status = segment.values.Allocate(
          allocator_.get(), rows * shape.value_stride, "rows of a table");
      if (status.ok()) {
        status =
            segment.meta.Allocate(allocator_.get(), rows, "rows of a table");
      }
      if (status.ok()) {
        status =
            segment.free.Allocate(allocator_.get(), rows, "rows of a table");
      }
      if (status.ok()) {
        status =
            segment.slots.Allocate(allocator_.get(), rows * shape.slots_stride,
                                   "optimizer slots of a table");
      }
      if (status.ok()) status = AllocateMarks(on, rows, &segment);
      if (!status.ok()) break;
      segments_.push_back(std::move(segment));
      fit += rows;
    }
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("out of memory for the segments of a table.");
  }
  if (status.ok() && segments_.size() > segments) {
    status = ReserveSegments();
    if (status.ok()) status = UploadSegments(on);
  }
  if (status.ok() && wanted_cells > MostCells()) {
    // May keep the size if most cells belong to removed rows. Leaves some room,
    // or the next call would rehash again.
    status = Rehash(on, CellsFor(wanted_rows + wanted_rows / 4));
  }
  if (!status.ok()) segments_.resize(segments);
  return status;
}

Status DeviceStore::CountMissing(const DeviceStream& on, const Ids& ids,
                                 int64_t* missing) const {
  DeviceArray<unsigned long long> count;
  LODESTAR_RETURN_IF_ERROR(
      count.Allocate(on.memory, 1, "the number of new ids"));
  LODESTAR_RETURN_IF_ERROR(count.Fill(on, 0));
  LODESTAR_CUDA_TRY(Launch(CountMissingKernel, ids.size, on.stream, index(),
                           ids, count.data()));
  return CopyToHost(on, count.data(), sizeof(*missing), missing);
}

bool DeviceStore::HasRoomFor(int64_t more) const {
  return rows_bound_ + more <= capacity() && cells_bound_ + more <= MostCells();
}

Status DeviceStore::ReserveRows(const DeviceStream& on, int64_t more) {
  if (HasRoomFor(more)) return Status();
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  if (HasRoomFor(more)) return Status();
  return Grow(on, rows_bound_ + more, cells_bound_ + more);
}

Status DeviceStore::ReserveMore(const DeviceStream& on, const Ids& ids) {
  if (HasRoomFor(ids.size)) return Status();
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  if (HasRoomFor(ids.size)) return Status();
  // Only a few ids of a large batch may be new. Also, if memory is short,
  // reserve for the new ids only.
  if (ids.size <= capacity() / 8) {
    const Status grown =
        Grow(on, rows_bound_ + ids.size, cells_bound_ + ids.size);
    if (grown.code() != StatusCode::kResourceExhausted) return grown;
  }
  int64_t missing = 0;
  LODESTAR_RETURN_IF_ERROR(CountMissing(on, ids, &missing));
  return ReserveRows(on, missing);
}

Status DeviceStore::Reserve(const DeviceStream& on, int64_t rows,
                            int64_t cells) {
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  LODESTAR_RETURN_IF_ERROR(Grow(on, rows, cells_bound_));
  const int64_t wanted = std::max(cells, CellsFor(rows));
  if (wanted > entries_.size()) {
    LODESTAR_RETURN_IF_ERROR(Rehash(on, wanted));
  }
  return turn.End();
}

Status DeviceStore::ReadState(const DeviceStream& on,
                              DeviceTableState* state) const {
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(Fetch(on));
  *state = *fetched_;
  return turn.End();
}

Status DeviceStore::WriteTurns::Begin(const DeviceStream& on,
                                      std::vector<DeviceStore*> stores) {
  std::sort(stores.begin(), stores.end(), std::less<>());
  for (DeviceStore* const store : stores) {
    locks_.emplace_back(store->mutex_);
    turns_.emplace_back(&store->order_, on.stream, StreamTurn::kWrite);
    LODESTAR_RETURN_IF_ERROR(turns_.back().begun());
  }
  return Status();
}

Status DeviceStore::WriteTurns::End() {
  for (StreamTurn& turn : turns_) LODESTAR_RETURN_IF_ERROR(turn.End());
  return Status();
}

Status DeviceStore::CheckOptimizerLocked(
    const AttachedOptimizer& optimizer) const {
  if (optimizer_.name.empty() || optimizer_.IsLike(optimizer)) return Status();
  return OtherOptimizerError(optimizer_, optimizer);
}

Status DeviceStore::CheckOptimizer(const AttachedOptimizer& optimizer) const {
  MutexLock lock(&mutex_);
  return CheckOptimizerLocked(optimizer);
}

Status DeviceStore::PlanAttach(AttachedOptimizer optimizer,
                               PlannedAttach* plan) const try {
  LODESTAR_RETURN_IF_ERROR(CheckOptimizerLocked(optimizer));
  if (!optimizer_.name.empty()) return Status();
  const DeviceRows shape = RowsWith(optimizer);
  plan->attaches = true;
  plan->optimizer = std::move(optimizer);
  plan->slots.resize(segments_.size());
  for (size_t k = 0; k < plan->slots.size(); ++k) {
    LODESTAR_RETURN_IF_ERROR(plan->slots[k].Allocate(
        allocator_.get(),
        shape.RowsOf(static_cast<int>(k)) * shape.slots_stride,
        "optimizer slots of a table"));
  }
  return plan->shared_slots.Allocate(allocator_.get(),
                                     num_shared() * shape.slots_stride,
                                     "optimizer slots of shared rows");
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the optimizer of a table.");
}

Status DeviceStore::CommitAttach(const DeviceStream& on, PlannedAttach* plan) {
  if (!plan->attaches) return Status();
  std::swap(optimizer_, plan->optimizer);
  std::swap(shared_slots_, plan->shared_slots);
  for (size_t k = 0; k < plan->slots.size(); ++k) {
    std::swap(segments_[k].slots, plan->slots[k]);
  }
  number_ = NextNumber();
  ForgetBase();
  if (rows().slots_stride == 0) return Status();
  LODESTAR_RETURN_IF_ERROR(UploadSegments(on));
  LODESTAR_CUDA_TRY(Launch(FillSlotsKernel, num_shared() * kWarp, on.stream,
                           shared_rows(), num_shared(), slot_fill()));
  return CudaStatus(Launch(FillSlotsKernel, capacity() * kWarp, on.stream,
                           rows(), capacity(), slot_fill()),
                    "fill of optimizer slots");
}

Status DeviceStore::AttachLocked(const DeviceStream& on,
                                 AttachedOptimizer optimizer) {
  PlannedAttach plan;
  LODESTAR_RETURN_IF_ERROR(PlanAttach(std::move(optimizer), &plan));
  return CommitAttach(on, &plan);
}

bool DeviceStore::NeedsRestart(const AttachedOptimizer& optimizer,
                               KeptSlots keep) const {
  MutexLock lock(&mutex_);
  return !optimizer_.name.empty() && Restarts(optimizer_, optimizer, keep);
}

Status DeviceStore::RestartSlots(const AttachedOptimizer& optimizer,
                                 KeptSlots keep, bool* done,
                                 std::string* former, const Execution& on) {
  former->clear();
  *done = true;
  if (!NeedsRestart(optimizer, keep)) return Status();
  MutexLock lock(&mutex_);
  *done = !snapshot_runs();
  if (!*done) return Status();
  StreamTurn turn(&order_, on.stream().stream, StreamTurn::kWrite);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(Fetch(on.stream()));
  AttachedOptimizer before = std::move(optimizer_);
  optimizer_ = AttachedOptimizer();
  const Status status = AttachLocked(on.stream(), optimizer);
  if (!status.ok()) {
    optimizer_ = std::move(before);
    return status;
  }
  if ((fetched_->rows > 0 || num_shared() > 0) && before.has_slots()) {
    *former = before.name;
  }
  return turn.End();
}

Status DeviceStore::ReadSize(int64_t* rows, const Execution& on) const {
  DeviceTableState state;
  LODESTAR_RETURN_IF_ERROR(ReadState(on.stream(), &state));
  *rows = state.rows;
  return Status();
}

Status DeviceStore::ReadStats(EmbeddingStats* stats,
                              const Execution& on) const {
  DeviceTableState state;
  LODESTAR_RETURN_IF_ERROR(ReadState(on.stream(), &state));
  EmbeddingStats result;
  result.rows = state.rows;
  result.max_rows = eviction().max_rows;
  for (int e = 0; e < kNumEvents; ++e) {
    const Event event = static_cast<Event>(e);
    result.events[e] =
        events_.count(event) + static_cast<int64_t>(state.events[event]);
  }
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream().stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(
      admission_.CountPending(on.stream(), step(), &result.pending));
  result.policy_bytes =
      admission_.bytes() + shared_values_.bytes() + shared_slots_.bytes();
  result.capacity = capacity();
  result.index_bytes = tags_.bytes() + entries_.bytes();
  for (const Segment& segment : segments_) {
    result.row_bytes += segment.values.bytes() + segment.meta.bytes() +
                        segment.free.bytes() + segment.marks.bytes();
    result.slot_bytes += segment.slots.bytes();
  }
  result.shards.push_back({result.rows, result.index_bytes + result.row_bytes +
                                            result.slot_bytes +
                                            admission_.bytes()});
  *stats = std::move(result);
  return turn.End();
}

}  // namespace lodestar
