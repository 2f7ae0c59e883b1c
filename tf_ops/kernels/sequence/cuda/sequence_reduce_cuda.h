// CUDA kernels that reduce each sequence of rows to one row and balance the
// work for any mix of lengths; docs/internals/kernels.md describes the stages.
//
// A Reducer has
//   Acc                   partial result of a column; plain data
//   Range                 first and last row of a sequence, and data for Add
//   None()                the Acc of no rows
//   RangeOf(b), Find(row) as in DeviceSplits
//   Add<kVec>(range, row, c, accs)        adds kVec columns from c on of a row
//   Merge(a, b)           merges b into a, in an order that is fixed but not
//                         the order of the rows
//   Finish<kVec>(b, c, range, accs)       writes the result
// and must tolerate arbitrary splits, as DeviceSplits does.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_REDUCE_CUDA_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_REDUCE_CUDA_H_

#include <algorithm>

#include "tf_ops/core/device/device_launch.h"

namespace lodestar {

constexpr int64_t kTileRows = 128;
// Maximum number of tiles for which a block of ReduceTiles looks up sequences.
constexpr int kMaxTilesOfBlock = kBlock / 2;

// Partial results of long sequences. A tile overlaps at most two of them: the
// sequence of its first row (part 0) and of its last row (part 1).
template <typename Acc>
struct Parts {
  int64_t* sequences;  // [tiles, 2], -1: none
  Acc* accs;           // [tiles, 2, dim]
};

template <typename Reducer>
__device__ bool IsLong(const typename Reducer::Range& range) {
  return range.last - range.first > kTileRows;
}

// Each thread reduces kVec columns of one sequence. Neighboring threads have
// neighboring columns, so loads of a row are coalesced. The grid strides over
// all sequences and columns.
template <typename Reducer, int kVec>
__global__ void __launch_bounds__(kBlock)
    ReduceShort(Reducer reducer, int64_t batch, int64_t packs) {
  using Acc = typename Reducer::Acc;
  const int64_t total = batch * packs;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kBlock;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
       i < total; i += stride) {
    const int64_t b = i / packs;
    const int64_t c = (i - b * packs) * kVec;
    const typename Reducer::Range range = reducer.RangeOf(b);
    if (IsLong<Reducer>(range)) continue;
    Acc accs[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) accs[v] = Reducer::None();
#pragma unroll 4
    for (int64_t row = range.first; row < range.last; ++row) {
      reducer.template Add<kVec>(range, row, c, accs);
    }
    reducer.template Finish<kVec>(b, c, range, accs);
  }
}

// Tree reduction of the accs of all threads with the same lane into the first
// one. `shared` holds kVec * kBlock accs.
template <typename Reducer, int kVec, typename Acc>
__device__ void MergeLanes(int lane_bits, Acc (&accs)[kVec], Acc* shared) {
  const int thread = threadIdx.x;
  __syncthreads();  // previous reads of `shared` are done
#pragma unroll
  for (int v = 0; v < kVec; ++v) shared[v * kBlock + thread] = accs[v];
  for (int left = kBlock / 2; left >= 1 << lane_bits; left /= 2) {
    __syncthreads();
    if (thread < left) {
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        Reducer::Merge(&shared[v * kBlock + thread],
                       shared[v * kBlock + thread + left]);
      }
    }
  }
  if (thread < 1 << lane_bits) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) accs[v] = shared[v * kBlock + thread];
  }
}

// Each block reduces `tiles_of_block` consecutive tiles, with as many columns
// along blockIdx.y as there are lanes. Its threads first look up the long
// sequences of all its tiles; usually there is no such sequence. Then 1 <<
// lane_bits threads span the columns, and the other threads take further rows
// of the tile.
template <typename Reducer, int kVec>
__global__ void __launch_bounds__(kBlock)
    ReduceTiles(Reducer reducer, int64_t num_rows, int64_t packs, int lane_bits,
                int tiles_of_block, Parts<typename Reducer::Acc> parts) {
  using Acc = typename Reducer::Acc;
  __shared__ int64_t found[2 * kMaxTilesOfBlock];
  __shared__ Acc shared[kVec * kBlock];
  const int thread = threadIdx.x;
  const int64_t first_tile = static_cast<int64_t>(blockIdx.x) * tiles_of_block;
  if (thread < 2 * tiles_of_block) {
    const int64_t begin = (first_tile + thread / 2) * kTileRows;
    int64_t sequence = -1;
    if (begin < num_rows) {
      const int64_t end = min(begin + kTileRows, num_rows);
      const auto long_one = [&](int64_t row) {
        const int64_t b = reducer.Find(row);
        return b >= 0 && IsLong<Reducer>(reducer.RangeOf(b)) ? b : -1;
      };
      sequence = long_one(thread % 2 == 0 ? begin : end - 1);
      if (thread % 2 == 1 && sequence == long_one(begin)) sequence = -1;
      if (blockIdx.y == 0) {
        parts.sequences[first_tile * 2 + thread] = sequence;
      }
    }
    found[thread] = sequence;
  }
  __syncthreads();
  const int lanes = 1 << lane_bits;
  const int lane = thread & (lanes - 1);
  for (int part = 0; part < 2 * tiles_of_block; ++part) {
    const int64_t b = found[part];
    if (b < 0) continue;
    const typename Reducer::Range range = reducer.RangeOf(b);
    const int64_t tile_begin = (first_tile + part / 2) * kTileRows;
    const int64_t begin = max(range.first, tile_begin);
    const int64_t end = min(range.last, tile_begin + kTileRows);
    for (int64_t p = blockIdx.y * static_cast<int64_t>(lanes); p < packs;
         p += gridDim.y * static_cast<int64_t>(lanes)) {
      const bool inside = p + lane < packs;
      const int64_t c = (p + lane) * kVec;
      Acc accs[kVec];
#pragma unroll
      for (int v = 0; v < kVec; ++v) accs[v] = Reducer::None();
      if (inside) {
#pragma unroll 4
        for (int64_t row = begin + (thread >> lane_bits); row < end;
             row += kBlock >> lane_bits) {
          reducer.template Add<kVec>(range, row, c, accs);
        }
      }
      MergeLanes<Reducer, kVec>(lane_bits, accs, shared);
      if (inside && thread < lanes) {
        Acc* out = parts.accs + (first_tile * 2 + part) * packs * kVec + c;
#pragma unroll
        for (int v = 0; v < kVec; ++v) out[v] = accs[v];
      }
    }
  }
}

// Block x handles sequences x, x + gridDim.x, ..., one per thread, and merges
// the parts of the long ones one by one: 1 << lane_bits threads span the
// columns, as in ReduceTiles, and the other threads take further tiles.
template <typename Reducer>
__global__ void __launch_bounds__(kBlock)
    ReduceLong(Reducer reducer, int64_t batch, int64_t dim, int lane_bits,
               Parts<typename Reducer::Acc> parts) {
  using Acc = typename Reducer::Acc;
  __shared__ bool is_long[kBlock];
  __shared__ Acc shared[kBlock];
  const int thread = threadIdx.x;
  const int lanes = 1 << lane_bits;
  const int lane = thread & (lanes - 1);
  for (int64_t base = blockIdx.x; base < batch;
       base += static_cast<int64_t>(gridDim.x) * kBlock) {
    const int64_t mine = base + static_cast<int64_t>(thread) * gridDim.x;
    const bool mine_is_long =
        mine < batch && IsLong<Reducer>(reducer.RangeOf(mine));
    is_long[thread] = mine_is_long;
    if (!__syncthreads_or(mine_is_long)) continue;
    for (int i = 0; i < kBlock; ++i) {
      const int64_t b = base + static_cast<int64_t>(i) * gridDim.x;
      if (b >= batch) break;
      if (!is_long[i]) continue;
      const typename Reducer::Range range = reducer.RangeOf(b);
      const int64_t first_tile = range.first / kTileRows;
      const int64_t last_tile = (range.last - 1) / kTileRows;
      for (int64_t p = blockIdx.y * static_cast<int64_t>(lanes); p < dim;
           p += gridDim.y * static_cast<int64_t>(lanes)) {
        const int64_t c = p + lane;
        Acc accs[1] = {Reducer::None()};
        for (int64_t tile = first_tile + (thread >> lane_bits);
             c < dim && tile <= last_tile; tile += kBlock >> lane_bits) {
          const int64_t begin = max(range.first, tile * kTileRows);
          const int64_t part = tile * 2 + (begin > tile * kTileRows);
          if (parts.sequences[part] == b) {
            Reducer::Merge(&accs[0], parts.accs[part * dim + c]);
            continue;
          }
          // Descending splits: the tile found another sequence.
          const int64_t end = min(range.last, (tile + 1) * kTileRows);
          for (int64_t row = begin; row < end; ++row) {
            reducer.template Add<1>(range, row, c, accs);
          }
        }
        MergeLanes<Reducer, 1>(lane_bits, accs, shared);
        if (c < dim && thread < lanes) {
          reducer.template Finish<1>(b, c, range, accs);
        }
      }
    }
    __syncthreads();  // before is_long is written again
  }
}

// Size of the scratch memory of a reduction, aligned to 16.
template <typename Reducer>
int64_t ReduceScratchBytes(int64_t num_rows, int64_t dim) {
  using Acc = typename Reducer::Acc;
  if (num_rows <= kTileRows) return 0;
  const int64_t parts = 2 * DivideUp(num_rows, kTileRows);
  return parts * static_cast<int64_t>(sizeof(int64_t)) +
         parts * dim * static_cast<int64_t>(sizeof(Acc));
}

// Reduces `batch` sequences of num_rows rows of `dim` elements, kVec columns
// per thread. `scratch` holds ReduceScratchBytes<Reducer>() bytes.
template <int kVec, typename Reducer>
cudaError_t LaunchReduce(cudaStream_t stream, const Reducer& reducer,
                         int64_t num_rows, int64_t batch, int64_t dim,
                         void* scratch) {
  using Acc = typename Reducer::Acc;
  if (batch == 0 || dim == 0) return cudaSuccess;
  const int64_t packs = dim / kVec;
  const int64_t kMaxBlocks = 65535;
  const auto short_blocks = static_cast<unsigned>(
      std::min(DivideUp(batch * packs, kBlock), kMaxBlocks * 16));
  cudaError_t error = LaunchGrid(ReduceShort<Reducer, kVec>, short_blocks,
                                 stream, reducer, batch, packs);
  if (error != cudaSuccess || num_rows <= kTileRows) return error;

  const int64_t tiles = DivideUp(num_rows, kTileRows);
  static_assert(sizeof(Acc) <= 16 && 16 % sizeof(Acc) == 0,
                "an Acc goes behind the numbers of sequences");
  auto* sequences = static_cast<int64_t*>(scratch);
  const Parts<Acc> parts{sequences,
                         reinterpret_cast<Acc*>(sequences + 2 * tiles)};
  // Enough blocks to fill a device; more would only repeat the lookups.
  const int64_t tiles_of_block =
      std::min<int64_t>(std::max<int64_t>(tiles / 2048, 1), kMaxTilesOfBlock);
  // A warp reads whole cache lines of a row, with 8 or more rows in flight.
  int lane_bits = LaneBits(packs);
  const auto grid = [&](int64_t blocks, int64_t columns) {
    return dim3(static_cast<unsigned>(blocks),
                static_cast<unsigned>(std::min(
                    DivideUp(columns, int64_t{1} << lane_bits), kMaxBlocks)));
  };
  error = LaunchGrid(ReduceTiles<Reducer, kVec>,
                     grid(DivideUp(tiles, tiles_of_block), packs), stream,
                     reducer, num_rows, packs, lane_bits,
                     static_cast<int>(tiles_of_block), parts);
  if (error != cudaSuccess) return error;
  lane_bits = LaneBits(dim);
  return LaunchGrid(ReduceLong<Reducer>,
                    grid(std::min<int64_t>(batch, 1024), dim), stream, reducer,
                    batch, dim, lane_bits, parts);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_SEQUENCE_REDUCE_CUDA_H_
