#include "tf_ops/core/base/id_parts.h"

#include "tf_ops/core/base/row_copy.h"

namespace lodestar {
namespace {

// Estimated nanoseconds to copy a row.
int64_t CopyCost(int64_t row_bytes) { return 10 + row_bytes / 8; }

// Returns the last of `num_parts` parts that begins at or before `place`.
// Branchless, since the branches would be unpredictable.
int64_t PartAt(const int64_t* begins, int64_t num_parts, int64_t place) {
  const int64_t* part = begins;
  while (num_parts > 1) {
    const int64_t half = num_parts / 2;
    part += part[half] <= place ? half : 0;
    num_parts -= half;
  }
  return part - begins;
}

}  // namespace

IdParts::IdParts(Span<const int64_t> ids, int num_parts, Span<int64_t> places,
                 const ParallelFor* parallel)
    : places_(places), owners_(ids.size()), begins_(num_parts + 1) {
  RunParallel(parallel, ids.size(), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      owners_[i] = PartOfId(ids[i], num_parts);
    }
  });
  for (uint32_t owner : owners_) ++begins_[owner + 1];
  for (int p = 0; p < num_parts; ++p) begins_[p + 1] += begins_[p];
  std::vector<int64_t> next(begins_.begin(), begins_.end() - 1);
  for (int64_t i = 0; i < ids.size(); ++i) places[i] = next[owners_[i]]++;
}

void IdParts::SplitRows(const char* rows, int64_t row_bytes,
                        const std::vector<char*>& parts,
                        const ParallelFor* parallel) const {
  VisitWidth<char>(row_bytes, [&](auto width) {
    RunParallel(parallel, places_.size(), CopyCost(row_bytes),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const uint32_t owner = owners_[i];
                    CopyRows(
                        rows + i * width, 1, width,
                        parts[owner] + (places_[i] - begins_[owner]) * width);
                  }
                });
  });
}

void AssembleRows(const std::vector<const char*>& parts,
                  const std::vector<int64_t>& begins,
                  Span<const int64_t> places, int64_t row_bytes, char* out,
                  const ParallelFor* parallel) {
  VisitWidth<char>(row_bytes, [&](auto width) {
    RunParallel(parallel, places.size(), CopyCost(row_bytes),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t p =
                        PartAt(begins.data(), parts.size(), places[i]);
                    CopyRows(parts[p] + (places[i] - begins[p]) * width, 1,
                             width, out + i * width);
                  }
                });
  });
}

}  // namespace lodestar
