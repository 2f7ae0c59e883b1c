// Arrays of a version, such as dense weights: NPY bytes in a file of blobs.

#ifndef LODESTAR_TF_OPS_CORE_SNAPSHOT_SAVED_ARRAYS_H_
#define LODESTAR_TF_OPS_CORE_SNAPSHOT_SAVED_ARRAYS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/snapshot/manifest.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_folder.h"

namespace lodestar {

struct SavedArray {
  std::string dtype;  // as in "float32"
  std::vector<int64_t> shape;
  std::string bytes;  // of the items in row-major order
};

// Parses `npy`, the bytes of `blob` in the file at `path`. Returns DataLoss if
// it is not an array of the blob's dtype and shape.
Status ParseArray(std::string_view npy, const ManifestBlob& blob,
                  const std::string& path, SavedArray* array);

// Reads the concatenated payloads of a file of blobs. Returns DataLoss if it is
// damaged or not as listed.
Status ReadBlobs(const ListedFile& file, std::string* blobs);

// Reads the arrays whose names begin with `prefix`; the keys of the result lack
// it. Returns DataLoss if one is damaged.
Status ReadArrays(const SnapshotFolder& folder, const Manifest& manifest,
                  std::string_view prefix,
                  std::map<std::string, SavedArray>* arrays);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SNAPSHOT_SAVED_ARRAYS_H_
