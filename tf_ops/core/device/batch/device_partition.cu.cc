#include "tf_ops/core/device/batch/device_partition.h"

#include "tf_ops/core/base/id_parts.h"
#include "tf_ops/core/base/pack.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_sort.h"

namespace lodestar {
namespace {

// One thread per id. `sizes` counts the ids of each part.
__global__ void OwnersKernel(const int64_t* ids, int64_t count, int num_parts,
                             uint32_t* owners, uint32_t* order,
                             unsigned long long* sizes) {
  const int64_t i = ThreadNumber();
  const bool mine = i < count;
  const uint32_t owner =
      mine ? PartOfId(ids[i], static_cast<uint32_t>(num_parts)) : 0;
  if (mine) {
    owners[i] = owner;
    order[i] = static_cast<uint32_t>(i);
  }
  for (int p = 0; p < num_parts; ++p) {
    CountBlock(mine && owner == static_cast<uint32_t>(p), sizes + p);
  }
}

__global__ void PlacesKernel(const uint32_t* order, int64_t count,
                             int64_t* places) {
  const int64_t i = ThreadNumber();
  if (i < count) places[order[i]] = i;
}

// out[i] = rows[order[i]], with one thread per unit of a row.
template <typename Unit>
__global__ void GatherKernel(const Unit* rows, const uint32_t* order,
                             int64_t count, int64_t units, Unit* out) {
  const int64_t thread = ThreadNumber();
  if (thread >= count * units) return;
  const int64_t i = thread / units;
  out[thread] = rows[order[i] * units + thread % units];
}

}  // namespace

Status DevicePartition::Init(const DeviceStream& on, Span<const int64_t> ids,
                             int num_parts, int64_t* places) {
  constexpr const char* kFor = "the parts of ids";
  const int64_t count = ids.size();
  LODESTAR_RETURN_IF_ERROR(CheckBatchSize("ids", count));
  begins_.assign(num_parts + 1, 0);
  if (count == 0) return Status();
  DeviceArray<uint32_t> owners;
  DeviceArray<unsigned long long> sizes;
  LODESTAR_RETURN_IF_ERROR(owners.Allocate(on.memory, count, kFor));
  LODESTAR_RETURN_IF_ERROR(order_.Allocate(on.memory, count, kFor));
  LODESTAR_RETURN_IF_ERROR(sizes.Allocate(on.memory, num_parts, kFor));
  LODESTAR_RETURN_IF_ERROR(sizes.Fill(on, 0));
  LODESTAR_CUDA_TRY(Launch(OwnersKernel, count, on.stream, ids.data(), count,
                           num_parts, owners.data(), order_.data(),
                           sizes.data()));
  LODESTAR_RETURN_IF_ERROR(
      SortPairs(on, count, BitsFor(num_parts), &owners, &order_));
  LODESTAR_CUDA_TRY(
      Launch(PlacesKernel, count, on.stream, order_.data(), count, places));
  std::vector<unsigned long long> found(num_parts);
  LODESTAR_RETURN_IF_ERROR(
      CopyToHost(on, sizes.data(), sizes.bytes(), found.data()));
  for (int p = 0; p < num_parts; ++p) {
    begins_[p + 1] = begins_[p] + static_cast<int64_t>(found[p]);
  }
  return Status();
}

Status DevicePartition::SplitRows(const DeviceStream& on, const void* rows,
                                  int64_t row_bytes,
                                  const std::vector<void*>& parts) const {
  for (size_t p = 0; p < parts.size(); ++p) {
    const uint32_t* const order = order_.data() + begins_[p];
    const int64_t count = size(static_cast<int>(p));
    const int unit = UnitBytes(row_bytes, rows, parts[p]);
    const int64_t units = row_bytes / unit;
    LODESTAR_RETURN_IF_ERROR(VisitUnit(unit, [&](auto zero) {
      using Unit = decltype(zero);
      return CudaStatus(Launch(GatherKernel<Unit>, count * units, on.stream,
                               static_cast<const Unit*>(rows), order, count,
                               units, static_cast<Unit*>(parts[p])),
                        "the rows of parts");
    }));
  }
  return Status();
}

}  // namespace lodestar
