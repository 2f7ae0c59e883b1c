// CUDA on the CPU, for tests without a GPU: the part of the runtime and of the
// device functions that our kernels use. Device memory is host memory, and
// streams run work at once. A launch runs one block after another, with threads
// as fibers that switch wherever CUDA threads wait for each other.
//
// Finds wrong results and, under AddressSanitizer, invalid accesses. Ends the
// process if pageable memory is copied to the device without a wait. Cannot
// find races between threads or missing synchronization between streams.

#ifndef LODESTAR_TESTS_CUDA_EMULATION_CUDA_RUNTIME_H_
#define LODESTAR_TESTS_CUDA_EMULATION_CUDA_RUNTIME_H_

// Not <cmath>: its float overloads must be found as on a GPU.
#include <math.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
#define __noinline__
// The threads of a block are fibers of one host thread.
#define __shared__ static thread_local

using std::max;
using std::min;

struct alignas(8) uint2 {
  unsigned x, y;
};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

struct EmulatedEvent;
struct EmulatedStream;

struct alignas(16) longlong2 {
  long long x, y;
};

struct dim3 {
  constexpr dim3(unsigned x_in = 1, unsigned y_in = 1) : x(x_in), y(y_in) {}
  unsigned x, y;
};

namespace lodestar {

// The running thread and its block.
struct ThreadPlace {
  unsigned x, y;
};
// __thread avoids the initialization check of thread_local.
extern __thread ThreadPlace emulated_thread;
extern __thread ThreadPlace emulated_block;
extern __thread dim3 emulated_grid;

// Called by all work on a stream. Ends the process if the stream may still have
// to read pageable memory, which its owner may change or free before CUDA has
// copied it.
void EmulateWork(EmulatedStream* stream);

// Calls body() for each thread of each block.
void EmulateBlocks(dim3 blocks, unsigned threads,
                   const std::function<void()>& body);
// Like a launch on a GPU, this allocates no memory: the function object holds
// a reference.
template <typename Body>
void EmulateLaunch(dim3 blocks, unsigned threads, EmulatedStream* stream,
                   const Body& body) {
  EmulateWork(stream);
  EmulateBlocks(blocks, threads, std::cref(body));
}
// Returns the value of lane `lane`. All threads of the warp must call this.
uint64_t EmulateShuffle(uint64_t value, int lane);
// Returns the number of the block's threads with `value`. All threads of the
// block must call this.
int EmulateSyncCount(bool value);

}  // namespace lodestar

#define threadIdx ::lodestar::emulated_thread
#define blockIdx ::lodestar::emulated_block
#define gridDim ::lodestar::emulated_grid

template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  bits = ::lodestar::EmulateShuffle(bits, lane);
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
unsigned __ballot_sync(unsigned, bool value);
inline int __syncthreads_count(bool value) {
  return ::lodestar::EmulateSyncCount(value);
}
inline int __syncthreads_or(bool value) { return __syncthreads_count(value); }

inline void __syncwarp() { ::lodestar::EmulateShuffle(0, 0); }
inline void __syncthreads() { ::lodestar::EmulateSyncCount(false); }

inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <typename T>
T __ldcg(const T* at) {
  return *at;
}
template <typename T>
void __stcg(T* at, T value) {
  *at = value;
}
template <typename T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <typename T>
T atomicMin(T* at, T value) {
  const T before = *at;
  *at = std::min(before, value);
  return before;
}
template <typename T>
T atomicAnd(T* at, T value) {
  const T before = *at;
  *at = before & value;
  return before;
}
template <typename T>
T atomicOr(T* at, T value) {
  const T before = *at;
  *at = before | value;
  return before;
}
template <typename T>
T atomicCAS(T* at, T wanted, T value) {
  const T before = *at;
  if (before == wanted) *at = value;
  return before;
}

using cudaStream_t = EmulatedStream*;
using cudaEvent_t = EmulatedEvent*;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
};
constexpr unsigned cudaEventDisableTiming = 2;
constexpr unsigned cudaStreamNonBlocking = 1;

const char* cudaGetErrorString(cudaError_t error);
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
// Reads LODESTAR_EMULATED_GPUS; default: 1.
cudaError_t cudaGetDeviceCount(int* count);
// Each device has its own streams, so the current device has no effect.
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

// Fills the memory with nonzero bytes, to detect uses of uninitialized memory.
cudaError_t EmulateMalloc(void** memory, size_t bytes);
cudaError_t EmulateFree(void* memory);
template <typename T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return EmulateMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <typename T>
cudaError_t cudaMallocAsync(T** memory, size_t bytes, cudaStream_t) {
  return cudaMalloc(memory, bytes);
}
// Page-locked memory.
cudaError_t EmulateMallocHost(void** memory, size_t bytes);
template <typename T>
cudaError_t cudaMallocHost(T** memory, size_t bytes) {
  return EmulateMallocHost(reinterpret_cast<void**>(memory), bytes);
}
inline cudaError_t cudaFree(void* memory) { return EmulateFree(memory); }
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t) {
  return EmulateFree(memory);
}
inline cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                              cudaMemcpyKind) {
  if (bytes > 0) std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream);
inline cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  if (bytes > 0) std::memset(memory, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes,
                                   cudaStream_t stream) {
  lodestar::EmulateWork(stream);
  return cudaMemset(memory, value, bytes);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream);
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t stream) {
  lodestar::EmulateWork(stream);
  return cudaSuccess;
}

#endif  // LODESTAR_TESTS_CUDA_EMULATION_CUDA_RUNTIME_H_
