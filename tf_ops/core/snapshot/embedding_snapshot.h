// EmbeddingSnapshot: a consistent copy of a table, written to a file while the
// table keeps changing.
//
//   Begin    between two optimizer steps: marks the snapshot's rows in bits;
//            copies no row
//   Write    for each row: locks it, copies it, clears its bit
//   others   before writing to a row whose bit is set, copy it as an image and
//            clear its bit (copy-on-write); Write writes the images as well
//
// So each row is in the file once, as of Begin. Memory holds at most two blocks
// and the images, which are bounded (row_images.h). Ids that wait for
// admission, and the sketch that counts them, are copied by Begin.
//
// An incremental snapshot has the rows written since its base, and the ids
// removed since then; a row that was removed and inserted again is in both.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_EMBEDDING_SNAPSHOT_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_EMBEDDING_SNAPSHOT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/rows/row_images.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/table/snapshot_source.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

// Thread-safe. A table has at most one snapshot at a time. Calls that change
// all of its rows (Clear, DecayFrequencies) wait for the end of the snapshot.
class EmbeddingSnapshot {
 public:
  struct Source {
    std::shared_ptr<Table> table;
    // Makes an incremental snapshot if this is the table's base, else a full
    // one.
    std::string base;
    // Where Begin works; of the device of the table.
    Execution on = {};
  };
  // Begins snapshots of all tables at one consistent point, in the order of
  // `sources`, atomically. `gates` are those of the tables: waits until no
  // optimizer step is inside them, and closes them while the images of these
  // snapshots exceed their limit. Returns InvalidArgument if a table occurs
  // twice, Unimplemented if a table has no snapshots, FailedPrecondition if a
  // table already has a snapshot or steps overlapped for a minute without a
  // gap, ResourceExhausted if out of memory.
  static Status Begin(Span<const Source> sources, const StepGates& gates,
                      std::vector<std::unique_ptr<EmbeddingSnapshot>>* out);
  // Aborts the snapshot unless it is committed.
  ~EmbeddingSnapshot();
  EmbeddingSnapshot(const EmbeddingSnapshot&) = delete;
  EmbeddingSnapshot& operator=(const EmbeddingSnapshot&) = delete;

  // The table's description; `whole` is false for an incremental snapshot.
  const SnapshotTable& table() const { return state_.table; }

  // Appends the snapshot to an empty file, without finishing the file. Call
  // once. After an error the snapshot can only be aborted. Returns
  // ResourceExhausted if there was no memory for an image or a block,
  // FailedPrecondition if the snapshot was written or aborted, or an error of
  // the file.
  Status Write(SnapshotFileWriter* file);

  // Declares the file durable: the next incremental snapshot follows `base`.
  // Aborts the snapshot if it was not written.
  void Commit(std::string base);
  // May be called by another thread during Write. The next incremental snapshot
  // includes the changes of this one.
  void Abort();

 private:
  EmbeddingSnapshot(std::shared_ptr<Table> table,
                    std::unique_ptr<SnapshotSource> source)
      : keep_(std::move(table)), source_(std::move(source)) {}

  Status WriteAll(SnapshotFileWriter* file) LODESTAR_REQUIRES(mutex_);
  // Writes images that other threads made: full chunks only, or all.
  Status WriteImages(SnapshotFileWriter* file, bool all)
      LODESTAR_REQUIRES(mutex_);
  // base: nullptr if the snapshot failed.
  void End(std::string* base) LODESTAR_REQUIRES(mutex_);

  const std::shared_ptr<Table> keep_;  // alive while source_ is
  const std::unique_ptr<SnapshotSource> source_;
  // Written by Begin; its pending ids and sketch are dropped once written.
  SnapshotState state_;
  std::atomic<bool> aborted_{false};
  Mutex mutex_;  // held during Begin, Write and End
  // Shared by the snapshots of one Begin; null before.
  std::shared_ptr<ImageBudget> budget_ LODESTAR_GUARDED_BY(mutex_);
  bool begun_ LODESTAR_GUARDED_BY(mutex_) = false;
  bool written_ LODESTAR_GUARDED_BY(mutex_) = false;
  // Whether it was written without an error.
  bool complete_ LODESTAR_GUARDED_BY(mutex_) = false;
  bool ended_ LODESTAR_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_EMBEDDING_SNAPSHOT_H_
