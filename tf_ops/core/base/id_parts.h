// Partitioning of ids and rows over the parts of a table.

#ifndef LODESTAR_TF_OPS_CORE_BASE_ID_PARTS_H_
#define LODESTAR_TF_OPS_CORE_BASE_ID_PARTS_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/host_device.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"

namespace lodestar {

// Returns the part, in [0, num_parts), that holds the row of `id`. Frozen
// across releases and machines. Uses a second hash: Mix64(id) alone, which
// selects shards and cells within a part, would leave most of those empty.
LODESTAR_HOST_DEVICE inline uint32_t PartOfId(int64_t id, uint32_t num_parts) {
  const uint64_t word = Mix64(Mix64(static_cast<uint64_t>(id)) + kGoldenGamma);
  return FastRange32(static_cast<uint32_t>(word >> 32), num_parts);
}

// A batch of ids, partitioned. Ids of a part keep the batch's order.
class IdParts {
 public:
  // Sets places[i] to the index of the row of ids[i] in the concatenation of
  // the rows of all parts. Requires: num_parts >= 1; places.size() ==
  // ids.size(); `places` outlives this object.
  IdParts(Span<const int64_t> ids, int num_parts, Span<int64_t> places,
          const ParallelFor* parallel);

  // Number of ids in a part.
  int64_t size(int part) const { return begins_[part + 1] - begins_[part]; }

  // Copies each row of `row_bytes` bytes (one per id) to its part's buffer.
  void SplitRows(const char* rows, int64_t row_bytes,
                 const std::vector<char*>& parts,
                 const ParallelFor* parallel) const;

 private:
  Span<const int64_t> places_;
  std::vector<uint32_t> owners_;  // by id
  std::vector<int64_t> begins_;   // first place of each part, then the end
};

// Sets out[i] to row places[i] of the concatenated rows of all parts. begins:
// the place of each part's first row, then the total number of rows. Requires:
// every place is in [0, begins.back()).
void AssembleRows(const std::vector<const char*>& parts,
                  const std::vector<int64_t>& begins,
                  Span<const int64_t> places, int64_t row_bytes, char* out,
                  const ParallelFor* parallel);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_ID_PARTS_H_
