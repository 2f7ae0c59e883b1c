// A snapshot file as a manifest lists it.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_LISTED_FILE_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_LISTED_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/snapshot/snapshot_file.h"

namespace lodestar {

struct ListedFile {
  struct Content {
    uint32_t crc32c = 0;
    int64_t rows = 0;
    int64_t removed = 0;
  };

  ListedFile() = default;
  // A file that no manifest lists.
  ListedFile(std::string name) : path(std::move(name)) {}
  ListedFile(std::string name, const Content& listed)
      : path(std::move(name)), content(listed) {}

  // Returns DataLoss unless the content is as listed. Requires: `scan` has read
  // all blocks of the file with their payloads.
  Status Check(const SnapshotScan& scan) const;

  std::string path;
  std::optional<Content> content;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_LISTED_FILE_H_
