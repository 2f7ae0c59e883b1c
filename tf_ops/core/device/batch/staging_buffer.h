// StagingBuffer: host memory through which batches are sent to a device.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_BATCH_STAGING_BUFFER_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_BATCH_STAGING_BUFFER_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_memory.h"

namespace lodestar {

// Allocates page-locked host memory for the work of one stream. Freed memory is
// reused once the work queued before has run, because page-locking new memory
// for each batch would stall the device. Thread-safe.
class StagingBuffer final : public DeviceAllocator {
 public:
  // Returns the buffer of a stream of the current device. Lives as long as the
  // process.
  static StagingBuffer* Of(cudaStream_t stream);

  explicit StagingBuffer(cudaStream_t stream) : stream_(stream) {}
  ~StagingBuffer() override;
  StagingBuffer(const StagingBuffer&) = delete;

  // May wait for work on the stream.
  void* Allocate(int64_t bytes) override;
  void Free(void* memory) override;

 private:
  struct Slot {
    void* memory = nullptr;
    int64_t bytes = 0;
    cudaEvent_t done = nullptr;  // after all work that used it
    bool taken = false;
  };
  // One batch is prepared while another is copied. More slots are created if
  // more threads need them.
  static constexpr size_t kSlots = 2;

  // Takes and returns a slot: the first that is done, a new one, or the least
  // recently freed one. Returns nullptr on a CUDA error.
  Slot* Take();
  // Returns the memory of a taken, completed slot, at least `bytes` long.
  // Returns nullptr if out of memory; the slot has no memory then.
  void* Resize(Slot* slot, int64_t bytes);

  const cudaStream_t stream_;
  mutable Mutex mutex_;
  // Ordered by when they were freed.
  std::vector<std::unique_ptr<Slot>> slots_ LODESTAR_GUARDED_BY(mutex_);
};

// Copies `bytes` bytes of host memory, which may change after the return, to
// the device. CUDA may read the argument of cudaMemcpyAsync until the copy has
// run, whether the memory is page-locked or not, so this copies to page-locked
// memory first.
Status StageToDevice(const DeviceStream& on, const void* from, int64_t bytes,
                     void* to);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_BATCH_STAGING_BUFFER_H_
