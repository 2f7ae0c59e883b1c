// Helpers shared by all *.cu.cc files: kernel launches and cooperation within a
// warp or block.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_LAUNCH_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_LAUNCH_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace lodestar {

// Threads per block, and per warp.
constexpr int kBlock = 256;
constexpr int kWarp = 32;
constexpr unsigned kWholeWarp = 0xffffffffu;

inline int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Launches a kernel on a grid of blocks.
template <typename... Params, typename... Args>
cudaError_t LaunchGrid(void (*kernel)(Params...), dim3 blocks,
                       cudaStream_t stream, Args... args) {
#ifdef __CUDACC__
  kernel<<<blocks, kBlock, 0, stream>>>(args...);
#else
  EmulateLaunch(blocks, kBlock, stream, [=] { kernel(args...); });
#endif
  return cudaGetLastError();
}

// Launches a kernel with at least `threads` threads, or nothing for 0.
template <typename... Params, typename... Args>
cudaError_t Launch(void (*kernel)(Params...), int64_t threads,
                   cudaStream_t stream, Args... args) {
  if (threads <= 0) return cudaSuccess;
  return LaunchGrid(kernel, static_cast<unsigned>(DivideUp(threads, kBlock)),
                    stream, args...);
}

// The index of this thread in the launch.
__device__ inline int64_t ThreadNumber() {
  return static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
}

// Returns a unique index for each thread of the warp with `mine`, advancing the
// counter by as many. All threads of the warp must call this.
__device__ inline uint32_t TakePlaces(bool mine, uint32_t* counter) {
  const unsigned takers = __ballot_sync(kWholeWarp, mine);
  if (takers == 0) return 0;
  const int lane = threadIdx.x % kWarp;
  const int leader = __ffs(takers) - 1;
  uint32_t first = 0;
  if (lane == leader)
    first = atomicAdd(counter, static_cast<uint32_t>(__popc(takers)));
  first = __shfl_sync(kWholeWarp, first, leader);
  return first + __popc(takers & ((1u << lane) - 1));
}

// Adds the number of threads of the block with `mine` to a counter. All threads
// of the block must call this.
template <typename Counter>
__device__ void CountBlock(bool mine, Counter* counter) {
  const int count = __syncthreads_count(mine);
  if (threadIdx.x == 0 && count > 0) {
    atomicAdd(counter, static_cast<Counter>(count));
  }
}

// Number of lanes along a row of `units`, as a power of two 1 <<
// LaneBits(units), so a thread finds its position without a division. Fewer
// than twice as many lanes as units.
inline int LaneBits(int64_t units, int max_bits = 5) {
  int bits = 0;
  while (bits < max_bits && (int64_t{1} << bits) < units) ++bits;
  return bits;
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_LAUNCH_H_
