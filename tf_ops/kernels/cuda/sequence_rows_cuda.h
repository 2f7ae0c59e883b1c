// CUDA kernels that make each row of their output by itself: RowKernel, and
// CopyRowOp, whose rows are copies of input rows.

#ifndef LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_ROWS_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_ROWS_CUDA_H_

#include <cstring>

#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/kernels/cuda/cuda_kernel_util.h"

namespace lodestar {

// A block owns `tile_rows` (at most kBlock) rows of the output that follow
// each other. First a thread a row asks op.MakePlan(row) where that row comes
// from, which may search the splits, and leaves the answer in shared memory;
// then 1 << lane_bits threads a row call op.Apply(plan, row, pack) for each of
// its packs. Long and short sequences cost the same: a block looks at rows.
template <typename RowOp>
__global__ void __launch_bounds__(kBlock)
    RowKernel(RowOp op, int64_t num_rows, int64_t packs, int lane_bits,
              int tile_rows) {
  __shared__ typename RowOp::Plan plans[kBlock];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * tile_rows;
  const int64_t left = num_rows - first;
  const int count = left < tile_rows ? static_cast<int>(left) : tile_rows;
  const int thread = threadIdx.x;
  if (thread < count) plans[thread] = op.MakePlan(first + thread);
  __syncthreads();
  const int lanes = 1 << lane_bits;
  for (int i = thread >> lane_bits; i < count; i += kBlock >> lane_bits) {
    const typename RowOp::Plan plan = plans[i];
    for (int64_t p = thread & (lanes - 1); p < packs; p += lanes) {
      op.Apply(plan, first + i, p);
    }
  }
}

template <typename RowOp>
cudaError_t LaunchRows(cudaStream_t stream, const RowOp& op, int64_t num_rows,
                       int64_t packs) {
  if (num_rows == 0 || packs == 0) return cudaSuccess;
  const int lane_bits = LaneBits(packs, 8);
  // Four rows a thread, where so many have a plan: loads that do not wait for
  // each other.
  const int rows_at_once = kBlock >> lane_bits;
  const int tile_rows = 4 * rows_at_once < kBlock ? 4 * rows_at_once : kBlock;
  const int64_t blocks = DivideUp(num_rows, tile_rows);
  return LaunchGrid(RowKernel<RowOp>, static_cast<unsigned>(blocks), stream, op,
                    num_rows, packs, lane_bits, tile_rows);
}

// What rows without a source are filled with: `row`, in device memory, or if
// that is nullptr `bytes` over and over.
struct RowFill {
  const void* row = nullptr;
  char bytes[16] = {};

  // `size` divides 16.
  static RowFill Number(const void* number, int64_t size) {
    RowFill fill;
    for (int64_t i = 0; i < 16; i += size) {
      std::memcpy(fill.bytes + i, number, size);
    }
    return fill;
  }
};

// Row r of `out` is row map.Source(r) of `in`, or the fill where that is -1.
// A row goes in units of 16 bytes, or of fewer where its size or its place in
// memory demands; which type of number it holds does not matter.
template <typename Unit, typename Map>
struct CopyRowOp {
  using Plan = int64_t;
  Map map;
  const Unit* in;
  Unit* out;
  const Unit* fill_row;
  Unit fill;
  int64_t units;  // of a row

  __device__ Plan MakePlan(int64_t row) const { return map.Source(row); }
  __device__ void Apply(Plan source, int64_t row, int64_t unit) const {
    out[row * units + unit] = source >= 0 ? in[source * units + unit]
                              : fill_row  ? fill_row[unit]
                                          : fill;
  }
};

template <typename Unit, typename Map>
cudaError_t LaunchCopyUnits(cudaStream_t stream, const Map& map, const void* in,
                            int64_t num_rows, int64_t row_bytes,
                            const RowFill& fill, void* out) {
  CopyRowOp<Unit, Map> op{map,
                          static_cast<const Unit*>(in),
                          static_cast<Unit*>(out),
                          static_cast<const Unit*>(fill.row),
                          Unit(),
                          row_bytes / static_cast<int64_t>(sizeof(Unit))};
  std::memcpy(&op.fill, fill.bytes, sizeof(Unit));
  return LaunchRows(stream, op, num_rows, op.units);
}

// `num_rows` is that of `out`; row_bytes is a multiple of 2.
template <typename Map>
cudaError_t LaunchCopyRows(cudaStream_t stream, const Map& map, const void* in,
                           int64_t num_rows, int64_t row_bytes,
                           const RowFill& fill, void* out) {
  const auto fits = [&](int64_t bytes) {
    return row_bytes % bytes == 0 && IsAligned(in, bytes) &&
           IsAligned(out, bytes) && IsAligned(fill.row, bytes);
  };
  const auto launch = fits(16)  ? LaunchCopyUnits<uint4, Map>
                      : fits(8) ? LaunchCopyUnits<uint2, Map>
                      : fits(4) ? LaunchCopyUnits<uint32_t, Map>
                                : LaunchCopyUnits<uint16_t, Map>;
  return launch(stream, map, in, num_rows, row_bytes, fill, out);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_CUDA_SEQUENCE_ROWS_CUDA_H_
