// RowImages: rows as they were when a snapshot began, left by who writes to
// them before it has saved them. ImageBudget: how much of that there may be.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ROW_IMAGES_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ROW_IMAGES_H_

#include <atomic>
#include <cstdint>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/rows/row_marks.h"

namespace lodestar {

// The images of all running snapshots of the process. Above the limit the step
// gate is closed, so that updates wait for the disk; it opens at half of it.
// What changes rows outside of the gate may go beyond the limit by as much as
// one call changes. Thread-safe; allocates nothing.
class ImageBudget {
 public:
  ImageBudget() = default;
  ImageBudget(const ImageBudget&) = delete;
  ImageBudget& operator=(const ImageBudget&) = delete;

  static ImageBudget& Global();

  // A snapshot begins, and ends.
  void RaiseLimit(int64_t bytes);
  // REQUIRES: as Subtract.
  void LowerLimit(int64_t bytes);

  void Add(int64_t bytes);
  // Calls what waits at the gate if this opens it. REQUIRES: no lock of a table
  // is held, nor any that such a call takes; an EmbeddingSnapshot's may be.
  void Subtract(int64_t bytes);

  // A snapshot is being written while one of these lives.
  class Writer {
   public:
    explicit Writer(ImageBudget* budget);
    ~Writer();
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

   private:
    ImageBudget* const budget_;
  };

  // Waits while there is more than the limit and someone who writes it out.
  // REQUIRES: no lock is held.
  void Wait();

  int64_t bytes() const;
  // Above half of the limit.
  bool tight() const;
  // The most that there ever was since the last call.
  int64_t TakePeak();

 private:
  // Adds to the limit and to the bytes, and opens the gate if it may be open.
  void Change(int64_t limit, int64_t bytes) LODESTAR_EXCLUDES(mutex_);

  mutable Mutex mutex_;
  ConditionVariable changed_;
  int64_t limit_ LODESTAR_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ LODESTAR_GUARDED_BY(mutex_) = 0;
  int64_t peak_ LODESTAR_GUARDED_BY(mutex_) = 0;
  int64_t writers_ LODESTAR_GUARDED_BY(mutex_) = 0;
  bool closed_ LODESTAR_GUARDED_BY(mutex_) = false;
};

// Of the rows of one shard.
class RowImages {
 public:
  // Records, one after another.
  struct Chunk {
    Chunk* next;
    int64_t count;
    int64_t bytes;  // that it counts for

    const char* records() const {
      return reinterpret_cast<const char*>(this + 1);
    }
  };

  RowImages() = default;
  RowImages(const RowImages&) = delete;
  RowImages& operator=(const RowImages&) = delete;
  ~RowImages();

  Mutex& mutex() LODESTAR_RETURN_CAPABILITY(mutex_) { return mutex_; }

  // From here on images are kept, in chunks of about `chunk_bytes`. What
  // `format` points to has to stay until Stop.
  void Start(const SnapshotRowFormat& format, int64_t chunk_bytes)
      LODESTAR_REQUIRES(mutex_);
  // Where to write the next one, a record; nullptr: there is no memory, and the
  // snapshot has failed.
  char* Add() LODESTAR_REQUIRES(mutex_);
  const SnapshotRowFormat& format() const LODESTAR_REQUIRES(mutex_) {
    return format_;
  }
  // Keeps no more images; what it has goes to the caller.
  Chunk* Stop() LODESTAR_REQUIRES(mutex_);
  // Since Start one was not kept for want of memory.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }

  // Full chunks, or all of them, for the caller to Release.
  Chunk* Take(bool all) LODESTAR_EXCLUDES(mutex_);
  // REQUIRES: as ImageBudget::Subtract.
  static void Release(Chunk* chunks);

 private:
  // Puts the open chunk to the full ones.
  void CloseChunk() LODESTAR_REQUIRES(mutex_);

  Mutex mutex_;
  SnapshotRowFormat format_ LODESTAR_GUARDED_BY(mutex_){
      SnapshotRowLayout(1, RowType::kFloat32, 0), {}, 0};
  int64_t chunk_records_ LODESTAR_GUARDED_BY(mutex_) = 0;
  Chunk* full_ LODESTAR_GUARDED_BY(mutex_) = nullptr;
  Chunk* open_ LODESTAR_GUARDED_BY(mutex_) = nullptr;
  std::atomic<bool> failed_{false};
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ROW_IMAGES_H_
