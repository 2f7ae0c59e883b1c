#include "tf_ops/core/device/batch/staging_buffer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace lodestar {

StagingBuffer* StagingBuffer::Of(cudaStream_t stream) {
  using Key = std::pair<int, cudaStream_t>;
  // Never destroyed: CUDA may be shut down first when a process ends.
  static auto* const mutex = new Mutex;
  static auto* const buffers =
      new std::map<Key, std::unique_ptr<StagingBuffer>>;
  int device = 0;
  cudaGetDevice(&device);
  MutexLock lock(mutex);
  std::unique_ptr<StagingBuffer>& buffer = (*buffers)[{device, stream}];
  if (buffer == nullptr) buffer = std::make_unique<StagingBuffer>(stream);
  return buffer.get();
}

StagingBuffer::~StagingBuffer() {
  MutexLock lock(&mutex_);
  for (const auto& slot : slots_) {
    cudaEventSynchronize(slot->done);
    cudaEventDestroy(slot->done);
    cudaFreeHost(slot->memory);
  }
}

void* StagingBuffer::Allocate(int64_t bytes) {
  Slot* const slot = Take();
  if (slot == nullptr) return nullptr;
  // Without the mutex, so that other threads need not wait.
  const bool done = cudaEventSynchronize(slot->done) == cudaSuccess;
  void* const memory = done ? Resize(slot, bytes) : nullptr;
  if (memory != nullptr) return memory;
  cudaGetLastError();  // clears the error
  MutexLock lock(&mutex_);
  slot->taken = false;
  return nullptr;
}

void StagingBuffer::Free(void* memory) {
  MutexLock lock(&mutex_);
  const auto slot =
      std::find_if(slots_.begin(), slots_.end(),
                   [&](const auto& s) { return s->memory == memory; });
  if (cudaEventRecord((*slot)->done, stream_) != cudaSuccess) {
    cudaGetLastError();
    cudaStreamSynchronize(stream_);
  }
  (*slot)->taken = false;
  std::rotate(slot, slot + 1, slots_.end());
}

StagingBuffer::Slot* StagingBuffer::Take() {
  MutexLock lock(&mutex_);
  Slot* chosen = nullptr;
  bool ready = false;
  for (const auto& slot : slots_) {
    if (slot->taken || ready) continue;
    ready = cudaEventQuery(slot->done) == cudaSuccess;
    if (chosen == nullptr || ready) chosen = slot.get();
  }
  cudaGetLastError();  // clears the error, also that of unfinished work
  if (chosen == nullptr || (!ready && slots_.size() < kSlots)) {
    auto made = std::make_unique<Slot>();
    if (cudaEventCreateWithFlags(&made->done, cudaEventDisableTiming) !=
        cudaSuccess) {
      cudaGetLastError();
      return nullptr;
    }
    chosen = made.get();
    slots_.push_back(std::move(made));
  }
  chosen->taken = true;
  return chosen;
}

void* StagingBuffer::Resize(Slot* slot, int64_t bytes) {
  constexpr int64_t kLeast = 64 << 10;
  void* old = nullptr;
  {
    MutexLock lock(&mutex_);
    if (slot->bytes >= bytes) return slot->memory;
    // Detach the memory before freeing it: other threads may look at all slots
    // while freeing theirs.
    std::swap(old, slot->memory);
    slot->bytes = 0;
  }
  cudaFreeHost(old);
  // A quarter more, because batch sizes vary.
  const int64_t wanted = std::max(kLeast, bytes + bytes / 4);
  void* memory = nullptr;
  if (cudaMallocHost(&memory, wanted) != cudaSuccess) return nullptr;
  MutexLock lock(&mutex_);
  slot->memory = memory;
  slot->bytes = wanted;
  return memory;
}

Status StageToDevice(const DeviceStream& on, const void* from, int64_t bytes,
                     void* to) {
  if (bytes == 0) return Status();
  DeviceArray<char> staged;
  LODESTAR_RETURN_IF_ERROR(staged.Allocate(StagingBuffer::Of(on.stream), bytes,
                                           "a copy to the device"));
  std::memcpy(staged.data(), from, bytes);
  return CudaStatus(cudaMemcpyAsync(to, staged.data(), bytes,
                                    cudaMemcpyHostToDevice, on.stream),
                    "copy to the device");
}

}  // namespace lodestar
