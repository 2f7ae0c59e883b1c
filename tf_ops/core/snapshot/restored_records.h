// The parts of a table's snapshot files, and state accumulated over files.
// Shared by TableRestorer and SnapshotDelta.

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
#include "tf_ops/core/embedding/rows_applier.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_table.h"
#include "tf_ops/core/table/embedding_rows.h"
#include "tf_ops/core/table/table.h"

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

// Merges `table`, read from another part's file at `path`, into `joined`, which
// was read from the file at `before`. A part that has never had a gradient has
// no optimizer yet. Returns InvalidArgument if they belong to different tables.
Status JoinParts(const std::string& before, const std::string& path,
                 const SnapshotTable& table, SnapshotTable* joined);

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

// A snapshot file of a table that is restored.
class RestoredFile {
 public:
  // Returns InvalidArgument if the file's rows do not fit the table.
  Status Open(const ListedFile& file, const RowChecks& checks);

  const std::string& path() const { return file_.path(); }
  const SnapshotTable& table() const { return file_.table(); }
  // The records of a block with rows.
  RowRecords RecordsOf(const SnapshotFileReader::Block& block,
                       bool reset_slots) const {
    return {block.payload.data(), block.count, table().layout(), reset_slots};
  }

  // Checks all records and calls visit(block), on any thread, for blocks of
  // rows and removed ids, and for shared rows if the table has some. Adds the
  // admission state of `part`, unless `admission` is null. Returns DataLoss if
  // a shared row is missing or occurs twice, or if the file is not as listed,
  // which is known only after the last visit.
  Status ForEach(const RowChecks& checks, const ParallelFor* parallel,
                 AdmissionState* admission, const TablePart& part,
                 const SnapshotScan::Visit& visit) const;

 private:
  SnapshotTableFile file_;
};

// Creates a table in host memory with the options and the state of `table`, but
// without its rows: it accepts what `table` accepts. It is a stopover between
// files and a table on a GPU. Returns ResourceExhausted if out of memory.
Status MakeHostTable(const Table& table, const Execution& on,
                     std::unique_ptr<EmbeddingStore>* out);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_RESTORED_RECORDS_H_
