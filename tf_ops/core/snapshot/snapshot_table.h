// The contents of the blocks of a table's snapshot file
// (docs/internals/formats.md).

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_TABLE_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/snapshot_record.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/table/snapshot_source.h"

namespace lodestar {

// Returns the payload of a TABLE block.
std::string EncodeTable(const SnapshotTable& table);

// Decodes a TABLE block of `file`. Returns DataLoss if it is invalid.
// AttachedOptimizer::Check() checks whether the optimizer is known.
Status DecodeTable(const SnapshotFileReader& file,
                   const SnapshotFileReader::Block& block, SnapshotTable* out);

// Reads the first block of a file after LABEL. Returns DataLoss if it is not
// TABLE.
Status ReadTable(const SnapshotFileReader& file, SnapshotTable* out);

// Returns InvalidArgument unless the files at the two paths can belong to one
// table. `table` may lack the optimizer, because a table is created without
// one.
Status CheckSameTable(const std::string& path, const SnapshotTable& table,
                      const std::string& other_path,
                      const SnapshotTable& other);

// Returns DataLoss unless the records of a block other than TABLE are valid:
// their size, zero fields, and numbers of shared rows. Does not detect repeated
// ids.
Status CheckRecords(const SnapshotFileReader& file, const SnapshotTable& table,
                    const SnapshotFileReader::Block& block);

// A snapshot file of a table.
class SnapshotTableFile {
 public:
  // Opens the file and reads TABLE.
  Status Open(const ListedFile& file);

  const std::string& path() const { return listed_.path; }
  const SnapshotTable& table() const { return table_; }
  const SnapshotFileReader& reader() const { return *reader_; }

  // Checks the records of each block and calls visit(block), on any thread.
  // Returns DataLoss if the file is not as listed, which is known only after
  // the last visit.
  Status ForEach(const ParallelFor* parallel,
                 const SnapshotScan::Visit& visit) const;

 private:
  ListedFile listed_;
  std::unique_ptr<SnapshotFileReader> reader_;
  SnapshotTable table_;
};

struct SnapshotFileSummary {
  int64_t bytes = 0;
  uint32_t crc = 0;  // of the whole file
  SnapshotTotals totals;
};

// Reads a whole file, of a table or of blobs, and performs all checks of this
// file.
Status VerifySnapshotFile(const std::string& path, const ParallelFor* parallel,
                          SnapshotFileSummary* out);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_TABLE_H_
