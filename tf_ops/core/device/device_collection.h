// DeviceCollection: a batch of features that read tables in the memory of one
// device. Bags are pooled where their rows lie; features of one id an example
// skip the pooling.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_COLLECTION_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_COLLECTION_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/device_batch.h"
#include "tf_ops/core/device/device_csr.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// All work is queued on one stream. Nothing waits but where it is said.
class DeviceCollection {
 public:
  // In host memory; ids as the table knows them.
  struct Feature {
    int64_t table = 0;
    DeviceCsr::Slot slot;  // without row_splits a row for each id
    Combiner combiner = Combiner::kMean;
    const int64_t* default_id = nullptr;  // whose row an empty bag reads
  };

  // Sends the batch; of `features`, only padding_id and default_id have to
  // outlive this. The order of a table's ids is that of its features.
  // ResourceExhausted: out of memory.
  Status Init(const DeviceStream& on, BatchMemory memory,
              const std::vector<Feature>& features, int64_t num_tables,
              const ParallelFor* parallel);

  // Of a table: its ids, and once they are distinct what became of them.
  DeviceStore::Ids ids(int64_t table) const;
  const DeviceBatch& batch(int64_t table) const { return tables_[table].batch; }
  int64_t num_unique(int64_t table) const { return tables_[table].num_unique; }
  int64_t num_padding(int64_t table) const {
    return tables_[table].num_padding;
  }

  // Makes the ids of each table distinct. Waits.
  Status Unique();
  // Finds or makes the rows of the distinct ids, of store[t] those of table t,
  // after Unique. It asks for all memory, that of Lookup and Count too, before
  // it changes a table; but those with a cap ask for more in their turn.
  Status FindOrInsert(const std::vector<DeviceStore*>& stores,
                      const DeviceStore::InsertOptions& options);

  // Rows of feature f, [B, D] or [N, D]; winners as of DeviceStore::Pool. After
  // FindOrInsert they are those that it found, else they are searched.
  Status Lookup(int f, DeviceStore* store, const DeviceMissing& missing,
                void* rows, int64_t* winners) const;
  // As DeviceStore's: weight_gradients [N].
  Status WeightGradients(int f, DeviceStore* store,
                         const DeviceMissing& missing, const void* gradients,
                         float* weight_gradients) const;
  // Adds to counts, in device memory: ids, padding, distinct ids, and ids that
  // had a row before, of feature f. After FindOrInsert.
  Status Count(int f, unsigned long long* counts);

  // The sums of a table's gradients, as SumSlots. gradients, winners: of each
  // feature. positions: of the table's ids.
  Status SumGradients(int64_t table, RowType type,
                      const std::vector<const void*>& gradients,
                      const std::vector<const int64_t*>& winners,
                      const int64_t* positions, int64_t num_unique, int64_t dim,
                      void* sums) const;

 private:
  struct Table {
    int64_t num_ids = 0;
    std::vector<int> features;
    DeviceBatch batch;
    int64_t num_unique = 0;
    int64_t num_padding = 0;
    DeviceArray<uint32_t> refs;  // [num_unique]
    DeviceArray<bool> resident;  // likewise: had a row before
  };
  // Of a feature, on the device.
  struct Part {
    Feature feature;
    int slot = 0;       // of csr_
    int64_t first = 0;  // of its ids, among those of its table
    int64_t num_ids = 0;
    int64_t num_bags = 0;
  };

  DeviceStore::Ids IdsOf(const Part& part) const;
  DeviceStore::Bags BagsOf(const Part& part) const;

  DeviceStream on_;
  std::vector<Part> parts_;
  std::vector<Table> tables_;
  DeviceCsr csr_;
  // Of one feature after the other, once rows are found.
  DeviceArray<uint64_t> sources_;
  DeviceArray<uint32_t> seen_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_DEVICE_COLLECTION_H_
