// What the kernels of a DeviceStore share.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_STORE_PARTS_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_STORE_PARTS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_store.h"

namespace lodestar {

__device__ inline int64_t SizeOf(const DeviceStore::Ids& ids) {
  if (ids.count == nullptr) return ids.size;
  return *ids.count < ids.size ? *ids.count : ids.size;
}

// One a step.
__device__ inline void CountSighting(DeviceRowMeta* meta, int64_t now) {
  if (meta->last_seen == now && meta->frequency != 0) return;
  meta->last_seen = now;
  if (meta->frequency != 0xffffffffu) ++meta->frequency;
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_STORE_PARTS_H_
