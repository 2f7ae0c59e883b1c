#include "tf_ops/core/snapshot/listed_file.h"

namespace lodestar {

Status ListedFile::Check(const SnapshotScan& scan) const {
  if (!content.has_value()) return Status();
  if (scan.crc() != content->crc32c) {
    return DataLoss("'", path, "': the file has the checksum ", scan.crc(),
                    ", but ", content->crc32c, " in its manifest");
  }
  const SnapshotTotals& totals = scan.totals();
  if (totals.rows == content->rows && totals.removed == content->removed) {
    return Status();
  }
  return DataLoss("'", path, "': the file has ", totals.rows, " rows and ",
                  totals.removed, " removed ids, but ", content->rows, " and ",
                  content->removed, " in its manifest");
}

}  // namespace lodestar
