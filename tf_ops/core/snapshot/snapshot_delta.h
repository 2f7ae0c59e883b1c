// A delta of a table (docs/snapshot.md), a file for each of its parts, on its
// way into an EmbeddingStore that is read meanwhile.

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

namespace lodestar {

// A delta for a table that holds the state that the delta begins with.
class SnapshotDelta {
 public:
  struct Applied {
    int64_t written = 0;
    int64_t removed = 0;  // rows that were there
  };

  // Reads and checks all of the files, and reserves memory for their rows.
  // `store` has to live for as long as the delta.
  // DataLoss, InvalidArgument, FailedPrecondition and ResourceExhausted: as
  // RestoreTable; the table is as it was.
  static Status Open(Span<const std::string> paths, EmbeddingStore* store,
                     const RestoreOptions& options,
                     std::unique_ptr<SnapshotDelta>* out);

  // Reads the files again and writes them to the table, on this thread, once.
  // Rows switch one by one, removed ones first; lookups of the others never
  // wait, of a row that is written for no longer than that takes. Where there
  // is a cap, who adds or removes rows waits for the end.
  // FailedPrecondition: rows have come since Open, and the cap has no room.
  // DataLoss, ResourceExhausted: a file has changed since Open, or someone
  // else took the memory; the table holds a part of it.
  Status Apply(Applied* applied);

 private:
  SnapshotDelta(EmbeddingStore* store, const RestoreOptions& options)
      : store_(store), parts_(store->parts()), options_(options) {}

  struct File {
    std::unique_ptr<SnapshotFileReader> reader;
    SnapshotTable table;
    const std::string& path() const { return reader->path(); }
  };
  struct IdAt {
    int64_t id;
    const File* file;
    int64_t offset;
  };

  Status OpenFile(const std::string& path);
  Status CheckTable(const File& file) const;
  Status ReadFile(const File& file, std::vector<IdAt>* found);
  Status TakeIds(std::vector<IdAt>* found);
  Status CheckAdmission() const;
  // With `refs` of ids_.
  Status CheckCap(Span<const RowRef> refs) const;
  Status Reserve();
  Status WriteAll();
  Status WriteFile(const File& file);
  // None if all of them are held.
  std::unique_lock<Mutex> LockShard(RowShard* shard) const;
  Status Bind();
  Status WriteRows(RestoredRecords* records,
                   const SnapshotFileReader::Block& block);
  Status WriteRowsOfShard(RestoredRecords* records, uint32_t number,
                          RestoredRecords::Groups* groups);
  static void SortByAge(uint32_t begin, uint32_t end,
                        RestoredRecords::Groups* groups);
  void Remove();

  EmbeddingStore* const store_;
  TableParts& parts_;
  const RestoreOptions options_;
  std::vector<std::unique_ptr<File>> files_;
  SnapshotTable table_;           // what all of them end in
  std::vector<int64_t> ids_;      // of its rows, ascending
  std::vector<int64_t> removed_;  // and not written, ascending
  AdmissionState admission_;
  bool holds_shards_ = false;
  Applied applied_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_DELTA_H_
