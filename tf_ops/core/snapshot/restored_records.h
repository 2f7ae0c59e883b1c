// The records of snapshot files on their way into an EmbeddingStore: what
// chains and deltas share.

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

// The ids of a table that lie in one of several places.
struct TablePart {
  uint32_t number = 0;
  uint32_t count = 1;  // 1: all ids

  bool Has(int64_t id) const {
    return count == 1 || PartOfId(id, count) == number;
  }
  // Of its ids those that are in `other`, too.
  double ShareIn(const TablePart& other) const {
    const double begin =
        std::max(1.0 * number / count, 1.0 * other.number / other.count);
    const double end =
        std::min((number + 1.0) / count, (other.number + 1.0) / other.count);
    return std::max(0.0, end - begin) * count;
  }
  // False: no id is in both. Parts are ranges of one word, all of one length.
  bool Meets(const TablePart& other) const {
    const uint64_t a = number, b = other.number;
    return a * other.count < (b + 1) * count &&
           b * count < (a + 1) * other.count;
  }
};

// The head of a record.
inline SnapshotRowHead HeadOf(const char* record) {
  SnapshotRowHead head;
  __builtin_memcpy(&head, record, sizeof(head));
  return head;
}

// `status` as that of a file.
Status InFile(const std::string& path, const Status& status);

// `joined`, what the file at `before` ends in, becomes what it and the file of
// another part of the table, at `path`, end in. A part that no gradient has
// come to has no optimizer yet. InvalidArgument: they are not of one table.
Status JoinParts(const std::string& before, const std::string& path,
                 const SnapshotTable& table, SnapshotTable* joined);

// Shared rows of a file that have been seen.
class SharedRowsSeen {
 public:
  explicit SharedRowsSeen(int64_t count) : seen_(count) {}
  // DataLoss: one comes again. Any thread.
  Status See(const SnapshotFileReader& file, const SnapshotTable& table,
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

// What files hold of admission's state, one file after the other. A file may be
// read by several threads.
class AdmissionState {
 public:
  // Takes PENDING and SKETCH blocks, and of the ids those of `part`.
  void Add(const SnapshotFileReader::Block& block,
           const TablePart& part = TablePart());
  // After the last block of the file at `path`. Of several sketches the larger
  // counters stay, so that no id has fewer sightings than it had.
  // InvalidArgument: sketches of two sizes.
  Status Finish(const std::string& path);
  // After the last of several files, of which the latest step is `step`. What a
  // sketch has counted in an earlier one waits no more.
  void ForgetBefore(int64_t step);
  // For as long as this lives.
  EmbeddingRowsView View() const;

 private:
  mutable Mutex mutex_;
  std::vector<int64_t> ids_ LODESTAR_GUARDED_BY(mutex_);
  std::vector<int64_t> sightings_ LODESTAR_GUARDED_BY(mutex_);
  std::vector<int64_t> last_seen_ LODESTAR_GUARDED_BY(mutex_);
  // Of the sketch of the file that is read, by offset.
  std::vector<std::pair<int64_t, std::vector<char>>> pieces_
      LODESTAR_GUARDED_BY(mutex_);
  std::vector<uint8_t> sketch_ LODESTAR_GUARDED_BY(mutex_);
};

// Records and the parts of a table.
class RestoredRecords {
 public:
  // For the records of one file. Slots go with them unless `reset_slots`.
  RestoredRecords(EmbeddingStore* store, const SnapshotTable& table,
                  bool reset_slots)
      : table_(store->parts()),
        layout_(table.layout()),
        reset_slots_(reset_slots) {}

  // InvalidArgument: the file is of rows that `store` cannot hold.
  static Status CheckTable(const std::string& path, const SnapshotTable& table,
                           const EmbeddingStore& store);
  // FailedPrecondition: `store` has an optimizer, and `optimizer`, of the file,
  // is another one. InvalidArgument: it is not known here.
  static Status CheckOptimizer(const std::string& path,
                               const AttachedOptimizer& optimizer,
                               const EmbeddingStore& store);

  // Records of a ROWS block by shard: those of shard s are [begins[s],
  // begins[s + 1]).
  struct Groups {
    std::vector<uint32_t> begins;
    std::vector<uint32_t> tags;
    std::vector<const char*> records;
  };
  // Of ids that are not of `part` none.
  void Group(const SnapshotFileReader::Block& block, Groups* groups,
             const TablePart& part = TablePart()) const;

  // Value and slots of a row that the caller holds, or that no one can see yet.
  void Write(const char* record, RowStore* rows, uint32_t row);
  // The records of a SHARED_ROWS block, if the table has shared rows.
  void WriteShared(const SnapshotFileReader::Block& block);

 private:
  TableParts& table_;
  const SnapshotRowLayout layout_;
  const bool reset_slots_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_RESTORED_RECORDS_H_
