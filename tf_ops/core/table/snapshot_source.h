// SnapshotSource: what a snapshot reads of a table, and how it begins and ends.
// tf_ops/core/snapshot/embedding_snapshot.h describes the protocol.

#ifndef LODESTAR_TF_OPS_CORE_TABLE_SNAPSHOT_SOURCE_H_
#define LODESTAR_TF_OPS_CORE_TABLE_SNAPSHOT_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_images.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/snapshot_record.h"

namespace lodestar {

// Description of a table in a snapshot: the contents of a TABLE block.
struct SnapshotTable {
  int dim = 1;
  RowType type = RowType::kFloat32;
  bool whole = true;  // false: incremental
  AttachedOptimizer optimizer;
  int64_t step = 0;
  int64_t seed = 0;
  int64_t salt = 0;
  bool own_step = false;    // SetStep sets the step
  int64_t shared_rows = 0;  // number of shared rows of the table

  SnapshotRowLayout layout() const { return {dim, type, optimizer.slots()}; }
  int64_t record_bytes() const { return layout().bytes(); }
};

// What a snapshot copies when it begins.
struct SnapshotState {
  SnapshotTable table;
  std::vector<SnapshotPending> pending;  // ids that wait for admission
  std::vector<uint8_t> sketch;           // counters of admission
  int64_t bytes = 0;                     // of rows and optimizer slots
};

// One snapshot of one table.
class SnapshotSource {
 public:
  virtual ~SnapshotSource() = default;

  // Budget of the table's running snapshot; null: none is running.
  virtual std::shared_ptr<ImageBudget> budget() const = 0;
  // Allocates the memory that Begin needs. Takes the table's locks.
  virtual Status Reserve() = 0;
  // Takes and releases all locks of the table.
  virtual void Lock() = 0;
  virtual void Unlock() = 0;

  // Describe and Begin require the locks and Reserve.

  // Makes an incremental snapshot if `base` is the table's base, else a full
  // one. Changes nothing in the table. May throw std::bad_alloc.
  virtual Status Describe(const std::string& base, SnapshotState* state) = 0;
  // Begins the snapshot described last; keeps images of rows that change in
  // chunks of at most `chunk_bytes` each and `images_bytes` in total, if that
  // leaves room for a record. Requires: no snapshot is running.
  virtual void Begin(std::shared_ptr<ImageBudget> budget, int64_t chunk_bytes,
                     int64_t images_bytes) = 0;

  // The methods below require Begin. EndImages and End may run beside writers
  // of the table; the rest is for one thread at a time.

  // Ids removed since the base, by shard.
  virtual const std::vector<std::vector<int64_t>>& removed() const = 0;
  // Parts have either rows or shared rows; the latter are last.
  virtual size_t num_parts() const = 0;
  virtual bool has_shared_rows(size_t part) const = 0;
  // Number of rows of a part, of which some may not belong to the snapshot.
  virtual int64_t num_rows(size_t part) const = 0;
  // Writes up to `most` records of rows that are not saved yet, starting at row
  // *next. Sets *count to their number and *next to the next row, which is
  // num_rows() at the end.
  virtual Status SaveRows(size_t part, int64_t most, int64_t* next, char* out,
                          int64_t* count) = 0;
  // Returns images, full chunks only or all; the caller must Release them.
  virtual Status TakeImages(size_t part, bool all,
                            RowImages::Chunk** chunks) = 0;
  // Stops keeping images and drops the existing ones. May be repeated.
  virtual void EndImages() = 0;
  // Ends the snapshot. *base becomes the table's base; null: the snapshot
  // failed, and its changes belong to the next one.
  virtual void End(std::string* base) = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_TABLE_SNAPSHOT_SOURCE_H_
