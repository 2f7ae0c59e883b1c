// A snapshot folder and the files of its versions (docs/internals/formats.md).

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FOLDER_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FOLDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/snapshot/manifest.h"
#include "tf_ops/core/snapshot/snapshot_file.h"

namespace lodestar {

// The files of a part of a table: a full one and the changes that follow it.
struct PartFiles {
  int64_t part = 0;
  int64_t parts = 1;
  std::vector<ListedFile> files;
  int64_t bytes = 0;  // of all files
};

// The manifests that a version needs, its own last.
using ManifestChain = std::vector<std::shared_ptr<const Manifest>>;

// The folder need not exist yet. Thread-safe.
class SnapshotFolder {
 public:
  explicit SnapshotFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string VersionPath(int64_t version) const;
  std::string FilePath(int64_t version, std::string_view file) const;

  // Returns the versions in ascending order. Returns an error if the folder
  // exists but cannot be read, or if it is unknown whether a version exists.
  Status ListVersions(std::vector<int64_t>* versions) const;
  // Returns a text that changes if a file of a version does.
  std::string StampOf(int64_t version) const;
  // Returns DataLoss if the manifest is invalid, NotFound without one. Keeps
  // the manifest in memory, and does not read it again until its checksum
  // changes.
  Status ReadManifest(int64_t version,
                      std::shared_ptr<const Manifest>* manifest) const;
  // Returns the manifests that a version needs. Returns DataLoss if they do not
  // belong together. Forgets all other manifests.
  Status ReadChain(int64_t version, ManifestChain* chain) const;

  // Returns the files of a table, per part, that the last version of a chain
  // consists of. Checks their sizes and labels. Requires: the last version has
  // the table.
  Status TableFiles(const ManifestChain& chain, std::string_view name,
                    std::vector<PartFiles>* parts) const;
  // Returns a file of blocks. Returns DataLoss if it is missing, has another
  // size, or belongs to another table, version or manifest.
  Status CheckFile(const Manifest& manifest, const ManifestFile& entry,
                   ListedFile* file) const;
  // Reads a whole file that has no blocks, and checks its checksum.
  Status ReadFile(const Manifest& manifest, const ManifestFile& file,
                  std::string* content) const;

 private:
  Status CheckParent(const Manifest& child, const Manifest& parent) const;

  // A manifest, and the last line of its file.
  struct Known {
    std::string checksum;
    std::shared_ptr<const Manifest> manifest;
  };

  const std::string path_;
  mutable Mutex mutex_;
  mutable std::map<int64_t, Known> known_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SNAPSHOT_FOLDER_H_
