// What the blocks of a table's snapshot file hold (docs/snapshot.md).

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_TABLE_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_TABLE_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/snapshot_record.h"
#include "tf_ops/core/snapshot/snapshot_file.h"

namespace lodestar {

// A TABLE block.
struct SnapshotTable {
  int dim = 1;
  RowType type = RowType::kFloat32;
  bool whole = true;  // else a delta
  AttachedOptimizer optimizer;
  int64_t step = 0;
  int64_t seed = 0;
  int64_t salt = 0;
  bool own_step = false;    // SetStep drives the step
  int64_t shared_rows = 0;  // that the table has

  SnapshotRowLayout layout() const {
    return {dim, type, static_cast<int64_t>(optimizer.slot_names.size())};
  }
  int64_t record_bytes() const { return layout().bytes(); }
};

// The payload of a TABLE block.
std::string EncodeTable(const SnapshotTable& table);

// Reads a payload of a TABLE block of `file`; DataLoss: it is not one. Whether
// the optimizer is one that is known here is for AttachedOptimizer::Check().
Status DecodeTable(const SnapshotFileReader& file,
                   const SnapshotFileReader::Block& block, SnapshotTable* out);

// The first block of a file, LABEL aside. DataLoss: it is not a TABLE block.
Status ReadTable(const SnapshotFileReader& file, SnapshotTable* out);

// InvalidArgument unless the files at two paths can be of one table. A table
// has no optimizer at first, so that of the first file may be none.
Status CheckSameTable(const std::string& path, const SnapshotTable& table,
                      const std::string& other_path,
                      const SnapshotTable& other);

// DataLoss unless the records of any other block of a table's file are as they
// have to be: their size, what has to be zero, and the numbers of shared rows.
// That an id occurs only once is for the caller to see.
Status CheckRecords(const SnapshotFileReader& file, const SnapshotTable& table,
                    const SnapshotFileReader::Block& block);

struct SnapshotFileSummary {
  int64_t bytes = 0;
  uint32_t crc = 0;  // of the whole file
  SnapshotTotals totals;
};

// Reads a whole file, of a table or of blobs, and checks all that the functions
// above check.
Status VerifySnapshotFile(const std::string& path, const ParallelFor* parallel,
                          SnapshotFileSummary* out);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_TABLE_H_
