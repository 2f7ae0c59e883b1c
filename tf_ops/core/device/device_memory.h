// Device memory from CUDA or from TensorFlow, which allocates nearly all of a
// GPU's memory by default.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_MEMORY_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_MEMORY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// Converts a CUDA error: ResourceExhausted if memory was short, else Internal.
inline Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return Status();
  const char* const text = cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) {
    return ResourceExhausted("out of memory on the GPU: ", what, ": ", text,
                             ".");
  }
  return Status(StatusCode::kInternal, StrCat("CUDA: ", what, ": ", text));
}

#define LODESTAR_CUDA_TRY(call) \
  LODESTAR_RETURN_IF_ERROR(::lodestar::CudaStatus(call, #call))

// Thread-safe.
class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;
  // Returns `bytes` bytes aligned to 256, or nullptr if out of memory.
  virtual void* Allocate(int64_t bytes) = 0;
  // Work that uses the memory must be queued before any work that reuses it.
  virtual void Free(void* memory) = 0;
};

// cudaMalloc and cudaFree on the current device. Free waits for all work of the
// device, so use this for long-lived memory.
class CudaAllocator final : public DeviceAllocator {
 public:
  void* Allocate(int64_t bytes) override {
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
    cudaGetLastError();  // clears the error
    return nullptr;
  }
  void Free(void* memory) override { cudaFree(memory); }
};

// Memory used on one stream only, from CUDA's pool. For memory that lives as
// long as a call.
class StreamAllocator final : public DeviceAllocator {
 public:
  explicit StreamAllocator(cudaStream_t stream) : stream_(stream) {}

  void* Allocate(int64_t bytes) override {
    void* memory = nullptr;
    if (cudaMallocAsync(&memory, bytes, stream_) == cudaSuccess) return memory;
    cudaGetLastError();
    return nullptr;
  }
  void Free(void* memory) override { cudaFreeAsync(memory, stream_); }

 private:
  const cudaStream_t stream_;
};

// The stream on which a call queues its work, and an allocator for memory used
// only by this work.
struct DeviceStream {
  cudaStream_t stream = nullptr;
  DeviceAllocator* memory = nullptr;
};

// An array of `size` elements on a device.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(DeviceArray&& other) { Swap(&other); }
  DeviceArray& operator=(DeviceArray&& other) {
    Swap(&other);
    return *this;
  }
  DeviceArray(const DeviceArray&) = delete;
  ~DeviceArray() {
    if (data_ != nullptr) allocator_->Free(data_);
  }

  // Returns ResourceExhausted if out of memory; the array is unchanged then.
  // `what`: the purpose, for the message.
  Status Allocate(DeviceAllocator* allocator, int64_t size, const char* what) {
    DeviceArray array;
    array.allocator_ = allocator;
    array.size_ = size;
    if (size > 0) {
      const int64_t bytes = size * static_cast<int64_t>(sizeof(T));
      array.data_ = static_cast<T*>(allocator->Allocate(bytes));
      if (array.data_ == nullptr) {
        return ResourceExhausted("out of memory on the GPU: ", bytes,
                                 " bytes for ", what, ".");
      }
    }
    Swap(&array);
    return Status();
  }

  T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

 private:
  void Swap(DeviceArray* other) {
    std::swap(allocator_, other->allocator_);
    std::swap(data_, other->data_);
    std::swap(size_, other->size_);
  }

  DeviceAllocator* allocator_ = nullptr;
  T* data_ = nullptr;
  int64_t size_ = 0;
};

// Copies `bytes` bytes within device memory.
inline Status CopyOnDevice(const DeviceStream& on, const void* from,
                           int64_t bytes, void* to) {
  if (bytes == 0) return Status();
  return CudaStatus(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, on.stream),
      "copy on the device");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_MEMORY_H_
