// Loading of an incremental snapshot (docs/internals/formats.md), one file per
// part of the table, during lookups. A table on a GPU receives the rows in one
// piece from a table in host memory that has read the files.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_DELTA_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_DELTA_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/snapshot/restored_records.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_restore.h"
#include "tf_ops/core/snapshot/snapshot_table.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

// An incremental snapshot for a table that holds its base state.
class SnapshotDelta {
 public:
  struct Applied {
    int64_t written = 0;
    int64_t removed = 0;  // resident rows
  };

  // Reads and checks all files, and reserves memory for their rows of the ids
  // of `part`. `table` and a stream must outlive this object. Returns the
  // errors of RestoreTable; the table is not changed.
  static Status Open(Span<const ListedFile> listed, const TablePart& part,
                     Table* table, const RestoreOptions& options,
                     const Execution& on, std::unique_ptr<SnapshotDelta>* out);

  // Reads the files again and applies them on this thread. Call once. Rows
  // switch one by one, removals first. Lookups of other rows never wait, and
  // lookups of a row that is being written wait only for that write. If the
  // table has a cap, other threads cannot insert or remove rows until the end.
  // Returns FailedPrecondition if rows were inserted since Open and exceed the
  // cap. Returns DataLoss or ResourceExhausted if a file changed since Open or
  // memory ran out; the table is then partially updated.
  Status Apply(Applied* applied);

 private:
  SnapshotDelta(EmbeddingStore* store, const TablePart& part,
                const RestoreOptions& options)
      : store_(store),
        table_(store->rows_applier()),
        part_(part),
        options_(options) {}

  Status ApplyToStore();
  Status ApplyToGpu();

  struct IdAt {
    int64_t id;
    const RestoredFile* file;
    int64_t offset;
  };

  Status OpenFile(const ListedFile& listed);
  Status CheckTable(const RestoredFile& file) const;
  Status ReadFile(const RestoredFile& file, std::vector<IdAt>* found);
  Status CollectIds(std::vector<IdAt>* found);
  // Returns `status` of all files as an error of the last one.
  Status InLast(const Status& status) const {
    return Prefixed(status, "'", files_.back().path(), "': ");
  }
  // Requires: `refs` are the rows of ids_.
  Status CheckCap(Span<const RowRef> refs) const;
  Status Reserve();
  Status WriteAll();
  // Returns an empty lock if this object holds all of them.
  std::unique_lock<Mutex> LockShard(RowShard* shard) const;
  Status WriteRows(const RowRecords& records);
  Status WriteRowsOfShard(const RowRecords& records, uint32_t number,
                          RecordGroups* groups);
  void Remove();

  // For a table on a GPU: the table, where it works, and the owner of store_.
  Table* on_gpu_ = nullptr;
  Execution on_;
  std::unique_ptr<EmbeddingStore> host_;
  EmbeddingStore* const store_;
  RowsApplier table_;
  const TablePart part_;
  const RestoreOptions options_;
  std::vector<RestoredFile> files_;
  SnapshotTable joined_;          // the merged tables of all files
  std::vector<int64_t> ids_;      // of the rows, ascending
  std::vector<int64_t> removed_;  // and not written, ascending
  AdmissionState admission_;
  bool holds_shards_ = false;
  Applied applied_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_DELTA_H_
