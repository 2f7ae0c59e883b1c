// The parts of a table whose rows lie in several places, by id.

#ifndef LODESTAR_TF_OPS_CORE_BASE_ID_PARTS_H_
#define LODESTAR_TF_OPS_CORE_BASE_ID_PARTS_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"

namespace lodestar {

// The part, of num_parts, that has the row of `id`: the same in every release
// and on every machine. It comes from a word of its own: Mix64(id) alone, which
// chooses shards and cells within a part, would leave most of those empty.
inline uint32_t PartOfId(int64_t id, uint32_t num_parts) {
  const uint64_t word = Mix64(Mix64(static_cast<uint64_t>(id)) + kGoldenGamma);
  return FastRange32(static_cast<uint32_t>(word >> 32), num_parts);
}

// A batch of ids, shared out to parts. Ids of a part keep the batch's order.
class IdParts {
 public:
  // places[i]: the index of the row of ids[i] among the rows of all parts, one
  // part after another.
  // REQUIRES: num_parts >= 1; places.size() == ids.size(); it outlives this.
  IdParts(Span<const int64_t> ids, int num_parts, Span<int64_t> places,
          const ParallelFor* parallel);

  // How many ids a part has.
  int64_t size(int part) const { return begins_[part + 1] - begins_[part]; }

  // Rows of `row_bytes`, one an id -> parts[p], the rows of part p.
  void SplitRows(const char* rows, int64_t row_bytes,
                 const std::vector<char*>& parts,
                 const ParallelFor* parallel) const;

 private:
  Span<const int64_t> places_;
  std::vector<uint32_t> owners_;  // by id
  std::vector<int64_t> begins_;   // places of each part's first row, and behind
};

// out[i] = row places[i] of the rows of all parts, one part after another.
// begins: the places of each part's first row, and behind the last row.
// REQUIRES: every place is in [0, begins.back()).
void AssembleRows(const std::vector<const char*>& parts,
                  const std::vector<int64_t>& begins,
                  Span<const int64_t> places, int64_t row_bytes, char* out,
                  const ParallelFor* parallel);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_ID_PARTS_H_
