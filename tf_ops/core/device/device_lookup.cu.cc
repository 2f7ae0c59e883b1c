// DeviceStore: read-only lookups, and pooling of rows from other devices.

#include <cmath>

#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/device/row_transfer.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

struct FindCall {
  DeviceIndex index;
  DeviceRows rows;
  DeviceTableState* state;
  DeviceStore::Ids ids;
  // Places of rows found before: id i at refs[positions[i]], or at refs[i]
  // without positions. Without refs the ids are searched.
  const int64_t* positions;
  const uint32_t* refs;
  bool counts;  // count searched ids as reads
  bool has_padding;
  int64_t padding_id;
  MissingRows missing;
  int64_t num_shared;  // 0: missing ids do not read shared rows
  DeviceRows shared;
  int64_t units;
  int lane_bits;
  bool* found;

  // Returns the address of the row of `id` and whether it has one.
  __device__ uint64_t RowSource(int64_t id, bool* is_found) const {
    int64_t row = 0;
    if (index.Find(id, &row) < 0) return kFromMissing;
    *is_found = true;
    return SourceOf(rows.values(static_cast<uint32_t>(row)));
  }
  // Returns the source of ids.data[i].
  __device__ uint64_t Source(int64_t i, bool* is_found) const {
    const int64_t id = ids.data[i];
    if (refs != nullptr) {
      const int64_t position = positions == nullptr ? i : positions[i];
      if (position < 0) return kFromZeros;
      const uint32_t row = refs[position];
      if (row == DeviceStore::kNoRow) return kFromMissing;
      // The row may have been removed, or reused by another id.
      const DeviceRowMeta* const meta = rows.meta(row);
      if (meta->live != 0 && meta->id == id) return SourceOf(rows.values(row));
    }
    return has_padding && id == padding_id ? kFromZeros
                                           : RowSource(id, is_found);
  }
  // The source of `id`, or its shared row if it is missing.
  __device__ uint64_t OrShared(uint64_t source, int64_t id) const {
    if (source != kFromMissing || num_shared == 0) return source;
    return SourceOf(shared.values(SharedRowOf(id, num_shared)));
  }
  // One thread per id. All threads of the block must call this.
  __device__ void CountReads(uint64_t source, bool is_found) const {
    if (!counts || refs != nullptr) return;
    CountBlock(is_found, &state->events[Event::kReadHits]);
    CountBlock(source == kFromMissing, &state->events[Event::kReadMisses]);
  }
};

// Id i has row positions[i] of `rows`.
struct FetchedCall {
  const char* rows;
  int64_t size;
  int64_t row_bytes;
  const int64_t* positions;
  int64_t num_ids;

  __device__ uint64_t Source(int64_t i) const {
    const int64_t position = positions[i];
    if (position < 0 || position >= size) return kFromZeros;
    return SourceOf(rows + position * row_bytes);
  }
};

struct PoolCall {
  const uint64_t* sources;
  FindCall find;
  DeviceStore::Bags bags;
  bool has_default;
  int64_t default_id;
  const void* default_row;  // of fetched rows; null: searches default_id
  int64_t dim;
  int64_t packs;  // per row
  int lane_bits;

  __device__ int64_t Offset(int64_t b) const {
    const int64_t offset = bags.row_splits[b] - bags.row_splits[0];
    return offset < 0 ? 0 : offset > find.ids.size ? find.ids.size : offset;
  }
  __device__ float Weight(int64_t i) const {
    return bags.weights == nullptr ? 1.0f : bags.weights[i];
  }
  // Contribution of a weight to the divisor, and the divisor of a bag.
  __device__ float Total(float weight) const {
    return bags.combiner == Combiner::kSqrtn ? weight * weight : weight;
  }
  __device__ float Divisor(float total) const {
    return bags.combiner == Combiner::kMean    ? total
           : bags.combiner == Combiner::kSqrtn ? std::sqrt(total)
                                               : 1.0f;
  }
  __device__ uint64_t DefaultSource() const {
    if (default_row != nullptr) return SourceOf(default_row);
    bool is_found = false;
    return find.OrShared(find.RowSource(default_id, &is_found), default_id);
  }
  // Pack p of the row of `id` at `source`.
  template <typename T, int kPack>
  __device__ Pack<T, kPack> Read(uint64_t source, int64_t id, int64_t p) const {
    Pack<T, kPack> row = {};
    if (source > kFromZeros) {
      row = reinterpret_cast<const Pack<T, kPack>*>(source)[p];
    } else if (source == kFromMissing) {
      for (int c = 0; c < kPack; ++c) {
        row.at[c] = find.missing.template ReadNumber<T>(id, p * kPack + c);
      }
    }
    return row;
  }
};

namespace {

// Arguments that are passed on by reference are __grid_constant__: each thread
// would copy the others to its stack, which takes as long as the rest.

// One thread per id finds its row, then its warp copies the rows.
template <typename Unit>
__global__ void __launch_bounds__(kBlock)
    FindKernel(const __grid_constant__ FindCall call, Unit* out) {
  const int64_t i = ThreadNumber();
  bool is_found = false;
  uint64_t source = kFromNowhere;
  uint64_t row = kFromNowhere;
  if (i < SizeOf(call.ids)) {
    source = call.Source(i, &is_found);
    row = call.OrShared(source, call.ids.data[i]);
    if (call.found != nullptr) call.found[i] = is_found;
  }
  CopyRows(row, call.ids.data, i - threadIdx.x % kWarp, call.units,
           call.lane_bits, call.missing, out);
  call.CountReads(source, is_found);
}

__global__ void __launch_bounds__(kBlock)
    LocateKernel(const __grid_constant__ FindCall call, uint64_t* sources) {
  const int64_t i = ThreadNumber();
  bool is_found = false;
  uint64_t source = kFromNowhere;
  if (i < SizeOf(call.ids)) {
    source = call.Source(i, &is_found);
    sources[i] = call.OrShared(source, call.ids.data[i]);
  }
  call.CountReads(source, is_found);
}

template <typename Unit>
__global__ void __launch_bounds__(kBlock)
    ReadFetchedKernel(FetchedCall call, int64_t units, int lane_bits,
                      Unit* out) {
  const int64_t i = ThreadNumber();
  const uint64_t source = i < call.num_ids ? call.Source(i) : kFromNowhere;
  CopyRows(source, nullptr, i - threadIdx.x % kWarp, units, lane_bits,
           MissingRows(), out);
}

__global__ void LocateFetchedKernel(FetchedCall call, uint64_t* sources) {
  const int64_t i = ThreadNumber();
  if (i < call.num_ids) sources[i] = call.Source(i);
}

// Lanes span the columns of a bag. Each adds up its column in the order of the
// ids, as the CPU does.
template <typename T, int kPack>
__global__ void __launch_bounds__(kBlock)
    PoolKernel(const __grid_constant__ PoolCall call, T* pooled,
               int64_t* winners) {
  constexpr int kAtOnce = 4;  // independent loads
  const int64_t thread = ThreadNumber();
  const int64_t b = thread >> call.lane_bits;
  if (b >= call.bags.size) return;
  const Combiner combiner = call.bags.combiner;
  const int64_t* const ids = call.find.ids.data;
  const int lanes = 1 << call.lane_bits;
  const int64_t begin = call.Offset(b);
  const int64_t end = call.Offset(b + 1);
  for (int64_t p = thread & (lanes - 1); p < call.packs; p += lanes) {
    float result[kPack] = {};
    int64_t winner[kPack];
    for (int c = 0; c < kPack; ++c) winner[c] = -1;
    float total = 0;
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
                call.find.missing.template ReadNumber<T>(ids[i], p * kPack + c);
          }
        }
        const float weight = call.Weight(i);
        total += call.Total(weight);
#pragma unroll
        for (int c = 0; c < kPack; ++c) {
          const float x = ToCompute(row[k].at[c]);
          switch (combiner) {
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
    const float divisor = call.Divisor(total);
    Pack<T, kPack> out;
#pragma unroll
    for (int c = 0; c < kPack; ++c) {
      out.at[c] = RoundTo<T>(divisor == 0.0f ? 0.0f : result[c] / divisor);
      if (winners != nullptr) {
        winners[b * call.dim + p * kPack + c] = winner[c];
      }
    }
    if (!any && call.has_default) {
      out = call.template Read<T, kPack>(call.DefaultSource(), call.default_id,
                                         p);
    }
    reinterpret_cast<Pack<T, kPack>*>(pooled + b * call.dim)[p] = out;
  }
}

void SetBags(const DeviceStore::Bags& bags, const uint64_t* sources,
             int64_t dim, PoolCall* call) {
  call->sources = sources;
  call->bags = bags;
  call->has_default = bags.default_id != nullptr;
  call->default_id = bags.default_id != nullptr ? *bags.default_id : 0;
  call->default_row = bags.default_row;
  call->dim = dim;
}

// fetched_rows: where the sources are, if they are not rows of a table.
Status LaunchPool(const DeviceStream& on, RowType type, PoolCall call,
                  const void* fetched_rows, void* pooled, int64_t* winners) {
  return VisitRowType(type, [&](auto zero) {
    using T = decltype(zero);
    return VisitPack<T>(
        call.dim,
        [&](auto pack) {
          call.packs = call.dim / pack;
          call.lane_bits = LaneBits(call.packs);
          return CudaStatus(Launch(PoolKernel<T, decltype(pack)::value>,
                                   call.bags.size << call.lane_bits, on.stream,
                                   call, static_cast<T*>(pooled), winners),
                            "pooling");
        },
        pooled, fetched_rows, call.default_row);
  });
}

FetchedCall CallOf(const FetchedDeviceRows& from, const DeviceStore::Ids& ids,
                   const int64_t* positions) {
  return {static_cast<const char*>(from.rows), from.size,
          from.dim * SizeOf(from.type), positions, ids.size};
}

// Finds the fetched rows of bags. Allocates *sources.
Status LocateFetched(const DeviceStream& on, const FetchedDeviceRows& from,
                     const DeviceStore::Ids& ids, const DeviceStore::Bags& bags,
                     DeviceArray<uint64_t>* sources, PoolCall* call) {
  LODESTAR_RETURN_IF_ERROR(
      sources->Allocate(on.memory, ids.size, "the rows of bags"));
  call->find.ids = ids;
  SetBags(bags, sources->data(), from.dim, call);
  return CudaStatus(Launch(LocateFetchedKernel, ids.size, on.stream,
                           CallOf(from, ids, bags.positions), sources->data()),
                    "lookup");
}

}  // namespace

Status DeviceStore::ReadRows(const DeviceStream& on,
                             const FetchedDeviceRows& from, const Ids& ids,
                             const int64_t* positions, void* rows) {
  const FetchedCall call = CallOf(from, ids, positions);
  const int unit = UnitBytes(call.row_bytes, rows, from.rows);
  const int64_t units = call.row_bytes / unit;
  return VisitUnit(unit, [&](auto zero) {
    using Unit = decltype(zero);
    return CudaStatus(Launch(ReadFetchedKernel<Unit>, ids.size, on.stream, call,
                             units, LaneBits(units), static_cast<Unit*>(rows)),
                      "lookup");
  });
}

Status DeviceStore::Pool(const DeviceStream& on, const FetchedDeviceRows& from,
                         const Ids& ids, const Bags& bags, void* pooled,
                         int64_t* winners) {
  DeviceArray<uint64_t> sources;
  PoolCall call = {};
  LODESTAR_RETURN_IF_ERROR(LocateFetched(on, from, ids, bags, &sources, &call));
  return LaunchPool(on, from.type, call, from.rows, pooled, winners);
}

FindCall DeviceStore::find_call(const Ids& ids, const int64_t* padding_id,
                                const Missing& missing) const {
  FindCall call = {};
  call.index = index();
  call.rows = rows();
  call.state = state_.data();
  call.ids = ids;
  call.counts = true;
  call.has_padding = padding_id != nullptr;
  call.padding_id = padding_id != nullptr ? *padding_id : 0;
  call.missing = {missing.kind, missing.vector, initial()};
  call.num_shared = missing.kind == Missing::Kind::kShared ? num_shared() : 0;
  call.shared = shared_rows();
  return call;
}

Status DeviceStore::FindLocked(const DeviceStream& on, FindCall call,
                               void* rows) const {
  const int unit = UnitBytes(row_bytes(), rows, call.missing.vector);
  call.units = row_bytes() / unit;
  call.lane_bits = LaneBits(call.units);
  return VisitUnit(unit, [&](auto zero) {
    using Unit = decltype(zero);
    return CudaStatus(Launch(FindKernel<Unit>, call.ids.size, on.stream, call,
                             static_cast<Unit*>(rows)),
                      "lookup");
  });
}

Status DeviceStore::FindRows(Span<const int64_t> ids, const int64_t* padding_id,
                             const Missing& missing, void* rows, bool* found,
                             const Execution& execution, bool counts) const {
  const DeviceStream& on = execution.stream();
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  FindCall call =
      find_call({ids.data(), ids.size(), nullptr}, padding_id, missing);
  call.found = found;
  call.counts = counts;
  LODESTAR_RETURN_IF_ERROR(FindLocked(on, call, rows));
  return turn.End();
}

Status DeviceStore::ReadRows(const DeviceStream& on, const Ids& ids,
                             const int64_t* positions, const uint32_t* refs,
                             const Missing& missing, void* rows) {
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  LODESTAR_RETURN_IF_ERROR(
      ReadRowsLocked(on, ids, positions, refs, missing, rows));
  return turn.End();
}

Status DeviceStore::ReadRowsLocked(const DeviceStream& on, const Ids& ids,
                                   const int64_t* positions,
                                   const uint32_t* refs, const Missing& missing,
                                   void* rows) const {
  FindCall call = find_call(ids, nullptr, missing);
  call.positions = positions;
  call.refs = refs;
  return FindLocked(on, call, rows);
}

Status DeviceStore::CopyVictims(const DeviceStream& on, const Ids& victims,
                                const AllocateEvicted& allocate) const {
  EvictedRows copies;
  LODESTAR_RETURN_IF_ERROR(allocate(victims.size, &copies));
  if (victims.size == 0) return Status();
  constexpr const char* kFor = "evicted rows";
  DeviceArray<char> rows;
  LODESTAR_RETURN_IF_ERROR(
      rows.Allocate(on.memory, victims.size * row_bytes(), kFor));
  FindCall call = find_call(victims, nullptr, Missing());
  call.counts = false;
  LODESTAR_RETURN_IF_ERROR(FindLocked(on, call, rows.data()));
  LODESTAR_CUDA_TRY(cudaMemcpyAsync(copies.ids, victims.data,
                                    victims.size * sizeof(int64_t),
                                    cudaMemcpyDeviceToHost, on.stream));
  return CopyToHost(on, rows.data(), rows.bytes(), copies.rows);
}

Status DeviceStore::LocateLocked(const DeviceStream& on, const Ids& ids,
                                 const Bags& bags, const Missing& missing,
                                 uint64_t* sources, PoolCall* call) const {
  call->find = find_call(ids, bags.padding_id, missing);
  call->find.positions = bags.positions;
  call->find.refs = bags.refs;
  SetBags(bags, sources, dim(), call);
  return CudaStatus(
      Launch(LocateKernel, ids.size, on.stream, call->find, sources), "lookup");
}

Status DeviceStore::Pool(const DeviceStream& on, const Ids& ids,
                         const Bags& bags, const Missing& missing, void* pooled,
                         int64_t* winners) {
  DeviceArray<uint64_t> own;
  uint64_t* sources = bags.sources;
  if (sources == nullptr) {
    LODESTAR_RETURN_IF_ERROR(
        own.Allocate(on.memory, ids.size, "the rows of bags"));
    sources = own.data();
  }
  MutexLock lock(&mutex_);
  StreamTurn turn(&order_, on.stream, StreamTurn::kRead);
  LODESTAR_RETURN_IF_ERROR(turn.begun());
  PoolCall call = {};
  LODESTAR_RETURN_IF_ERROR(
      LocateLocked(on, ids, bags, missing, sources, &call));
  LODESTAR_RETURN_IF_ERROR(
      LaunchPool(on, type(), call, nullptr, pooled, winners));
  return turn.End();
}

}  // namespace lodestar
