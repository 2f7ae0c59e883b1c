// EmbeddingSnapshot: a table as it was at one moment, written to a file while
// the table goes on changing.
//
//   Begin    the moment, between two optimizer steps: which rows belong to the
//            snapshot is noted in bits, 64 rows a word; no row is copied
//   Write    row after row: its word is held, it is copied, its bit is cleared
//   others   who writes to a row whose bit is set copies it first, as an image,
//            and clears its bit (copy-on-write); the snapshot writes images too
//
// So each row is in the file once, as it was at the moment, and what is held in
// memory is two blocks and the images, which are bounded (row_images.h). Ids
// that wait for a row and the sketch that counts them are copied at the moment.
//
// A delta has the rows that were written since its base, and the ids that were
// removed since then; of a row that was removed and made again, both.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_EMBEDDING_SNAPSHOT_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_EMBEDDING_SNAPSHOT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {

// Thread-safe. A table has one at a time. Calls that change all of its rows
// (Clear, DecayFrequencies) wait for its end.
class EmbeddingSnapshot {
 public:
  struct Source {
    std::shared_ptr<EmbeddingStore> store;
    // A delta, if the store's base is this; empty or another: everything.
    std::string base;
  };
  // Snapshots of all tables at one moment, in the order of `sources`, or of
  // none. Waits until no optimizer step is under way.
  // InvalidArgument: a table twice. FailedPrecondition: there is a snapshot of
  // one already, or steps were under way for a minute without a pause.
  // ResourceExhausted: out of memory.
  static Status Begin(Span<const Source> sources,
                      std::vector<std::unique_ptr<EmbeddingSnapshot>>* out);
  // Aborts it, unless it is committed.
  ~EmbeddingSnapshot();
  EmbeddingSnapshot(const EmbeddingSnapshot&) = delete;
  EmbeddingSnapshot& operator=(const EmbeddingSnapshot&) = delete;

  // What the table was like; `whole`: it is no delta.
  const SnapshotTable& table() const { return table_; }

  // Adds all of it to a file that holds nothing yet and is not finished here.
  // Once. After an error the snapshot can only be aborted.
  // ResourceExhausted: there was no memory for an image or a block.
  // FailedPrecondition: it was written or aborted before. Else what the file
  // returns.
  Status Write(SnapshotFileWriter* file);

  // The file lasts: the next delta follows `base`. Aborts it if it was not
  // written.
  void Commit(std::string base);
  // Also while it is written, by another thread. The next delta has what this
  // one was to have.
  void Abort();

 private:
  struct Part;
  class RowBlock;

  explicit EmbeddingSnapshot(std::shared_ptr<EmbeddingStore> store);

  // With all locks of the table: copies what is copied.
  void Prepare(const std::string& base) LODESTAR_REQUIRES(mutex_);
  // The moment; cannot fail.
  void Flip() LODESTAR_REQUIRES(mutex_);
  Status WriteAll(SnapshotFileWriter* file) LODESTAR_REQUIRES(mutex_);
  // Images that others have left: full chunks of them, or all.
  Status WriteImages(SnapshotFileWriter* file, bool all)
      LODESTAR_REQUIRES(mutex_);
  void EndImages() LODESTAR_REQUIRES(mutex_);
  // base: nullptr: it has failed.
  void End(std::string* base) LODESTAR_REQUIRES(mutex_);

  const std::shared_ptr<EmbeddingStore> store_;
  SnapshotTable table_;
  int64_t image_limit_ = 0;
  std::atomic<bool> aborted_{false};
  Mutex mutex_;  // held by who begins, writes or ends it
  // Shards, then shared rows.
  std::vector<Part> parts_ LODESTAR_GUARDED_BY(mutex_);
  // By shard, since the base.
  std::vector<std::vector<int64_t>> removed_ LODESTAR_GUARDED_BY(mutex_);
  std::vector<SnapshotPending> pending_ LODESTAR_GUARDED_BY(mutex_);
  std::vector<uint8_t> sketch_ LODESTAR_GUARDED_BY(mutex_);
  bool begun_ LODESTAR_GUARDED_BY(mutex_) = false;
  bool written_ LODESTAR_GUARDED_BY(mutex_) = false;
  // It was written without an error.
  bool complete_ LODESTAR_GUARDED_BY(mutex_) = false;
  bool ended_ LODESTAR_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_EMBEDDING_SNAPSHOT_H_
