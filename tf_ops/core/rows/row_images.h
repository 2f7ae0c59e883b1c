// Copy-on-write images of rows for a running snapshot. A writer saves an image
// before it changes a row that the snapshot has not written yet.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ROW_IMAGES_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ROW_IMAGES_H_

#include <atomic>
#include <cstdint>
#include <utility>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/rows/row_marks.h"

namespace lodestar {

// Limits the memory of the images of a snapshot, which may contain several
// tables. Above the limit it closes the gates of these tables, so that their
// steps wait for the disk; it opens the gates again at half the limit. Changes
// made outside of the gates may exceed the limit by one call's changes.
// Thread-safe; allocates nothing.
class ImageBudget {
 public:
  ImageBudget(StepGates gates, int64_t limit)
      : gates_(std::move(gates)), limit_(limit) {}
  ImageBudget(const ImageBudget&) = delete;
  ImageBudget& operator=(const ImageBudget&) = delete;

  void Add(int64_t bytes);
  // If this opens the gates, runs the steps that wait there. Requires: the
  // caller holds no lock of a table and no lock that such a step takes (the
  // lock of an EmbeddingSnapshot is allowed).
  void Subtract(int64_t bytes);

  // While a Writer exists, the snapshot is being written.
  class Writer {
   public:
    explicit Writer(ImageBudget* budget);
    ~Writer();
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

   private:
    ImageBudget* const budget_;
  };

  // Waits while images exceed the limit and some thread writes them out.
  // Requires: the caller holds no lock.
  void Wait();

  int64_t bytes() const;
  // Returns the maximum of bytes() so far.
  int64_t peak() const;
  // Returns true above half of the limit.
  bool tight() const;

 private:
  const StepGates gates_;
  const int64_t limit_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  int64_t bytes_ LODESTAR_GUARDED_BY(mutex_) = 0;
  int64_t peak_ LODESTAR_GUARDED_BY(mutex_) = 0;
  int64_t writers_ LODESTAR_GUARDED_BY(mutex_) = 0;
  bool closed_ LODESTAR_GUARDED_BY(mutex_) = false;
};

// The images of one shard's rows.
class RowImages {
 public:
  // Consecutive records.
  struct Chunk {
    Chunk* next;
    int64_t count;
    int64_t bytes;  // charged to the budget
    ImageBudget* budget;

    const char* records() const {
      return reinterpret_cast<const char*>(this + 1);
    }
  };

  RowImages() = default;
  RowImages(const RowImages&) = delete;
  RowImages& operator=(const RowImages&) = delete;
  ~RowImages();

  Mutex& mutex() LODESTAR_RETURN_CAPABILITY(mutex_) { return mutex_; }

  // Starts keeping images, in chunks of about `chunk_bytes`. The arrays that
  // `format` points to must outlive Stop, and the budget all chunks.
  void Start(const SnapshotRowFormat& format, int64_t chunk_bytes,
             ImageBudget* budget) LODESTAR_REQUIRES(mutex_);
  // Returns where to write the next record, or nullptr if out of memory; then
  // the snapshot has failed.
  char* Add() LODESTAR_REQUIRES(mutex_);
  const SnapshotRowFormat& format() const LODESTAR_REQUIRES(mutex_) {
    return format_;
  }
  // Stops keeping images and returns the existing ones.
  Chunk* Stop() LODESTAR_REQUIRES(mutex_);
  // Returns true if an image was lost since Start because memory ran out.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }

  // Returns the full chunks, or all chunks. The caller must Release them.
  Chunk* Take(bool all) LODESTAR_EXCLUDES(mutex_);
  // Requires: the same as ImageBudget::Subtract.
  static void Release(Chunk* chunks);

 private:
  // Moves the open chunk to the full ones.
  void CloseChunk() LODESTAR_REQUIRES(mutex_);

  Mutex mutex_;
  SnapshotRowFormat format_ LODESTAR_GUARDED_BY(mutex_){
      SnapshotRowLayout(1, RowType::kFloat32, {}), {}, 0};
  int64_t chunk_records_ LODESTAR_GUARDED_BY(mutex_) = 0;
  ImageBudget* budget_ LODESTAR_GUARDED_BY(mutex_) = nullptr;
  Chunk* full_ LODESTAR_GUARDED_BY(mutex_) = nullptr;
  Chunk* open_ LODESTAR_GUARDED_BY(mutex_) = nullptr;
  std::atomic<bool> failed_{false};
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ROW_IMAGES_H_
