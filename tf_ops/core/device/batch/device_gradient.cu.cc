#include "tf_ops/core/device/batch/device_gradient.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_sort.h"
#include "tf_ops/core/device/row_transfer.h"

namespace lodestar {
namespace {

constexpr uint32_t kNone = 0xffffffffu;

// Rows per tile of SumKernel.
constexpr int kTile = 64;

// Rows to be summed, with equal keys adjacent. Element k is row rows[k] (row k
// without `rows`) with key keys[k]; keys >= num_unique are ignored. Row i is
// read at sources[i] and scaled by factors[i]; without these it is row i of
// `values`, unscaled.
struct SumCall {
  const uint32_t* keys;
  const uint32_t* rows;
  const uint64_t* sources;
  const float* factors;
  int64_t count;
  int64_t num_unique;
  int64_t packs;  // per row
  int lane_bits;
  uint32_t* part_keys;  // [tiles, 2]
};

// A group of lanes sums one tile, key by key and in order. Runs that cross the
// tile's ends become parts, which the next launch sums: part 0 for a run that
// began before the tile, part 1 for one that continues after it. If a single
// key fills the tile, part 0 is its sum and part 1 is zeros, which link it to
// the next tile.
template <typename T, int kPack>
__global__ void __launch_bounds__(kBlock)
    SumKernel(SumCall call, const T* values, float* sums, float* parts) {
  using Sums = Pack<float, kPack>;
  constexpr int kAtOnce = 8;  // independent loads
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
      float factor[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (begin + k >= last) break;
        const int64_t row =
            call.rows == nullptr ? begin + k : int64_t{call.rows[begin + k]};
        factor[k] = call.factors == nullptr ? 1.0f : call.factors[row];
        using Row = const Pack<T, kPack>*;
        loaded[k] = call.sources == nullptr
                        ? reinterpret_cast<Row>(values)[row * call.packs + p]
                        : reinterpret_cast<Row>(call.sources[row])[p];
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
          sum.at[c] += factor[k] * ToCompute(loaded[k].at[c]);
        }
      }
    }
    flush(key != after);
  }
}

// Sums `values`, then the parts, until no part is left.
template <typename T, int kPack>
Status SumTiles(const DeviceStream& on, SumCall call, const T* values,
                float* sums) {
  constexpr const char* kFor = "the sums of gradients";
  const int64_t tiles = DivideUp(call.count, kTile);
  DeviceArray<float> parts;
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
  call.sources = nullptr;
  call.factors = nullptr;
  call.count = tiles * 2;
  return SumTiles<float, kPack>(on, call, parts.data(), sums);
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

// Sums rows by key. `call` has both sources and factors, or neither.
template <typename T>
Status SumByKey(const DeviceStream& on, SumCall call, const T* values,
                const void* aligned, const int64_t* positions, int64_t num_ids,
                int64_t num_unique, int64_t dim, float* sums) {
  constexpr const char* kFor = "the sums of gradients";
  LODESTAR_CUDA_TRY(
      cudaMemsetAsync(sums, 0, num_unique * dim * sizeof(float), on.stream));
  DeviceArray<uint32_t> keys;
  DeviceArray<uint32_t> rows;
  LODESTAR_RETURN_IF_ERROR(keys.Allocate(on.memory, num_ids, kFor));
  LODESTAR_RETURN_IF_ERROR(rows.Allocate(on.memory, num_ids, kFor));
  LODESTAR_CUDA_TRY(Launch(NumberRowsKernel, num_ids, on.stream, positions,
                           num_ids, num_unique, keys.data(), rows.data()));
  LODESTAR_RETURN_IF_ERROR(
      SortPairs(on, num_ids, BitsFor(num_unique + 1), &keys, &rows));
  call.keys = keys.data();
  call.rows = rows.data();
  call.count = num_ids;
  call.num_unique = num_unique;
  return VisitPack<T>(
      dim,
      [&](auto pack) {
        call.packs = dim / pack;
        call.lane_bits = LaneBits(call.packs);
        return SumTiles<T, decltype(pack)::value>(on, call, values, sums);
      },
      static_cast<const char*>(aligned), sums);
}

// Computes the per-id gradients of a slot, whose ids are [first, first +
// num_ids) of a batch.
struct SlotCall {
  SlotGradient slot;
  const int64_t* positions;  // of the slot's ids
  int64_t first;
  int64_t dim;
  int64_t row_bytes;
  char* expanded;  // for max: [num_ids, D]
  uint64_t* sources;
  float* factors;

  __device__ const char* Row(int64_t i) const {
    return static_cast<const char*>(slot.gradients) + i * row_bytes;
  }
  __device__ int64_t Offset(int64_t b) const {
    const int64_t offset = slot.row_splits[b] - slot.row_splits[0];
    return offset < 0 ? 0 : offset > slot.num_ids ? slot.num_ids : offset;
  }
};

// One id per row: the gradient is unchanged.
__global__ void RowOfIdKernel(SlotCall call) {
  const int64_t i = ThreadNumber();
  if (i >= call.slot.num_ids) return;
  call.sources[call.first + i] = SourceOf(call.Row(i));
  call.factors[call.first + i] = 1.0f;
}

// One thread per bag computes its factors (see BagFactors).
__global__ void RowOfBagKernel(SlotCall call) {
  const int64_t b = ThreadNumber();
  if (b >= call.slot.num_bags) return;
  const SlotGradient& slot = call.slot;
  const int64_t begin = call.Offset(b);
  const int64_t end = call.Offset(b + 1);
  float total = 0;
  int64_t first_id = -1;
  int64_t last_id = -1;
#pragma unroll 1
  for (int64_t i = begin; i < end; ++i) {
    if (call.positions[i] < 0) continue;
    if (first_id < 0) first_id = i;
    last_id = i;
    const float weight =
        slot.weights == nullptr ? 1.0f : float{slot.weights[i]};
    total += slot.combiner == Combiner::kSqrtn ? weight * weight : weight;
  }
  const float divisor = slot.combiner == Combiner::kMean    ? total
                        : slot.combiner == Combiner::kSqrtn ? std::sqrt(total)
                                                            : 1.0f;
  const float inverse = divisor == 0.0f ? 0.0f : 1.0f / divisor;
  const bool picks = slot.combiner >= Combiner::kFirst;
  const int64_t picked = slot.combiner == Combiner::kFirst ? first_id : last_id;
#pragma unroll 1
  for (int64_t i = begin; i < end; ++i) {
    float factor = inverse;
    if (picks) {
      factor = i == picked ? 1.0f : 0.0f;
    } else if (slot.weights != nullptr) {
      factor = slot.weights[i] * inverse;
    }
    call.sources[call.first + i] = SourceOf(call.Row(b));
    call.factors[call.first + i] = factor;
  }
}

// One warp per bag of max: each id gets the columns that it won.
template <typename T>
__global__ void RowOfWinnerKernel(SlotCall call) {
  const int64_t b = ThreadNumber() / kWarp;
  if (b >= call.slot.num_bags) return;
  const int lane = threadIdx.x % kWarp;
  const T* const from = reinterpret_cast<const T*>(call.Row(b));
  const int64_t end = call.Offset(b + 1);
  for (int64_t i = call.Offset(b); i < end; ++i) {
    T* const row = reinterpret_cast<T*>(call.expanded + i * call.row_bytes);
    for (int64_t c = lane; c < call.dim; c += kWarp) {
      const bool won = call.slot.winners[b * call.dim + c] == i;
      row[c] = won ? from[c] : T();
    }
    if (lane != 0) continue;
    call.sources[call.first + i] = SourceOf(row);
    call.factors[call.first + i] = 1;
  }
}

template <typename T>
Status LocateRows(const DeviceStream& on, const SlotCall& call) {
  constexpr const char* kFor = "the gradients of bags";
  const SlotGradient& slot = call.slot;
  if (slot.row_splits == nullptr) {
    return CudaStatus(Launch(RowOfIdKernel, slot.num_ids, on.stream, call),
                      kFor);
  }
  if (slot.combiner == Combiner::kMax) {
    return CudaStatus(
        Launch(RowOfWinnerKernel<T>, slot.num_bags * kWarp, on.stream, call),
        kFor);
  }
  return CudaStatus(Launch(RowOfBagKernel, slot.num_bags, on.stream, call),
                    kFor);
}

// One warp per row.
__global__ void NonfiniteKernel(DeviceStore::Ids ids, const float* gradients,
                                int64_t dim, const bool* exempt, float limit,
                                bool* flags, unsigned long long* result) {
  const int64_t i = ThreadNumber() / kWarp;
  const int lane = threadIdx.x % kWarp;
  const bool mine = i < SizeOf(ids);
  const bool checked = mine && !(exempt != nullptr && exempt[i]);
  bool bad = false;
  for (int64_t c = lane; checked && c < dim; c += kWarp) {
    bad = bad || !(std::fabs(gradients[i * dim + c]) <= limit);  // also NaN
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

Status NonfiniteRows::Find(const DeviceStream& on, const void* gradients,
                           const DeviceStore::Ids& ids, int64_t dim,
                           const bool* exempt, float limit) {
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
  return CudaStatus(Launch(NonfiniteKernel, threads, on.stream, ids,
                           static_cast<const float*>(gradients), dim, exempt,
                           limit, flags_.data(), result),
                    kFor);
}

Status NonfiniteRows::Count(const DeviceStream& on, int64_t* count,
                            int64_t* first_id) const {
  int64_t result[2] = {0, 0};
  LODESTAR_RETURN_IF_ERROR(
      CopyToHost(on, result_.data(), sizeof(result), result));
  *count = result[0];
  if (*count == 0) return Status();
  return CopyToHost(on, ids_.data + result[1], sizeof(*first_id), first_id);
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

Status SumByPosition(const DeviceStream& on, RowType type,
                     const void* gradients, const int64_t* positions,
                     int64_t num_ids, int64_t num_unique, int64_t dim,
                     void* sums) {
  LODESTAR_RETURN_IF_ERROR(CheckBatchSize("gradients", num_ids));
  return VisitRowType(type, [&](auto zero) {
    using T = decltype(zero);
    return SumByKey<T>(on, {}, static_cast<const T*>(gradients), gradients,
                       positions, num_ids, num_unique, dim,
                       static_cast<float*>(sums));
  });
}

Status SumSlots(const DeviceStream& on, RowType type,
                const std::vector<SlotGradient>& slots,
                const int64_t* positions, int64_t num_unique, int64_t dim,
                void* sums) {
  if (slots.size() == 1 && slots[0].row_splits == nullptr) {
    return SumByPosition(on, type, slots[0].gradients, positions,
                         slots[0].num_ids, num_unique, dim, sums);
  }
  constexpr const char* kFor = "the gradients of bags";
  int64_t num_ids = 0;
  int64_t num_winners = 0;
  uintptr_t aligned = 0;  // common alignment of all rows
  for (const SlotGradient& slot : slots) {
    num_ids += slot.num_ids;
    aligned |= reinterpret_cast<uintptr_t>(slot.gradients);
    if (slot.combiner == Combiner::kMax) num_winners += slot.num_ids;
  }
  LODESTAR_RETURN_IF_ERROR(CheckBatchSize("gradients", num_ids));
  return VisitRowType(type, [&](auto zero) {
    using T = decltype(zero);
    DeviceArray<uint64_t> sources;
    DeviceArray<float> factors;
    DeviceArray<T> expanded;
    LODESTAR_RETURN_IF_ERROR(sources.Allocate(on.memory, num_ids, kFor));
    LODESTAR_RETURN_IF_ERROR(factors.Allocate(on.memory, num_ids, kFor));
    LODESTAR_RETURN_IF_ERROR(
        expanded.Allocate(on.memory, num_winners * dim, kFor));
    SlotCall locate = {};
    locate.dim = dim;
    locate.row_bytes = dim * static_cast<int64_t>(sizeof(T));
    locate.expanded = reinterpret_cast<char*>(expanded.data());
    locate.sources = sources.data();
    locate.factors = factors.data();
    for (const SlotGradient& slot : slots) {
      locate.slot = slot;
      locate.positions = positions + locate.first;
      LODESTAR_RETURN_IF_ERROR(LocateRows<T>(on, locate));
      locate.first += slot.num_ids;
      if (slot.combiner == Combiner::kMax) {
        locate.expanded += slot.num_ids * locate.row_bytes;
      }
    }
    SumCall call = {};
    call.sources = sources.data();
    call.factors = factors.data();
    return SumByKey<T>(on, call, nullptr,
                       reinterpret_cast<const void*>(aligned), positions,
                       num_ids, num_unique, dim, static_cast<float*>(sums));
  });
}

}  // namespace lodestar
