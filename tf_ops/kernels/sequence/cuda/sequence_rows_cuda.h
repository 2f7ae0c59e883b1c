// CUDA kernels that handle each row independently: RowKernel, and CopyRowOp for
// copies of rows.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_ROWS_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_ROWS_CUDA_H_

#include <cstring>

#include "tf_ops/core/base/pack.h"
#include "tf_ops/core/device/device_launch.h"

namespace lodestar {

// Each block computes `tile_rows` (at most kBlock) consecutive output rows.
// First, one thread per row calls op.MakePlan(row), which may search the splits
// for the row's source, and stores the plan in shared memory. Then 1 <<
// lane_bits threads per row call op.Apply(plan, row, pack) for its packs.
// Sequence lengths do not matter, because blocks are assigned to rows.
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
  // Four rows per thread, if that many have a plan, so their loads are
  // independent.
  const int rows_at_once = kBlock >> lane_bits;
  const int tile_rows = 4 * rows_at_once < kBlock ? 4 * rows_at_once : kBlock;
  const int64_t blocks = DivideUp(num_rows, tile_rows);
  return LaunchGrid(RowKernel<RowOp>, static_cast<unsigned>(blocks), stream, op,
                    num_rows, packs, lane_bits, tile_rows);
}

// Content of rows without a source: `row`, in device memory, or if that is
// nullptr the bytes of `bytes`, repeated.
struct RowFill {
  const void* row = nullptr;
  char bytes[16] = {};

  // Requires: `size` divides 16.
  static RowFill Number(const void* number, int64_t size) {
    RowFill fill;
    for (int64_t i = 0; i < 16; i += size) {
      std::memcpy(fill.bytes + i, number, size);
    }
    return fill;
  }
};

enum class CopyTo { kRow, kPlace };

// kRow copies row map.Source(r) of `in` to row r of `out`; -1 means the fill.
// kPlace copies row r of `in` to row map.Place(r) of `out`; -1 means nowhere.
// Copies units of 16 bytes, or smaller ones if size or alignment of a row
// requires it, whatever number type the row has.
template <CopyTo kTo, typename Unit, typename Map>
struct CopyRowOp {
  using Plan = int64_t;
  Map map;
  const Unit* in;
  Unit* out;
  const Unit* fill_row;
  Unit fill;
  int64_t units;  // per row

  __device__ Plan MakePlan(int64_t row) const {
    if constexpr (kTo == CopyTo::kRow) {
      return map.Source(row);
    } else {
      return map.Place(row);
    }
  }
  __device__ void Apply(Plan other, int64_t row, int64_t unit) const {
    if constexpr (kTo == CopyTo::kRow) {
      out[row * units + unit] = other >= 0 ? in[other * units + unit]
                                : fill_row ? fill_row[unit]
                                           : fill;
    } else if (other >= 0) {
      out[other * units + unit] = in[row * units + unit];
    }
  }
};

// `num_rows` counts the rows of `out`, or for kPlace of `in`.
template <CopyTo kTo = CopyTo::kRow, typename Map>
cudaError_t LaunchCopyRows(cudaStream_t stream, const Map& map, const void* in,
                           int64_t num_rows, int64_t row_bytes,
                           const RowFill& fill, void* out) {
  const auto launch = [&](auto unit) {
    using Unit = decltype(unit);
    constexpr auto kUnitBytes = static_cast<int64_t>(sizeof(Unit));
    CopyRowOp<kTo, Unit, Map> op{map,
                                 static_cast<const Unit*>(in),
                                 static_cast<Unit*>(out),
                                 static_cast<const Unit*>(fill.row),
                                 unit,
                                 row_bytes / kUnitBytes};
    std::memcpy(&op.fill, fill.bytes, sizeof(Unit));
    return LaunchRows(stream, op, num_rows, op.units);
  };
  // Tables have no numbers of one byte, so UnitBytes never returns 1.
  const auto bits = row_bytes | reinterpret_cast<intptr_t>(in) |
                    reinterpret_cast<intptr_t>(out) |
                    reinterpret_cast<intptr_t>(fill.row);
  if (bits % 2 != 0) return launch(Pack<uint8_t, 1>());
  return VisitUnit(UnitBytes(row_bytes, in, out, fill.row), launch);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_ROWS_CUDA_H_
