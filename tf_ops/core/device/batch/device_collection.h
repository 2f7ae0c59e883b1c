// DeviceCollection: looks up a batch of features in tables on one device. Bags
// are pooled on the device that stores their rows; features with one id per
// example skip the pooling.

#ifndef LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_COLLECTION_H_
#define LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_COLLECTION_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/device/batch/device_batch.h"
#include "tf_ops/core/device/batch/device_csr.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// All work is queued on one stream. Methods do not wait unless stated.
class DeviceCollection {
 public:
  // Arrays in host memory. Ids are the table's ids.
  struct Feature {
    int64_t table = 0;
    DeviceCsr::Slot slot;  // without row_splits: one row per id
    Combiner combiner = Combiner::kMean;
    const int64_t* default_id = nullptr;  // an empty bag reads its row
  };

  // Sends the batch to the device. Of `features`, only padding_id and
  // default_id must outlive this. The ids of a table are ordered by feature.
  // Returns ResourceExhausted if out of memory.
  Status Init(const DeviceStream& on, const std::vector<Feature>& features,
              int64_t num_tables, const ParallelFor* parallel);

  // The ids of a table and, after Unique, their deduplication.
  DeviceStore::Ids ids(int64_t table) const;
  const DeviceBatch& batch(int64_t table) const { return tables_[table].batch; }
  int64_t num_unique(int64_t table) const { return tables_[table].num_unique; }
  int64_t num_padding(int64_t table) const {
    return tables_[table].num_padding;
  }

  // Deduplicates the ids of each table. Waits.
  Status Unique();
  // Finds or creates the rows of the unique ids in all tables or in none;
  // store[t] holds table t. Call after Unique. Allocates all memory, also for
  // Lookup and Count, before it changes a table.
  Status FindOrInsert(const std::vector<DeviceStore*>& stores,
                      const LookupOptions& options);

  // Rows of feature f: [B, D] or [N, D]. winners: see DeviceStore::Pool. After
  // FindOrInsert, uses the rows that it found; else searches.
  Status Lookup(int f, DeviceStore* store, const Missing& missing, void* rows,
                int64_t* winners) const;
  // The same for rows of this table that were fetched from other devices.
  struct Fetched {
    FetchedDeviceRows rows;
    const int64_t* positions = nullptr;  // of the table's ids
    const void* default_row = nullptr;   // of the feature; null: none
  };
  Status Lookup(int f, const Fetched& from, void* rows, int64_t* winners) const;
  // Adds the numbers of ids, padding, unique ids and previously resident ids of
  // feature f to `counts`, in device memory. Call after FindOrInsert.
  Status Count(int f, unsigned long long* counts);

  // Sums a table's gradients as SumSlots does. gradients, winners: one per
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
    DeviceArray<uint32_t> refs;         // [num_unique]
    DeviceArray<bool> resident;         // [num_unique]: had a row before
    DeviceArray<uint32_t> occurrences;  // [num_unique], if they count
  };
  // State of a feature on the device.
  struct Part {
    Feature feature;
    int slot = 0;       // index in csr_
    int64_t first = 0;  // index of its first id among those of its table
    int64_t num_ids = 0;
    int64_t num_bags = 0;
  };

  DeviceStore::Ids IdsOf(const Part& part) const;
  DeviceStore::Bags BagsOf(const Part& part) const;
  DeviceStore::Bags BagsOf(const Part& part, const Fetched& from) const;

  DeviceStream on_;
  std::vector<Part> parts_;
  std::vector<Table> tables_;
  DeviceCsr csr_;
  // Used by one feature after another, once rows are found.
  DeviceArray<uint64_t> sources_;
  DeviceArray<uint32_t> seen_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_DEVICE_BATCH_DEVICE_COLLECTION_H_
