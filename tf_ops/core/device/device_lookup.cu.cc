// Look-ups that only read.

#include <cmath>

#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/device/device_store_parts.h"
#include "tf_ops/core/device/row_transfer.h"

namespace lodestar {

struct FindCall {
  DeviceIndex index;
  DeviceRows rows;
  DeviceTableState* state;
  DeviceStore::Ids ids;
  bool has_padding;
  int64_t padding_id;
  MissingRows missing;
  int64_t units;
  int lane_bits;
  bool* found;

  // Where the row of `id` lies, and whether it has one.
  __device__ uint64_t Source(int64_t id, bool* is_found) const {
    if (has_padding && id == padding_id) return kFromZeros;
    int64_t row = 0;
    if (index.Find(id, &row) < 0) return kFromMissing;
    *is_found = true;
    return SourceOf(rows.values(static_cast<uint32_t>(row)));
  }
};

namespace {

// A thread an id finds where its row is, then its warp copies the rows.
template <typename Unit>
__global__ void __launch_bounds__(kBlock) FindKernel(FindCall call, Unit* out) {
  const int64_t i = ThreadNumber();
  bool is_found = false;
  uint64_t source = kFromNowhere;
  if (i < SizeOf(call.ids)) {
    source = call.Source(call.ids.data[i], &is_found);
    if (call.found != nullptr) call.found[i] = is_found;
  }
  CopyRows(source, call.ids.data, i - threadIdx.x % kWarp, call.units,
           call.lane_bits, call.missing, out);
  CountBlock(is_found, &call.state->events.read_hits);
  CountBlock(source == kFromMissing, &call.state->events.read_misses);
}

template <typename Unit>
__global__ void __launch_bounds__(kBlock)
    ReadRowsKernel(FindCall call, const int64_t* positions,
                   const uint32_t* refs, Unit* out) {
  const int64_t i = ThreadNumber();
  uint64_t source = kFromNowhere;
  if (i < SizeOf(call.ids)) {
    const int64_t position = positions == nullptr ? i : positions[i];
    const uint32_t row = position < 0 ? DeviceStore::kNoRow : refs[position];
    if (position < 0) {
      source = kFromZeros;
    } else if (row == DeviceStore::kNoRow) {
      source = kFromMissing;
    } else {
      // It may have gone since it was found, and be another's.
      const int64_t id = call.ids.data[i];
      const DeviceRowMeta* const meta = call.rows.meta(row);
      bool is_found = false;
      source = meta->live != 0 && meta->id == id
                   ? SourceOf(call.rows.values(row))
                   : call.Source(id, &is_found);
    }
  }
  CopyRows(source, call.ids.data, i - threadIdx.x % kWarp, call.units,
           call.lane_bits, call.missing, out);
}

__global__ void __launch_bounds__(kBlock)
    LocateKernel(FindCall call, uint64_t* sources) {
  const int64_t i = ThreadNumber();
  bool is_found = false;
  uint64_t source = kFromNowhere;
  if (i < SizeOf(call.ids)) {
    source = call.Source(call.ids.data[i], &is_found);
    sources[i] = source;
  }
  CountBlock(is_found, &call.state->events.read_hits);
  CountBlock(source == kFromMissing, &call.state->events.read_misses);
}

struct PoolCall {
  const uint64_t* sources;
  const int64_t* ids;
  int64_t num_ids;
  const int64_t* row_splits;
  int64_t num_bags;
  const float* weights;
  Combiner combiner;
  MissingRows missing;
  int64_t dim;
  int64_t packs;  // of a row
  int lane_bits;

  __device__ int64_t Offset(int64_t b) const {
    const int64_t offset = row_splits[b];
    return offset < 0 ? 0 : offset > num_ids ? num_ids : offset;
  }
};

// Lanes along a bag's columns; each adds up its own in the order of the ids, as
// the CPU does.
template <typename T, int kPack>
__global__ void __launch_bounds__(kBlock)
    PoolKernel(PoolCall call, T* pooled, int64_t* winners) {
  using C = ComputeOf<T>;
  constexpr int kAtOnce = 4;  // loads that do not wait for each other
  const int64_t thread = ThreadNumber();
  const int64_t b = thread >> call.lane_bits;
  if (b >= call.num_bags) return;
  const int lanes = 1 << call.lane_bits;
  const int64_t begin = call.Offset(b);
  const int64_t end = call.Offset(b + 1);
  for (int64_t p = thread & (lanes - 1); p < call.packs; p += lanes) {
    C result[kPack] = {};
    int64_t winner[kPack];
    for (int c = 0; c < kPack; ++c) winner[c] = -1;
    C total = 0;
    bool any = false;
    for (int64_t at = begin; at < end; at += kAtOnce) {
      uint64_t source[kAtOnce];
      Pack<T, kPack> row[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        source[k] = at + k < end ? call.sources[at + k] : kFromZeros;
        if (source[k] > kFromZeros) {
          row[k] = reinterpret_cast<const Pack<T, kPack>*>(source[k])[p];
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (source[k] == kFromZeros) continue;
        const int64_t i = at + k;
        if (source[k] == kFromMissing) {
#pragma unroll
          for (int c = 0; c < kPack; ++c) {
            row[k].at[c] =
                call.missing.template ReadNumber<T>(call.ids[i], p * kPack + c);
          }
        }
        const C weight = call.weights == nullptr ? C{1} : C{call.weights[i]};
        total += call.combiner == Combiner::kSqrtn ? weight * weight : weight;
#pragma unroll
        for (int c = 0; c < kPack; ++c) {
          const C x = ToCompute(row[k].at[c]);
          switch (call.combiner) {
            case Combiner::kMax:
              if (!any || x > result[c]) {
                result[c] = x;
                winner[c] = i;
              }
              break;
            case Combiner::kFirst:
              if (!any) result[c] = x;
              break;
            case Combiner::kLast:
              result[c] = x;
              break;
            default:
              result[c] += weight * x;
          }
        }
        any = true;
      }
    }
    const C divisor = call.combiner == Combiner::kMean    ? total
                      : call.combiner == Combiner::kSqrtn ? std::sqrt(total)
                                                          : C{1};
    Pack<T, kPack> out;
#pragma unroll
    for (int c = 0; c < kPack; ++c) {
      out.at[c] = RoundTo<T>(divisor == C{0} ? C{0} : result[c] / divisor);
      if (winners != nullptr) {
        winners[b * call.dim + p * kPack + c] = winner[c];
      }
    }
    reinterpret_cast<Pack<T, kPack>*>(pooled + b * call.dim)[p] = out;
  }
}

}  // namespace

FindCall DeviceStore::find_call(const Ids& ids, const int64_t* padding_id,
                                const DeviceMissing& missing) const {
  FindCall call = {};
  call.index = index();
  call.rows = rows();
  call.state = state_.data();
  call.ids = ids;
  call.has_padding = padding_id != nullptr;
  call.padding_id = padding_id != nullptr ? *padding_id : 0;
  call.missing = {missing.kind, missing.vector, initial()};
  return call;
}

Status DeviceStore::Find(const DeviceStream& on, const Ids& ids,
                         const int64_t* padding_id,
                         const DeviceMissing& missing, void* rows,
                         bool* found) {
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  FindCall call = find_call(ids, padding_id, missing);
  call.found = found;
  const int unit = UnitBytes(row_bytes(), rows, missing.vector);
  call.units = row_bytes() / unit;
  call.lane_bits = LaneBits(call.units);
  LODESTAR_RETURN_IF_ERROR(VisitUnit(unit, [&](auto zero) {
    using Unit = decltype(zero);
    return CudaStatus(Launch(FindKernel<Unit>, ids.size, on.stream, call,
                             static_cast<Unit*>(rows)),
                      "look-up");
  }));
  return turn.End();
}

Status DeviceStore::ReadRows(const DeviceStream& on, const Ids& ids,
                             const int64_t* positions, const uint32_t* refs,
                             const DeviceMissing& missing, void* rows) {
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(
      ReadRowsLocked(on, ids, positions, refs, missing, rows));
  return turn.End();
}

Status DeviceStore::ReadRowsLocked(const DeviceStream& on, const Ids& ids,
                                   const int64_t* positions,
                                   const uint32_t* refs,
                                   const DeviceMissing& missing,
                                   void* rows) const {
  FindCall call = find_call(ids, nullptr, missing);
  const int unit = UnitBytes(row_bytes(), rows, missing.vector);
  call.units = row_bytes() / unit;
  call.lane_bits = LaneBits(call.units);
  return VisitUnit(unit, [&](auto zero) {
    using Unit = decltype(zero);
    return CudaStatus(Launch(ReadRowsKernel<Unit>, ids.size, on.stream, call,
                             positions, refs, static_cast<Unit*>(rows)),
                      "look-up");
  });
}

Status DeviceStore::Pool(const DeviceStream& on, const Ids& ids,
                         const Bags& bags, const DeviceMissing& missing,
                         void* pooled, int64_t* winners) {
  DeviceArray<uint64_t> sources;
  LODESTAR_RETURN_IF_ERROR(
      sources.Allocate(on.memory, ids.size, "the rows of bags"));
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  const FindCall find = find_call(ids, bags.padding_id, missing);
  LODESTAR_CUDA_TRY(
      Launch(LocateKernel, ids.size, on.stream, find, sources.data()));
  PoolCall call = {};
  call.sources = sources.data();
  call.ids = ids.data;
  call.num_ids = ids.size;
  call.row_splits = bags.row_splits;
  call.num_bags = bags.size;
  call.weights = bags.weights;
  call.combiner = bags.combiner;
  call.missing = find.missing;
  call.dim = dim();
  LODESTAR_RETURN_IF_ERROR(VisitRowType(type(), [&](auto zero) {
    using T = decltype(zero);
    return VisitPack<T>(
        dim(),
        [&](auto pack) {
          call.packs = dim() / pack;
          call.lane_bits = LaneBits(call.packs);
          return CudaStatus(Launch(PoolKernel<T, decltype(pack)::value>,
                                   bags.size << call.lane_bits, on.stream, call,
                                   static_cast<T*>(pooled), winners),
                            "pooling");
        },
        pooled);
  }));
  return turn.End();
}

}  // namespace lodestar
