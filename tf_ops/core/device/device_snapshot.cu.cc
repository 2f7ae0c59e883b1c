// DeviceStore: snapshots.
//
// Each row has a mark (device_rows.h). A call that is about to change rows
// marks them as changed and writes records of those that the running snapshot
// still needs to a buffer in device memory, which is copied to the host when it
// is full or when the snapshot asks for it. The snapshot copies the other rows
// piece by piece. All of this is queued in the order of the calls
// (StreamOrder), so each row is in the file once, as of Begin.

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/rows/row_images.h"
#include "tf_ops/core/rows/snapshot_record.h"
#include "tf_ops/core/table/snapshot_source.h"
#include "tf_ops/core/table/table_changes.h"

namespace lodestar {
namespace {

constexpr const char* kForSnapshot = "a snapshot";

// The layout of records, and where they are written.
struct RecordCall {
  DeviceRows rows;
  int64_t value_bytes;
  int64_t slot_bytes;
  int num_slots;
  int64_t values;  // offsets in a record; the last slot ends with it
  int64_t slots[kMaxDeviceSlots + 1];
  char* records;
  uint32_t* count;
};

// Copies `bytes` bytes, and zeros up to `end`. `lane` is one of kWarp.
__device__ void CopyPadded(const char* from, int64_t bytes, int64_t end,
                           int lane, char* to) {
  for (int64_t b = lane * 2; b < end; b += kWarp * 2) {
    *reinterpret_cast<uint16_t*>(to + b) =
        b < bytes ? *reinterpret_cast<const uint16_t*>(from + b) : uint16_t{0};
  }
}

// Appends records of the rows of the threads with `mine`. All threads of the
// warp must call this.
__device__ void WriteRecords(const RecordCall& call, bool mine, uint32_t row) {
  const int lane = threadIdx.x % kWarp;
  const uint32_t place = TakePlaces(mine, call.count);
  for (unsigned left = __ballot_sync(kWholeWarp, mine); left != 0;
       left &= left - 1) {
    const int from = __ffs(left) - 1;
    const uint32_t saved = __shfl_sync(kWholeWarp, row, from);
    const int64_t number = __shfl_sync(kWholeWarp, place, from);
    char* const record = call.records + number * call.slots[call.num_slots];
    CopyPadded(call.rows.values(saved), call.value_bytes,
               call.slots[0] - call.values, lane, record + call.values);
    for (int s = 0; s < call.num_slots; ++s) {
      CopyPadded(call.rows.slot(saved, s), call.slot_bytes,
                 call.slots[s + 1] - call.slots[s], lane,
                 record + call.slots[s]);
    }
    if (lane != 0) continue;
    const DeviceRowMeta meta = *call.rows.meta(saved);
    *reinterpret_cast<SnapshotRowHead*>(record) = {meta.id, meta.last_seen,
                                                   meta.frequency, 0};
  }
}

// Returns whether the snapshot still needed the row, which it no longer does.
__device__ bool TakeUnsaved(uint32_t* mark) {
  return (atomicAnd(mark, ~kUnsavedRow) & kUnsavedRow) != 0;
}

// Marks the rows of ids as changed, except those counted in step `counted`.
// keeps: writes images.
__global__ void MarkKernel(DeviceIndex index, DeviceStore::Ids ids,
                           int64_t counted, bool keeps, RecordCall call) {
  const int64_t i = ThreadNumber();
  int64_t row = 0;
  bool unsaved = false;
  if (i < SizeOf(ids) && index.Find(ids.data[i], &row) >= 0 &&
      !IsCounted(*call.rows.meta(static_cast<uint32_t>(row)), counted)) {
    uint32_t* const mark = call.rows.mark(static_cast<uint32_t>(row));
    if ((*mark & kChangedRow) == 0) atomicOr(mark, kChangedRow);
    unsaved = TakeUnsaved(mark) && keeps;
  }
  WriteRecords(call, unsaved, static_cast<uint32_t>(row));
}

__global__ void BeginKernel(DeviceRows rows, uint32_t high_water, bool whole) {
  const int64_t row = ThreadNumber();
  if (row >= high_water) return;
  uint32_t* const mark = rows.mark(static_cast<uint32_t>(row));
  const bool changed = (*mark & kChangedRow) != 0;
  const bool live = rows.meta(static_cast<uint32_t>(row))->live != 0;
  *mark = (changed ? kTakenRow : 0) |
          (live && (whole || changed) ? kUnsavedRow : 0);
}

__global__ void EndKernel(DeviceRows rows, uint32_t high_water, bool failed) {
  const int64_t row = ThreadNumber();
  if (row >= high_water) return;
  uint32_t* const mark = rows.mark(static_cast<uint32_t>(row));
  const bool again = failed && (*mark & kTakenRow) != 0;
  *mark = (*mark & kChangedRow) | (again ? kChangedRow : 0);
}

__global__ void ListUnsavedKernel(DeviceRows rows, int64_t first, int64_t last,
                                  uint32_t* count, uint32_t* list) {
  const int64_t row = first + ThreadNumber();
  const bool unsaved =
      row < last && (*rows.mark(static_cast<uint32_t>(row)) & kUnsavedRow) != 0;
  const uint32_t place = TakePlaces(unsaved, count);
  if (unsaved) list[place] = static_cast<uint32_t>(row);
}

__global__ void SaveKernel(const uint32_t* list, int64_t count,
                           RecordCall call) {
  const int64_t i = ThreadNumber();
  const uint32_t row = i < count ? list[i] : 0;
  WriteRecords(call, i < count && TakeUnsaved(call.rows.mark(row)), row);
}

}  // namespace

struct DeviceStore::Changes {
  int gpu = 0;
  TableChanges table;
  bool reserved = false;  // segments have marks
  bool marking = false;
  RemovedIds removed;
  // Images of the running snapshot. In device memory: at most `bound` records
  // of `capacity`.
  bool keeps = false;
  bool lost = false;  // an image was lost
  SnapshotRowLayout layout{1, RowType::kFloat32, {}};
  RowImages images;
  DeviceArray<char> buffer;
  DeviceArray<uint32_t> count;
  int64_t bound = 0;
  int64_t capacity = 0;

  RecordCall Records(const DeviceRows& rows) const {
    RecordCall call = {};
    call.rows = rows;
    call.value_bytes = layout.value_bytes();
    call.slot_bytes = layout.slot_bytes();
    call.num_slots = static_cast<int>(layout.slots());
    call.values = layout.values();
    for (int s = 0; s <= call.num_slots; ++s) call.slots[s] = layout.slot(s);
    call.records = buffer.data();
    call.count = count.data();
    return call;
  }
};

Status DeviceStore::CreateChanges() {
  changes_.reset(new (std::nothrow) Changes());
  if (changes_ == nullptr) return ResourceExhausted("out of memory.");
  return CudaStatus(cudaGetDevice(&changes_->gpu), kForSnapshot);
}

bool DeviceStore::snapshot_runs() const { return changes_->table.running(); }
bool DeviceStore::marking() const { return changes_->marking; }

void DeviceStore::WaitForSnapshot() const { changes_->table.WaitForEnd(); }

void DeviceStore::WaitForEndOfSnapshot() {
  while (snapshot_runs()) {
    mutex_.unlock();
    WaitForSnapshot();
    mutex_.lock();
  }
}

void DeviceStore::ForgetBase() {
  changes_->table.ForgetBase();
  if (snapshot_runs()) return;
  changes_->marking = false;
  changes_->removed.Forget();
}

std::string DeviceStore::base() const { return changes_->table.base(); }

Status DeviceStore::AllocateMarks(const DeviceStream& on, int64_t rows,
                                  Segment* segment) {
  if (!changes_->reserved || segment->marks.size() > 0) return Status();
  LODESTAR_RETURN_IF_ERROR(
      segment->marks.Allocate(allocator_.get(), rows, "the marks of rows"));
  return segment->marks.Fill(on, 0);
}

Status DeviceStore::StartMarking(const DeviceStream& on) {
  for (const Segment& segment : segments_) {
    LODESTAR_RETURN_IF_ERROR(segment.marks.Fill(on, 0));
  }
  changes_->removed.Take();
  changes_->marking = true;
  return Status();
}

Status DeviceStore::DrainImages(const DeviceStream& on) {
  Changes& changes = *changes_;
  if (changes.bound == 0) return Status();
  uint32_t count = 0;
  LODESTAR_RETURN_IF_ERROR(
      CopyToHost(on, changes.count.data(), sizeof(count), &count));
  const int64_t record_bytes = changes.layout.bytes();
  std::vector<char> records;
  try {
    records.resize(count * record_bytes);
  } catch (const std::bad_alloc&) {
    changes.lost = true;
  }
  if (!records.empty()) {
    LODESTAR_RETURN_IF_ERROR(
        CopyToHost(on, changes.buffer.data(), records.size(), records.data()));
  }
  LODESTAR_RETURN_IF_ERROR(changes.count.Fill(on, 0));
  changes.bound = 0;
  if (!changes.keeps) return Status();
  MutexLock lock(&changes.images.mutex());
  for (size_t at = 0; at < records.size(); at += record_bytes) {
    char* const record = changes.images.Add();
    if (record != nullptr) std::memcpy(record, &records[at], record_bytes);
  }
  return Status();
}

Status DeviceStore::BeforeWrite(const DeviceStream& on, const Ids& ids,
                                std::optional<int64_t> counted) {
  Changes& changes = *changes_;
  if (!counted.has_value()) LODESTAR_RETURN_IF_ERROR(ChangeVersions(on, ids));
  if (!changes.marking || ids.size == 0) return Status();
  if (changes.keeps && !changes.lost &&
      changes.bound + ids.size > changes.capacity) {
    LODESTAR_RETURN_IF_ERROR(DrainImages(on));
    if (ids.size > changes.capacity) {
      // A table without memory for images loses its snapshot, not its step.
      const Status status = changes.buffer.Allocate(
          allocator_.get(), ids.size * changes.layout.bytes(), "images");
      changes.capacity = status.ok() ? ids.size : 0;
      changes.lost = !status.ok();
    }
  }
  const bool keeps = changes.keeps && !changes.lost;
  if (keeps) changes.bound += ids.size;
  // A row that was never counted has frequency 0.
  constexpr int64_t kNever = std::numeric_limits<int64_t>::min();
  return CudaStatus(
      Launch(MarkKernel, ids.size, on.stream, index(), ids,
             counted.value_or(kNever), keeps, changes.Records(rows())),
      kForSnapshot);
}

Status DeviceStore::NoteRemoved(const DeviceStream& on,
                                const DeviceArray<int64_t>& ids) {
  if (ids.size() == 0) return Status();
  uint32_t count = 0;
  LODESTAR_RETURN_IF_ERROR(
      CopyToHost(on, &state_.data()->freed, sizeof(count), &count));
  std::vector<int64_t> removed;
  try {
    removed.resize(count);
  } catch (const std::bad_alloc&) {
    ForgetBase();
    return Status();
  }
  if (count == 0) return Status();
  LODESTAR_RETURN_IF_ERROR(
      CopyToHost(on, ids.data(), count * sizeof(int64_t), removed.data()));
  for (const int64_t id : removed) {
    if (!changes_->removed.Add(id, rows_bound_)) {
      ForgetBase();
      break;
    }
  }
  return Status();
}

// Begins on the stream of the caller, on which all memory is allocated, and
// copies rows on a stream of its own.
class DeviceSnapshot final : public SnapshotSource {
 public:
  DeviceSnapshot(DeviceStore* store, const DeviceStream& on)
      : store_(*store),
        changes_(*store->changes_),
        begin_{on.stream, store->allocator_.get()} {}
  ~DeviceSnapshot() override {
    if (on_.stream == nullptr) return;
    cudaStreamSynchronize(on_.stream);
    cudaStreamDestroy(on_.stream);
  }

  std::shared_ptr<ImageBudget> budget() const override {
    return changes_.table.budget();
  }

  Status Reserve() override {
    LODESTAR_CUDA_TRY(cudaSetDevice(changes_.gpu));
    on_.memory = store_.allocator_.get();
    if (on_.stream == nullptr) {
      LODESTAR_CUDA_TRY(
          cudaStreamCreateWithFlags(&on_.stream, cudaStreamNonBlocking));
    }
    MutexLock lock(&store_.mutex_);
    StreamTurn turn(&store_.order_, begin_.stream, StreamTurn::kWrite);
    LODESTAR_RETURN_IF_ERROR(turn.begun());
    if (!changes_.reserved) {
      changes_.reserved = true;
      const DeviceRows shape = store_.rows();
      Status status = changes_.count.Allocate(begin_.memory, 1, kForSnapshot);
      for (size_t k = 0; k < store_.segments_.size() && status.ok(); ++k) {
        status = store_.AllocateMarks(begin_, shape.RowsOf(static_cast<int>(k)),
                                      &store_.segments_[k]);
      }
      if (status.ok()) status = store_.UploadSegments(begin_);
      changes_.reserved = status.ok();
      LODESTAR_RETURN_IF_ERROR(status);
    }
    LODESTAR_RETURN_IF_ERROR(
        list_.Allocate(begin_.memory, kWindow, kForSnapshot));
    LODESTAR_RETURN_IF_ERROR(counts_.Allocate(begin_.memory, 2, kForSnapshot));
    return turn.End();
  }

  Status StartMarking() {
    MutexLock lock(&store_.mutex_);
    StreamTurn turn(&store_.order_, begin_.stream, StreamTurn::kWrite);
    LODESTAR_RETURN_IF_ERROR(turn.begun());
    LODESTAR_RETURN_IF_ERROR(store_.StartMarking(begin_));
    return turn.End();
  }

  void Lock() override { store_.mutex_.lock(); }
  void Unlock() override { store_.mutex_.unlock(); }

  Status Describe(const std::string& base, SnapshotState* state) override {
    DeviceStore& store = store_;
    store.mutex_.AssertHeld();
    LODESTAR_CUDA_TRY(cudaSetDevice(changes_.gpu));
    StreamTurn turn(&store.order_, begin_.stream, StreamTurn::kWrite);
    LODESTAR_RETURN_IF_ERROR(turn.begun());
    LODESTAR_RETURN_IF_ERROR(store.Fetch(begin_));
    end_ = store.fetched_->high_water;
    const int64_t step = store.step();
    whole_ = base.empty() || changes_.table.base() != base;
    state->table = {store.dim(),
                    store.type(),
                    whole_,
                    store.optimizer_,
                    step,
                    store.options_.initializer.seed(),
                    store.options_.initializer.salt(),
                    store.step_.own(),
                    store.num_shared()};
    layout_ = state->table.layout();
    for (const auto& segment : store.segments_) {
      state->bytes += segment.values.bytes() + segment.slots.bytes();
    }
    removed_.resize(1);
    EmbeddingRows waiting;
    waiting.step = step;
    LODESTAR_RETURN_IF_ERROR(store.admission_.Export(begin_, &waiting));
    for (size_t i = 0; i < waiting.pending_ids.size(); ++i) {
      state->pending.push_back(
          {waiting.pending_ids[i], waiting.pending_last_seen[i],
           static_cast<uint32_t>(waiting.pending_sightings[i]), 0});
    }
    state->sketch = std::move(waiting.sketch);
    LODESTAR_RETURN_IF_ERROR(CopyShared());
    return turn.End();
  }

  void Begin(std::shared_ptr<ImageBudget> budget, int64_t chunk_bytes,
             int64_t images_bytes) override {
    store_.mutex_.AssertHeld();
    status_ = BeginOnDevice();
    {
      MutexLock lock(&changes_.images.mutex());
      changes_.images.Start({layout_, {}, 0},
                            std::min(chunk_bytes, images_bytes), budget.get());
    }
    changes_.layout = layout_;
    changes_.bound = 0;
    // The buffer has room for as many records of another layout.
    changes_.capacity = changes_.buffer.size() / layout_.bytes();
    changes_.lost = false;
    changes_.keeps = true;
    changes_.table.BeginSnapshot(std::move(budget));
    removed_[0] = changes_.removed.Take();
  }

  const std::vector<std::vector<int64_t>>& removed() const override {
    return removed_;
  }
  size_t num_parts() const override { return shared_.empty() ? 1 : 2; }
  bool has_shared_rows(size_t part) const override { return part == 1; }
  int64_t num_rows(size_t part) const override {
    return part == 1 ? static_cast<int64_t>(shared_.size()) / layout_.bytes()
                     : end_;
  }

  // Rows are listed a window at a time; *next is the first row of the next
  // window once all rows of the current one are saved.
  Status SaveRows(size_t part, int64_t most, int64_t* next, char* out,
                  int64_t* count) override {
    LODESTAR_RETURN_IF_ERROR(status_);
    if (has_shared_rows(part)) {
      *count = std::min(most, num_rows(part) - *next);
      std::memcpy(out, &shared_[*next * layout_.bytes()],
                  *count * layout_.bytes());
      *next += *count;
      return Status();
    }
    LODESTAR_CUDA_TRY(cudaSetDevice(changes_.gpu));
    const int64_t most_records =
        std::min(most, std::max<int64_t>(1, kPieceBytes / layout_.bytes()));
    *count = 0;
    if (listed_ == taken_) {
      LODESTAR_RETURN_IF_ERROR(List(*next));
      window_end_ = std::min(end_, *next + kWindow);
    }
    const int64_t piece = std::min(most_records, listed_ - taken_);
    if (piece > 0) LODESTAR_RETURN_IF_ERROR(Save(piece, out, count));
    if (listed_ == taken_) *next = window_end_;
    return Status();
  }

  Status TakeImages(size_t part, bool all, RowImages::Chunk** chunks) override {
    if (has_shared_rows(part)) return Status();
    if (all) {
      LODESTAR_CUDA_TRY(cudaSetDevice(changes_.gpu));
      MutexLock lock(&store_.mutex_);
      StreamTurn turn(&store_.order_, on_.stream, StreamTurn::kWrite);
      LODESTAR_RETURN_IF_ERROR(turn.begun());
      LODESTAR_RETURN_IF_ERROR(store_.DrainImages(on_));
      LODESTAR_RETURN_IF_ERROR(turn.End());
    }
    *chunks = changes_.images.Take(all);
    MutexLock lock(&store_.mutex_);
    if (!changes_.lost && !changes_.images.failed()) return Status();
    return ResourceExhausted("out of memory for the image of a changed row.");
  }

  void EndImages() override {
    RowImages::Chunk* chunks;
    {
      MutexLock lock(&store_.mutex_);
      changes_.keeps = false;
      MutexLock images_lock(&changes_.images.mutex());
      chunks = changes_.images.Stop();
    }
    RowImages::Release(chunks);
  }

  void End(std::string* base) override {
    MutexLock lock(&store_.mutex_);
    cudaSetDevice(changes_.gpu);
    Status status;
    {
      StreamTurn turn(&store_.order_, on_.stream, StreamTurn::kWrite);
      status = turn.begun();
      if (status.ok()) {
        status =
            CudaStatus(Launch(EndKernel, end_, on_.stream, store_.rows(),
                              static_cast<uint32_t>(end_), base == nullptr),
                       kForSnapshot);
      }
    }
    // Without right marks the next snapshot is a full one.
    if (!status.ok()) changes_.table.ForgetBase();
    const bool marking = changes_.table.HasBaseAfter(base);
    if (!marking) {
      changes_.marking = false;
      changes_.removed.Forget();
    } else if (base == nullptr &&
               !changes_.removed.Restore(std::move(removed_[0]))) {
      changes_.table.ForgetBase();
    }
    changes_.table.EndSnapshot(base);
  }

 private:
  static constexpr int64_t kWindow = int64_t{1} << 18;
  static constexpr int64_t kPieceBytes = int64_t{16} << 20;

  // Copies the shared rows, which are few, to the host. Requires the mutex.
  Status CopyShared() {
    DeviceStore& store = store_;
    store.mutex_.AssertHeld();
    const int64_t count = store.num_shared();
    shared_.assign(count * layout_.bytes(), 0);
    if (count == 0) return Status();
    EmbeddingRows rows;
    LODESTAR_RETURN_IF_ERROR(store.Download(begin_, store.shared_rows(),
                                            nullptr, count,
                                            store.optimizer_.slots(), &rows));
    for (int64_t r = 0; r < count; ++r) {
      char* const record = &shared_[r * layout_.bytes()];
      const SnapshotRowHead head = {r, 0, 0, 0};
      std::memcpy(record, &head, sizeof(head));
      std::memcpy(record + layout_.values(), rows.values.at(r * store.dim()),
                  layout_.value_bytes());
      for (int64_t s = 0; s < layout_.slots(); ++s) {
        std::memcpy(record + layout_.slot(s),
                    rows.slots.at((s * count + r) * layout_.slot_width()),
                    layout_.slot_bytes());
      }
    }
    return Status();
  }

  Status BeginOnDevice() {
    LODESTAR_CUDA_TRY(cudaSetDevice(changes_.gpu));
    const cudaStream_t stream = begin_.stream;
    StreamTurn turn(&store_.order_, stream, StreamTurn::kWrite);
    LODESTAR_RETURN_IF_ERROR(turn.begun());
    if (!changes_.marking) {
      LODESTAR_RETURN_IF_ERROR(store_.StartMarking(begin_));
    }
    LODESTAR_CUDA_TRY(cudaMemsetAsync(changes_.count.data(), 0,
                                      changes_.count.bytes(), stream));
    LODESTAR_CUDA_TRY(Launch(BeginKernel, end_, stream, store_.rows(),
                             static_cast<uint32_t>(end_), whole_));
    return turn.End();
  }

  // Reads the counter at counts_[i], and waits.
  Status ReadCount(int i, int64_t* count) const {
    uint32_t read = 0;
    LODESTAR_RETURN_IF_ERROR(
        CopyToHost(on_, counts_.data() + i, sizeof(read), &read));
    *count = read;
    return Status();
  }

  Status List(int64_t first) {
    {
      MutexLock lock(&store_.mutex_);
      StreamTurn turn(&store_.order_, on_.stream, StreamTurn::kWrite);
      LODESTAR_RETURN_IF_ERROR(turn.begun());
      LODESTAR_RETURN_IF_ERROR(counts_.Fill(on_, 0));
      LODESTAR_CUDA_TRY(
          Launch(ListUnsavedKernel, std::min(kWindow, end_ - first), on_.stream,
                 store_.rows(), first, end_, counts_.data(), list_.data()));
      LODESTAR_RETURN_IF_ERROR(turn.End());
    }
    taken_ = 0;
    return ReadCount(0, &listed_);
  }

  // Saves the next rows of the list.
  Status Save(int64_t piece, char* out, int64_t* count) {
    const int64_t bytes = piece * layout_.bytes();
    if (records_.size() < bytes) {
      LODESTAR_RETURN_IF_ERROR(
          records_.Allocate(on_.memory, bytes, kForSnapshot));
      // The memory may still be in use on another stream.
      LODESTAR_CUDA_TRY(cudaDeviceSynchronize());
    }
    {
      MutexLock lock(&store_.mutex_);
      StreamTurn turn(&store_.order_, on_.stream, StreamTurn::kWrite);
      LODESTAR_RETURN_IF_ERROR(turn.begun());
      LODESTAR_CUDA_TRY(
          cudaMemsetAsync(counts_.data() + 1, 0, sizeof(uint32_t), on_.stream));
      RecordCall call = changes_.Records(store_.rows());
      call.records = records_.data();
      call.count = counts_.data() + 1;
      LODESTAR_CUDA_TRY(Launch(
          SaveKernel, piece, on_.stream,
          static_cast<const uint32_t*>(list_.data()) + taken_, piece, call));
      LODESTAR_RETURN_IF_ERROR(turn.End());
    }
    taken_ += piece;
    LODESTAR_RETURN_IF_ERROR(ReadCount(1, count));
    if (*count == 0) return Status();
    return CopyToHost(on_, records_.data(), *count * layout_.bytes(), out);
  }

  DeviceStore& store_;
  DeviceStore::Changes& changes_;
  const DeviceStream begin_;
  DeviceStream on_;
  bool whole_ = true;
  SnapshotRowLayout layout_{1, RowType::kFloat32, {}};
  int64_t end_ = 0;
  std::vector<std::vector<int64_t>> removed_;
  Status status_;                 // of Begin
  std::vector<char> shared_;      // records of the shared rows
  DeviceArray<uint32_t> list_;    // unsaved rows of the current window
  DeviceArray<uint32_t> counts_;  // of the list, and of saved records
  DeviceArray<char> records_;
  int64_t window_end_ = 0;
  int64_t listed_ = 0;
  int64_t taken_ = 0;
};

Status DeviceStore::MakeSnapshotSource(const Execution& on,
                                       std::unique_ptr<SnapshotSource>* out) {
  *out = std::make_unique<DeviceSnapshot>(this, on.stream());
  return Status();
}

void DeviceStore::SetBase(const std::string& base, const Execution& on) {
  {
    MutexLock lock(&mutex_);
    changes_->marking = false;
    changes_->removed.Forget();
    changes_->table.SetBase("");
  }
  DeviceSnapshot source(this, on.stream());
  if (base.empty() || !source.Reserve().ok() || !source.StartMarking().ok()) {
    return;
  }
  changes_->table.SetBase(base);
}

}  // namespace lodestar
