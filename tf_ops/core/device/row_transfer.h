// Warp-cooperative row copies: each thread locates one row, then all threads of
// the warp copy the 32 rows, with lanes along each row.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_ROW_TRANSFER_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_ROW_TRANSFER_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "tf_ops/core/base/pack.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/rows/initial_value.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// Draws the initial values of a row.
struct InitialRow {
  InitialValue value;
  RowType type = RowType::kFloat32;

  template <typename T, typename Unit, int kUnrolled>
  __device__ static Unit Draw(const InitialValue& value, uint64_t base,
                              int64_t unit) {
    constexpr int kNumbers = sizeof(Unit) / sizeof(T);
    Unit result = {};
    if constexpr (kNumbers > 0) {
      T numbers[kNumbers];
#pragma unroll kUnrolled
      for (int k = 0; k < kNumbers; ++k) {
        numbers[k] =
            RoundTo<T>(value.Draw(base, static_cast<int>(unit * kNumbers + k)));
      }
      memcpy(&result, numbers, sizeof(result));
    }
    return result;
  }
  // Not inlined, because it is used in many places and seldom called.
  template <typename T, typename Unit>
  __device__ static __noinline__ Unit DrawNotInlined(InitialValue value,
                                                     uint64_t base,
                                                     int64_t unit) {
    return Draw<T, Unit, 1>(value, base, unit);
  }
  // Unit number `unit` of the row whose id has base `base`.
  template <typename Unit>
  __device__ Unit Draw(uint64_t base, int64_t unit) const {
    switch (type) {
      case RowType::kFloat16:
        return DrawNotInlined<Float16, Unit>(value, base, unit);
      case RowType::kBFloat16:
        return DrawNotInlined<BFloat16, Unit>(value, base, unit);
      default:
        return Draw<float, Unit, 4>(value, base, unit);
    }
  }
};

// Values of missing rows. Not inlined, because it is used in many places and
// few rows are missing.
struct MissingRows {
  Missing::Kind kind = Missing::Kind::kZeros;
  const void* vector = nullptr;
  InitialRow initial;

  template <typename Unit>
  __device__ __noinline__ Unit Read(int64_t id, int64_t unit) const {
    if (kind == Missing::Kind::kVector) {
      return static_cast<const Unit*>(vector)[unit];
    }
    if (kind == Missing::Kind::kInitial) {
      return initial.template Draw<Unit>(initial.value.BaseOf(id), unit);
    }
    return Unit();
  }
  template <typename T>
  __device__ __noinline__ T ReadNumber(int64_t id, int64_t column) const {
    if (kind == Missing::Kind::kVector) {
      return static_cast<const T*>(vector)[column];
    }
    if (kind == Missing::Kind::kInitial) {
      return RoundTo<T>(initial.value.Draw(initial.value.BaseOf(id),
                                           static_cast<int>(column)));
    }
    return T();
  }
};

// Source of a row: its address, which is a multiple of 32, or one of these
// values.
constexpr uint64_t kFromNowhere = 0;  // do not write the row
constexpr uint64_t kFromMissing = 1;
constexpr uint64_t kFromZeros = 2;

__device__ inline uint64_t SourceOf(const void* row) {
  return reinterpret_cast<uint64_t>(row);
}

// Each lane copies row first + lane of `out` from its `source`. All threads of
// the warp must call this. `ids`: ids of the rows; [first, first + 32) are
// those with a source.
template <typename Unit>
__device__ void CopyRows(uint64_t source, const int64_t* ids, int64_t first,
                         int64_t units, int lane_bits,
                         const MissingRows& missing, Unit* out) {
  constexpr int kAtOnce = 4;
  const int lane = threadIdx.x % kWarp;
  const int lanes = 1 << lane_bits;
  const int step = kWarp >> lane_bits;
  for (int begin = lane >> lane_bits; begin < kWarp + (lane >> lane_bits);
       begin += step * kAtOnce) {
    uint64_t from[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int row = begin + k * step;
      from[k] = __shfl_sync(kWholeWarp, source, row % kWarp);
      if (row >= kWarp) from[k] = kFromNowhere;
    }
    for (int64_t u = lane & (lanes - 1); u < units; u += lanes) {
      Unit unit[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (from[k] > kFromZeros) {
          unit[k] = reinterpret_cast<const Unit*>(from[k])[u];
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (from[k] == kFromNowhere) continue;
        const int64_t row = first + begin + k * step;
        if (from[k] == kFromMissing) {
          unit[k] = missing.Read<Unit>(ids[row], u);
        } else if (from[k] == kFromZeros) {
          unit[k] = Unit();
        }
        out[row * units + u] = unit[k];
      }
    }
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_ROW_TRANSFER_H_
