#include "tf_ops/core/embedding/embedding_rows.h"

#include "tf_ops/core/base/batch_unique.h"

namespace lodestar {

Status CheckSize(const char* name, int64_t found, int64_t wanted) {
  if (found == wanted) return Status();
  return InvalidArgument("`", name, "` has ", found, " numbers, wanted ",
                         wanted);
}

Status CheckDistinct(const char* name, Span<const int64_t> ids) {
  std::vector<int64_t> unique;
  std::vector<int64_t> positions(ids.size());
  BatchUnique(ids, nullptr, &unique, positions);
  for (int64_t i = 0; i < ids.size(); ++i) {
    // The first repeat is the first place that falls behind.
    if (positions[i] != i) {
      return InvalidArgument("`", name, "` holds ", ids[i], " twice, at ",
                             positions[i], " and ", i);
    }
  }
  return Status();
}

}  // namespace lodestar
