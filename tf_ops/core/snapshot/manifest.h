// The manifest of a version, which lists its files and names its parent
// (docs/internals/formats.md).

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_MANIFEST_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_MANIFEST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// Names a version. Its number may be used again once its folder is removed, but
// its random mark is not.
struct VersionId {
  int64_t version = 0;  // 0: none
  std::string mark;

  bool operator==(const VersionId& other) const {
    return version == other.version && mark == other.mark;
  }
};

// A file of a version.
struct ManifestFile {
  std::string file;
  int64_t bytes = 0;
  uint32_t crc32c = 0;
  int64_t rows = 0;
  int64_t removed = 0;
  std::string label;  // if the file consists of blocks
};

// A file with the rows of a part of a table, or with their changes.
struct ManifestTable : ManifestFile {
  std::string name;
  bool whole = true;  // all rows, rather than those changed since the parent
  int64_t dim = 0;
  std::string dtype;
  int64_t part = 0;
  int64_t parts = 1;
};

// An array in the payloads of the BLOB blocks of a file, in NPY format.
struct ManifestBlob {
  std::string name;
  std::string file;
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string dtype;
  std::vector<int64_t> shape;
};

struct Manifest {
  VersionId id;
  VersionId parent;   // that a delta was made on
  VersionId same_as;  // that compaction made this version from
  int64_t step = 0;
  std::string time;
  std::string metadata;  // a JSON object
  std::vector<ManifestTable> tables;
  std::vector<ManifestBlob> blobs;
  std::vector<ManifestFile> files;
  // Name of a table -> indices of its parts in `tables`, in order.
  std::map<std::string, std::vector<size_t>, std::less<>> parts;

  // Returns whether the version has the content of another one.
  bool Equals(const VersionId& other) const {
    return id == other || same_as == other;
  }
  // Returns the files of a table, one per part and in order; empty without such
  // a table.
  std::vector<const ManifestTable*> PartsOf(std::string_view name) const;
  // Returns the file of `files` called `name`, or nullptr.
  const ManifestFile* FindFile(std::string_view name) const;
};

// Returns the label of the file of a table's part, or of blobs, `name`.
std::string MakeLabel(const VersionId& version, const std::string& name,
                      int64_t part = 0, int64_t parts = 1);

// Parses the content of the file at `path`, in time and memory linear in its
// size. Returns DataLoss if it is invalid, and Unimplemented if it has another
// format.
Status ParseManifest(std::string_view content, const std::string& path,
                     Manifest* manifest);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_MANIFEST_H_
