#include "tf_ops/core/device/device_batch.h"

#include <algorithm>

#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_sort.h"
#include "tf_ops/core/device/device_store_parts.h"
#include "tf_ops/core/device/row_transfer.h"

namespace lodestar {
namespace {

constexpr uint32_t kNone = 0xffffffffu;

int BitsFor(int64_t n) {
  int bits = 1;
  while ((int64_t{1} << bits) < n) ++bits;
  return bits;
}

Status CheckCount(const char* what, int64_t count) {
  // A number of a cell is never kNone.
  constexpr int64_t kMost = int64_t{1} << 30;
  if (count <= kMost) return Status();
  return InvalidArgument("a batch on a GPU has at most 2^30 ", what, ", found ",
                         count);
}

// A batch on its way to its distinct ids. A cell of `owners` holds the number
// of one of the ids that are equal: in the end the smallest, or the largest.
struct UniqueCall {
  DeviceStore::Ids ids;
  bool last;
  bool has_padding;
  int64_t padding_id;
  uint32_t mask;
  uint32_t* owners;   // [mask + 1]
  uint32_t* cells;    // [N], kNone for padding
  uint32_t* numbers;  // [N], 1 for owners, then their sums
  int64_t* unique;
  int64_t* occurrences;
  int64_t* positions;
  int64_t* count;

  // Numbers are turned around where the largest is wanted.
  __device__ uint32_t Number(int64_t i) const {
    return static_cast<uint32_t>(last ? ids.size - 1 - i : i);
  }
};

__global__ void ClaimKernel(UniqueCall call) {
  const int64_t i = ThreadNumber();
  const bool mine = i < SizeOf(call.ids);
  const int64_t id = mine ? call.ids.data[i] : 0;
  const bool padding = mine && call.has_padding && id == call.padding_id;
  if (call.has_padding) {
    CountBlock(padding, reinterpret_cast<unsigned long long*>(call.count + 1));
  }
  if (padding) call.cells[i] = kNone;
  if (!mine || padding) return;
  const uint32_t number = call.Number(i);
  uint32_t cell =
      static_cast<uint32_t>(Mix64(static_cast<uint64_t>(id))) & call.mask;
  while (true) {
    volatile uint32_t* const at = call.owners + cell;
    uint32_t owner = *at;
    if (owner == kNone) owner = atomicCAS(call.owners + cell, kNone, number);
    if (owner == kNone) break;
    // Equal numbers name equal ids, whichever of them this is.
    if (call.ids.data[call.Number(owner)] == id) {
      if (number < owner) atomicMin(call.owners + cell, number);
      break;
    }
    cell = (cell + 1) & call.mask;
  }
  call.cells[i] = cell;
}

__global__ void MarkOwnersKernel(UniqueCall call) {
  const int64_t i = ThreadNumber();
  if (i >= call.ids.size) return;
  const uint32_t cell = i < SizeOf(call.ids) ? call.cells[i] : kNone;
  call.numbers[i] =
      cell != kNone && call.owners[cell] == call.Number(i) ? 1u : 0u;
}

__global__ void WriteOwnersKernel(UniqueCall call) {
  const int64_t i = ThreadNumber();
  if (i >= call.ids.size) return;
  const uint32_t sum = call.numbers[i];
  if (i == call.ids.size - 1) *call.count = sum;
  if (sum == (i == 0 ? 0 : call.numbers[i - 1])) return;
  const uint32_t place = sum - 1;
  call.unique[place] = call.ids.data[i];
  call.occurrences[place] = i;
  call.owners[call.cells[i]] = place;
}

__global__ void WritePositionsKernel(UniqueCall call) {
  const int64_t i = ThreadNumber();
  if (i >= SizeOf(call.ids)) return;
  const uint32_t cell = call.cells[i];
  call.positions[i] =
      cell == kNone ? -1 : static_cast<int64_t>(call.owners[cell]);
}

// Rows of a tile of SumKernel.
constexpr int kTile = 64;

// Numbered rows, of which those with one key lie side by side: number rows[k],
// or without `rows` number k, is of key keys[k]. Keys that are no less than
// num_unique are no one's.
struct SumCall {
  const uint32_t* keys;
  const uint32_t* rows;
  int64_t count;
  int64_t num_unique;
  int64_t packs;  // of a row
  int lane_bits;
  uint32_t* part_keys;  // [tiles, 2]
};

// A group of lanes takes a tile, and sums the rows of each key in their order.
// What goes over the tile's ends is a part, for the next launch to sum: part 0
// of a tile came in from before it, part 1 goes on behind it. Where one key has
// all of the tile, part 0 is its sum, and part 1 zeros that tie it to the next.
template <typename T, int kPack>
__global__ void __launch_bounds__(kBlock)
    SumKernel(SumCall call, const T* values, ComputeOf<T>* sums,
              ComputeOf<T>* parts) {
  using C = ComputeOf<T>;
  using Sums = Pack<C, kPack>;
  constexpr int kAtOnce = 8;  // loads that do not wait for each other
  const int64_t thread = ThreadNumber();
  const int64_t tile = thread >> call.lane_bits;
  const int64_t first = tile * kTile;
  if (first >= call.count) return;
  const int64_t last = min(first + kTile, call.count);
  const int lanes = 1 << call.lane_bits;
  const int lane = thread & (lanes - 1);
  const uint32_t before = first > 0 ? call.keys[first - 1] : kNone;
  const uint32_t after = last < call.count ? call.keys[last] : kNone;
  const uint32_t first_key = call.keys[first];
  const uint32_t last_key = call.keys[last - 1];
  if (lane == 0 && parts != nullptr) {
    call.part_keys[tile * 2] = first_key == before ? first_key : kNone;
    call.part_keys[tile * 2 + 1] = last_key == after ? last_key : kNone;
  }
  for (int64_t p = lane; p < call.packs; p += lanes) {
    uint32_t key = first_key;
    bool starts = key != before;
    Sums sum = {};
    const auto flush = [&](bool ends) {
      if (key >= call.num_unique) return;
      Sums* const out = reinterpret_cast<Sums*>(starts && ends ? sums : parts);
      const int64_t row = starts && ends ? key : tile * 2 + starts;
      out[row * call.packs + p] = sum;
      if (!starts && !ends) out[(row + 1) * call.packs + p] = Sums();
    };
    for (int64_t begin = first; begin < last; begin += kAtOnce) {
      Pack<T, kPack> loaded[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (begin + k >= last) break;
        const int64_t row =
            call.rows == nullptr ? begin + k : int64_t{call.rows[begin + k]};
        loaded[k] = reinterpret_cast<const Pack<T, kPack>*>(
            values)[row * call.packs + p];
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (begin + k >= last) break;
        const uint32_t next = call.keys[begin + k];
        if (next != key) {
          flush(true);
          key = next;
          starts = true;
          sum = Sums();
        }
#pragma unroll
        for (int c = 0; c < kPack; ++c) {
          sum.at[c] += ToCompute(loaded[k].at[c]);
        }
      }
    }
    flush(key != after);
  }
}

// Sums `values`, then the parts of what they left, until no part is left.
template <typename T, int kPack>
Status SumTiles(const DeviceStream& on, SumCall call, const T* values,
                ComputeOf<T>* sums) {
  using C = ComputeOf<T>;
  constexpr const char* kFor = "the sums of gradients";
  const int64_t tiles = DivideUp(call.count, kTile);
  DeviceArray<C> parts;
  DeviceArray<uint32_t> keys;
  if (tiles > 1) {
    LODESTAR_RETURN_IF_ERROR(
        parts.Allocate(on.memory, tiles * 2 * call.packs * kPack, kFor));
    LODESTAR_RETURN_IF_ERROR(keys.Allocate(on.memory, tiles * 2, kFor));
  }
  call.part_keys = keys.data();
  LODESTAR_CUDA_TRY(Launch(SumKernel<T, kPack>, tiles << call.lane_bits,
                           on.stream, call, values, sums, parts.data()));
  if (tiles <= 1) return Status();
  call.keys = keys.data();
  call.rows = nullptr;
  call.count = tiles * 2;
  return SumTiles<C, kPack>(on, call, parts.data(), sums);
}

__global__ void NumberRowsKernel(const int64_t* positions, int64_t count,
                                 int64_t num_unique, uint32_t* keys,
                                 uint32_t* rows) {
  const int64_t i = ThreadNumber();
  if (i >= count) return;
  const int64_t position = positions[i];
  const bool inside = position >= 0 && position < num_unique;
  keys[i] = static_cast<uint32_t>(inside ? position : num_unique);
  rows[i] = static_cast<uint32_t>(i);
}

// A warp a row.
template <typename C>
__global__ void NonfiniteKernel(DeviceStore::Ids ids, const C* gradients,
                                int64_t dim, bool* flags,
                                unsigned long long* result) {
  const int64_t i = ThreadNumber() / kWarp;
  const int lane = threadIdx.x % kWarp;
  const bool mine = i < SizeOf(ids);
  bool bad = false;
  for (int64_t c = lane; mine && c < dim; c += kWarp) {
    const C x = gradients[i * dim + c];
    bad = bad || x - x != C{0};
  }
  const bool any = __ballot_sync(kWholeWarp, bad) != 0;
  if (!mine || lane != 0) return;
  flags[i] = any;
  if (!any) return;
  atomicAdd(result, 1ull);
  atomicMin(result + 1, static_cast<unsigned long long>(i));
}

template <typename T>
__global__ void RoundKernel(const float* numbers, int64_t count, T* rounded) {
  const int64_t i = ThreadNumber();
  if (i < count) rounded[i] = RoundTo<T>(numbers[i]);
}

}  // namespace

Status NonfiniteRows::Find(const DeviceStream& on, RowType type,
                           const void* gradients, const DeviceStore::Ids& ids,
                           int64_t dim) {
  constexpr const char* kFor = "the check of gradients";
  ids_ = ids;
  LODESTAR_RETURN_IF_ERROR(flags_.Allocate(on.memory, ids.size, kFor));
  LODESTAR_RETURN_IF_ERROR(result_.Allocate(on.memory, 2, kFor));
  LODESTAR_CUDA_TRY(
      cudaMemsetAsync(result_.data(), 0, sizeof(int64_t), on.stream));
  LODESTAR_CUDA_TRY(
      cudaMemsetAsync(result_.data() + 1, 0xff, sizeof(int64_t), on.stream));
  unsigned long long* const result =
      reinterpret_cast<unsigned long long*>(result_.data());
  const int64_t threads = ids.size * kWarp;
  if (ComputeType(type) == RowType::kFloat64) {
    return CudaStatus(Launch(NonfiniteKernel<double>, threads, on.stream, ids,
                             static_cast<const double*>(gradients), dim,
                             flags_.data(), result),
                      kFor);
  }
  return CudaStatus(
      Launch(NonfiniteKernel<float>, threads, on.stream, ids,
             static_cast<const float*>(gradients), dim, flags_.data(), result),
      kFor);
}

Status NonfiniteRows::Count(const DeviceStream& on, int64_t* count,
                            int64_t* first_id) const {
  int64_t result[2] = {0, 0};
  LODESTAR_CUDA_TRY(cudaMemcpyAsync(result, result_.data(), sizeof(result),
                                    cudaMemcpyDeviceToHost, on.stream));
  LODESTAR_CUDA_TRY(cudaStreamSynchronize(on.stream));
  *count = result[0];
  if (*count == 0) return Status();
  LODESTAR_CUDA_TRY(cudaMemcpyAsync(first_id, ids_.data + result[1],
                                    sizeof(*first_id), cudaMemcpyDeviceToHost,
                                    on.stream));
  return CudaStatus(cudaStreamSynchronize(on.stream), "the check of gradients");
}

Status RoundNumbers(const DeviceStream& on, RowType type, const float* numbers,
                    int64_t count, void* rounded) {
  if (type == RowType::kFloat16) {
    return CudaStatus(Launch(RoundKernel<Float16>, count, on.stream, numbers,
                             count, static_cast<Float16*>(rounded)),
                      "rounding");
  }
  return CudaStatus(Launch(RoundKernel<BFloat16>, count, on.stream, numbers,
                           count, static_cast<BFloat16*>(rounded)),
                    "rounding");
}

Status DeviceBatch::Unique(const DeviceStream& on, const DeviceStore::Ids& ids,
                           const int64_t* padding_id, Which which) {
  constexpr const char* kFor = "the distinct ids of a batch";
  LODESTAR_RETURN_IF_ERROR(CheckCount("ids", ids.size));
  const int64_t n = ids.size;
  LODESTAR_RETURN_IF_ERROR(unique_.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(occurrences_.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(positions_.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(count_.Allocate(on.memory, 2, kFor));
  LODESTAR_CUDA_TRY(
      cudaMemsetAsync(count_.data(), 0, count_.bytes(), on.stream));
  if (n == 0) return Status();
  DeviceArray<uint32_t> owners;
  DeviceArray<uint32_t> cells;
  DeviceArray<uint32_t> numbers;
  LODESTAR_RETURN_IF_ERROR(
      owners.Allocate(on.memory, int64_t{2} << BitsFor(n), kFor));
  LODESTAR_RETURN_IF_ERROR(cells.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(numbers.Allocate(on.memory, n, kFor));
  LODESTAR_CUDA_TRY(
      cudaMemsetAsync(owners.data(), 0xff, owners.bytes(), on.stream));
  UniqueCall call = {};
  call.ids = ids;
  call.last = which == Which::kLast;
  call.has_padding = padding_id != nullptr;
  call.padding_id = padding_id != nullptr ? *padding_id : 0;
  call.mask = static_cast<uint32_t>(owners.size() - 1);
  call.owners = owners.data();
  call.cells = cells.data();
  call.numbers = numbers.data();
  call.unique = unique_.data();
  call.occurrences = occurrences_.data();
  call.positions = positions_.data();
  call.count = count_.data();
  LODESTAR_CUDA_TRY(Launch(ClaimKernel, n, on.stream, call));
  LODESTAR_CUDA_TRY(Launch(MarkOwnersKernel, n, on.stream, call));
  LODESTAR_RETURN_IF_ERROR(InclusiveSum(on, n, numbers.data(), numbers.data()));
  LODESTAR_CUDA_TRY(Launch(WriteOwnersKernel, n, on.stream, call));
  return CudaStatus(Launch(WritePositionsKernel, n, on.stream, call), kFor);
}

Status DeviceBatch::Count(const DeviceStream& on, int64_t* count,
                          int64_t* padding) const {
  int64_t counts[2] = {0, 0};
  LODESTAR_CUDA_TRY(cudaMemcpyAsync(counts, count_.data(), sizeof(counts),
                                    cudaMemcpyDeviceToHost, on.stream));
  LODESTAR_CUDA_TRY(cudaStreamSynchronize(on.stream));
  *count = counts[0];
  if (padding != nullptr) *padding = counts[1];
  return Status();
}

Status SumByPosition(const DeviceStream& on, RowType type,
                     const void* gradients, const int64_t* positions,
                     int64_t num_ids, int64_t num_unique, int64_t dim,
                     void* sums) {
  constexpr const char* kFor = "the sums of gradients";
  LODESTAR_RETURN_IF_ERROR(CheckCount("gradients", num_ids));
  LODESTAR_CUDA_TRY(cudaMemsetAsync(
      sums, 0, num_unique * dim * SizeOf(ComputeType(type)), on.stream));
  DeviceArray<uint32_t> keys;
  DeviceArray<uint32_t> rows;
  LODESTAR_RETURN_IF_ERROR(keys.Allocate(on.memory, num_ids, kFor));
  LODESTAR_RETURN_IF_ERROR(rows.Allocate(on.memory, num_ids, kFor));
  LODESTAR_CUDA_TRY(Launch(NumberRowsKernel, num_ids, on.stream, positions,
                           num_ids, num_unique, keys.data(), rows.data()));
  LODESTAR_RETURN_IF_ERROR(
      SortPairs(on, num_ids, BitsFor(num_unique + 1), &keys, &rows));
  SumCall call = {};
  call.keys = keys.data();
  call.rows = rows.data();
  call.count = num_ids;
  call.num_unique = num_unique;
  return VisitRowType(type, [&](auto zero) {
    using T = decltype(zero);
    return VisitPack<T>(
        dim,
        [&](auto pack) {
          call.packs = dim / pack;
          call.lane_bits = LaneBits(call.packs);
          return SumTiles<T, decltype(pack)::value>(
              on, call, static_cast<const T*>(gradients),
              static_cast<ComputeOf<T>*>(sums));
        },
        gradients, sums);
  });
}

}  // namespace lodestar
