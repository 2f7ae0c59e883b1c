// StagingBuffer: memory of the host through which batches cross to a device.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_STAGING_BUFFER_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_STAGING_BUFFER_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/device/device_memory.h"

namespace lodestar {

// What a stream's work reads of the host. What is freed is taken again once
// the work that was queued before has run, so that nothing is page-locked anew
// for each batch: that would stop the device. Thread-safe.
class StagingBuffer final : public DeviceAllocator {
 public:
  enum class Kind {
    kPinned,   // page-locked
    kManaged,  // CUDA moves its pages to who reads them
  };

  // That of a stream of the device that is current; lives as long as the
  // process.
  static StagingBuffer* Of(cudaStream_t stream, Kind kind);

  StagingBuffer(cudaStream_t stream, Kind kind)
      : stream_(stream), kind_(kind) {}
  ~StagingBuffer() override;
  StagingBuffer(const StagingBuffer&) = delete;

  // May wait for work of the stream.
  void* Allocate(int64_t bytes) override;
  void Free(void* memory) override;

 private:
  struct Slot {
    void* memory = nullptr;
    int64_t bytes = 0;
    cudaEvent_t done = nullptr;  // all that used it
    bool taken = false;
  };
  // While one batch crosses the next is made; more where more threads ask.
  static constexpr size_t kSlots = 2;

  // A slot that is now taken: the first that is done, a new one, or the one
  // that was freed first. nullptr: an error of CUDA.
  Slot* Take();
  // The memory of a slot that is taken and done, at least so much. nullptr: out
  // of memory; it has none then.
  void* Resize(Slot* slot, int64_t bytes);
  void Release(void* memory) const;

  const cudaStream_t stream_;
  const Kind kind_;
  mutable Mutex mutex_;
  // In the order in which they were freed.
  std::vector<std::unique_ptr<Slot>> slots_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_STAGING_BUFFER_H_
