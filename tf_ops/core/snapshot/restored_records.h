// Restoring of records from snapshot files to an EmbeddingStore. Shared by
// TableRestorer and SnapshotDelta.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_RESTORED_RECORDS_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_RESTORED_RECORDS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/id_parts.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {

// One of several parts of a table's ids (see PartOfId).
struct TablePart {
  uint32_t number = 0;
  uint32_t count = 1;  // 1: all ids

  bool Has(int64_t id) const {
    return count == 1 || PartOfId(id, count) == number;
  }
  // Returns the fraction of this part's ids that are also in `other`.
  double ShareIn(const TablePart& other) const {
    const double begin =
        std::max(1.0 * number / count, 1.0 * other.number / other.count);
    const double end =
        std::min((number + 1.0) / count, (other.number + 1.0) / other.count);
    return std::max(0.0, end - begin) * count;
  }
  // Returns false if no id is in both. Parts are equal ranges of one hash word.
  bool Meets(const TablePart& other) const {
    const uint64_t a = number, b = other.number;
    return a * other.count < (b + 1) * count &&
           b * count < (a + 1) * other.count;
  }
};

// Returns the head of a record.
inline SnapshotRowHead HeadOf(const char* record) {
  SnapshotRowHead head;
  __builtin_memcpy(&head, record, sizeof(head));
  return head;
}

// Merges `table`, read from another part's file at `path`, into `joined`, which
// was read from the file at `before`. A part that has never had a gradient has
// no optimizer yet. Returns InvalidArgument if they belong to different tables.
Status JoinParts(const std::string& before, const std::string& path,
                 const SnapshotTable& table, SnapshotTable* joined);

// The set of shared rows of a file that have been read. Thread-safe.
class SharedRowSet {
 public:
  explicit SharedRowSet(int64_t count) : seen_(count) {}
  // Returns DataLoss if a row occurs twice.
  Status Add(const SnapshotFileReader& file, const SnapshotTable& table,
             const SnapshotFileReader::Block& block);
  int64_t count() const {
    MutexLock lock(&mutex_);
    return count_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<bool> seen_ LODESTAR_GUARDED_BY(mutex_);
  int64_t count_ LODESTAR_GUARDED_BY(mutex_) = 0;
};

// Accumulates the admission state of several files, one file at a time.
// Thread-safe within a file.
class AdmissionState {
 public:
  // Adds a PENDING or SKETCH block, restricted to the ids of `part`.
  void Add(const SnapshotFileReader::Block& block,
           const TablePart& part = TablePart());
  // Call after the last block of the file at `path`. Merges sketches by
  // maximum, so that no id loses occurrences. Returns InvalidArgument if the
  // sizes of two sketches differ.
  Status Finish(const std::string& path);
  // Call after the last file. `step` is the latest step of all files. Drops
  // pending ids that the sketch of an earlier file counted.
  void ForgetBefore(int64_t step);
  // Valid for the lifetime of this object.
  EmbeddingRowsView View() const;

 private:
  mutable Mutex mutex_;
  std::vector<int64_t> ids_ LODESTAR_GUARDED_BY(mutex_);
  std::vector<int64_t> occurrences_ LODESTAR_GUARDED_BY(mutex_);
  std::vector<int64_t> last_seen_ LODESTAR_GUARDED_BY(mutex_);
  // Pieces of the current file's sketch, by offset.
  std::vector<std::pair<int64_t, std::vector<char>>> pieces_
      LODESTAR_GUARDED_BY(mutex_);
  std::vector<uint8_t> sketch_ LODESTAR_GUARDED_BY(mutex_);
};

// Copies records into the parts of a table.
class RestoredRecords {
 public:
  // For the records of one file. Copies slots unless `reset_slots`.
  RestoredRecords(EmbeddingStore* store, const SnapshotTable& table,
                  bool reset_slots)
      : table_(store->parts()),
        layout_(table.layout()),
        reset_slots_(reset_slots) {}

  // Returns InvalidArgument if `store` cannot hold the file's rows.
  static Status CheckTable(const std::string& path, const SnapshotTable& table,
                           const EmbeddingStore& store);
  // Returns FailedPrecondition if `rows`, the result of the file, exceed the
  // cap of `store`.
  static Status CheckCap(const std::string& path, int64_t rows,
                         EmbeddingStore* store);
  // Returns FailedPrecondition if `store` has an optimizer other than the
  // file's `optimizer`, InvalidArgument if that is unknown.
  static Status CheckOptimizer(const std::string& path,
                               const AttachedOptimizer& optimizer,
                               const EmbeddingStore& store);

  // The records of a ROWS block, grouped by shard. Shard s has records
  // [begins[s], begins[s + 1]).
  struct Groups {
    std::vector<uint32_t> begins;
    std::vector<uint32_t> tags;
    std::vector<const char*> records;
  };
  // Groups the records of the block whose ids are in `part`.
  void Group(const SnapshotFileReader::Block& block, Groups* groups,
             const TablePart& part = TablePart()) const;

  // Writes the values and slots of a row that is locked or not yet visible.
  void Write(const char* record, RowStore* rows, uint32_t row);
  // Writes the records of a SHARED_ROWS block, if the table has shared rows.
  void WriteShared(const SnapshotFileReader::Block& block);

 private:
  TableParts& table_;
  const SnapshotRowLayout layout_;
  const bool reset_slots_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_RESTORED_RECORDS_H_
