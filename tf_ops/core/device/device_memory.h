// Device memory from CUDA or from TensorFlow, which allocates nearly all of a
// GPU's memory by default, and streams.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_MEMORY_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_MEMORY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
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

// A batch of ids. `count`, if not null, is the actual number of ids in device
// memory, at most `size`.
struct DeviceIds {
  const int64_t* data = nullptr;
  int64_t size = 0;
  const int64_t* count = nullptr;
};

// Copies `bytes` bytes to host memory, and waits.
inline Status CopyToHost(const DeviceStream& on, const void* from,
                         int64_t bytes, void* to) {
  if (bytes == 0) return Status();
  LODESTAR_CUDA_TRY(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, on.stream));
  return CudaStatus(cudaStreamSynchronize(on.stream), "copy to the host");
}

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

  // Sets all bytes.
  Status Fill(const DeviceStream& on, int byte) const {
    return CudaStatus(cudaMemsetAsync(data_, byte, bytes(), on.stream),
                      "fill of memory");
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

// Copies `bytes` bytes of host memory to the device, and waits: CUDA may read
// the memory until the copy has run. Use StagingBuffer for memory that must not
// be waited for.
inline Status CopyToDevice(const DeviceStream& on, const void* from,
                           int64_t bytes, void* to) {
  if (bytes == 0) return Status();
  LODESTAR_CUDA_TRY(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, on.stream));
  return CudaStatus(cudaStreamSynchronize(on.stream), "copy to the device");
}

// Orders work on one table that is queued on several streams.
//
// Writes run alone; reads may overlap each other. Each piece of work waits, on
// its stream, for the conflicting work queued before it, so effects have the
// order of the calls. No call blocks.
//
// Not thread-safe: hold the owner's mutex from Begin to End.
class StreamOrder {
 public:
  StreamOrder() = default;
  StreamOrder(const StreamOrder&) = delete;
  ~StreamOrder() {
    if (write_ != nullptr) cudaEventDestroy(write_);
    for (const auto& [stream, read] : reads_) cudaEventDestroy(read.event);
  }

  // Makes all allocations that may throw, because a call that fails later must
  // still end its turn.
  Status BeginRead(cudaStream_t stream) {
    reads_.try_emplace(stream);
    return WaitForWrite(stream);
  }
  Status EndRead(cudaStream_t stream) {
    Read& read = reads_.find(stream)->second;
    read.pending = true;
    return Record(stream, &read.event);
  }

  Status BeginWrite(cudaStream_t stream) {
    LODESTAR_RETURN_IF_ERROR(WaitForWrite(stream));
    for (auto& [reader, read] : reads_) {
      if (!read.pending) continue;
      if (reader != stream) {
        LODESTAR_CUDA_TRY(cudaStreamWaitEvent(stream, read.event, 0));
      }
      read.pending = false;
    }
    return Status();
  }
  Status EndWrite(cudaStream_t stream) {
    writer_ = stream;
    return Record(stream, &write_);
  }

 private:
  struct Read {
    cudaEvent_t event = nullptr;
    bool pending = false;  // no write has waited for it yet
  };

  Status WaitForWrite(cudaStream_t stream) const {
    if (write_ == nullptr || writer_ == stream) return Status();
    return CudaStatus(cudaStreamWaitEvent(stream, write_, 0),
                      "order of streams");
  }
  static Status Record(cudaStream_t stream, cudaEvent_t* event) {
    if (*event == nullptr) {
      LODESTAR_CUDA_TRY(
          cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
    return CudaStatus(cudaEventRecord(*event, stream), "order of streams");
  }

  cudaEvent_t write_ = nullptr;
  cudaStream_t writer_ = nullptr;
  std::map<cudaStream_t, Read> reads_;
};

// Scope of a call's queued work; also ends the turn if the call fails. Must
// hold the owner's mutex.
class StreamTurn {
 public:
  enum Kind { kRead, kWrite };

  StreamTurn(StreamOrder* order, cudaStream_t stream, Kind kind)
      : order_(*order),
        stream_(stream),
        kind_(kind),
        begun_(kind == kWrite ? order->BeginWrite(stream)
                              : order->BeginRead(stream)) {}
  StreamTurn(const StreamTurn&) = delete;
  ~StreamTurn() {
    // The call reports its own error.
    if (!ended_) static_cast<void>(End());
  }

  const Status& begun() const { return begun_; }
  Status End() {
    ended_ = true;
    return kind_ == kWrite ? order_.EndWrite(stream_) : order_.EndRead(stream_);
  }

 private:
  StreamOrder& order_;
  const cudaStream_t stream_;
  const Kind kind_;
  const Status begun_;
  bool ended_ = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_MEMORY_H_
