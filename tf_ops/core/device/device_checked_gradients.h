// Gradients of an update in device memory: summed by id, checked, and summed by
// shared row.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_CHECKED_GRADIENTS_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_CHECKED_GRADIENTS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/batch/device_batch.h"
#include "tf_ops/core/device/batch/device_gradient.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

class DeviceStore::CheckedGradients {
 public:
  // shared: [N], as for GatherForUpdate; the gradients of these ids are not
  // checked. Null: none. Waits unless non-finite gradients pass.
  Status Init(const DeviceStream& on, const TableUpdate& update,
              Nonfinite nonfinite, const bool* shared = nullptr);

  Ids ids() const { return ids_; }
  const void* sums() const { return sums_; }
  int64_t num_skipped() const { return num_skipped_; }
  // [U], the ids to skip; null: none.
  const bool* skipped() const {
    return num_skipped_ == 0 ? nullptr : nonfinite_.flags();
  }
  // Null: no shared rows.
  const SharedReaders* readers() const {
    return any_shared_ ? &readers_ : nullptr;
  }

 private:
  // Gradients of ids that are known to be unique are used as they are.
  Status Sum(const DeviceStream& on, const TableUpdate& update);
  // Skips the readers of shared rows whose sum is not finite. Waits.
  Status CheckShared(const DeviceStream& on, const DeviceStore& store,
                     const bool* shared, int64_t* first_row);

  Ids ids_;
  const void* sums_ = nullptr;
  int64_t num_skipped_ = 0;
  DeviceBatch batch_;
  DeviceArray<char> memory_;
  NonfiniteRows nonfinite_;
  bool any_shared_ = false;
  SharedReaders readers_;
};

// The gradients of the readers of shared rows.
struct ReadersCall {
  const uint32_t* keys;
  const uint32_t* order;
  int64_t count;
  const float* gradients;
  int64_t dim;

  // Returns the place after the readers of the row of `first`, or `first` if it
  // is not the first place of a row.
  __device__ int64_t EndOf(int64_t first) const {
    const uint32_t key = keys[first];
    if (key == DeviceStore::kNoRow) return first;
    if (first > 0 && keys[first - 1] == key) return first;
    int64_t end = first + 1;
    while (end < count && keys[end] == key) ++end;
    return end;
  }
  // Sums column c of the readers [first, end) with uses(i) for their index i.
  // All additions in sequence, as on the CPU.
  template <typename Uses>
  __device__ float Sum(int64_t first, int64_t end, int64_t c,
                       const Uses& uses) const {
    float sum = 0;
#pragma unroll 4
    for (int64_t k = first; k < end; ++k) {
      const int64_t i = order[k];
      if (uses(i)) sum += gradients[i * dim + c];
    }
    return sum;
  }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_CHECKED_GRADIENTS_H_
