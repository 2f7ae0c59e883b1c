// The arithmetic of admission, for CPU and GPU.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ADMISSION_RULE_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ADMISSION_RULE_H_

#include <cstdint>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/host_device.h"

namespace lodestar {

// Occurrences and frequencies saturate at 2^32 - 1.
LODESTAR_HOST_DEVICE inline uint32_t SaturatingAdd(uint32_t a, uint32_t b) {
  const uint32_t sum = a + b;
  return sum < a ? 0xffffffffu : sum;
}

// Returns true if `last_seen` is more than max_age steps before `now`.
LODESTAR_HOST_DEVICE inline bool IsOlder(int64_t last_seen, int64_t now,
                                         int64_t max_age) {
  return static_cast<__int128>(now) - last_seen > max_age;
}

// Counters of a sketch saturate at this.
constexpr uint32_t kMaxSketchCount = 255;

// Calls fn(index) for each counter of an id in a sketch.
template <typename Fn>
LODESTAR_HOST_DEVICE void ForEachCounter(int64_t id, int64_t num_counters,
                                         int num_hashes, const Fn& fn) {
  // Derives all hashes from two (Kirsch, Mitzenmacher: Less Hashing, Same
  // Performance, ESA 2006). Neither is the hash that the index uses.
  uint64_t hash = Mix64(static_cast<uint64_t>(id) + kGoldenGamma);
  const uint64_t stride = Mix64(hash + kGoldenGamma) | 1;
  for (int i = 0; i < num_hashes; ++i, hash += stride) {
    fn(static_cast<int64_t>(
        (static_cast<unsigned __int128>(hash) * num_counters) >> 64));
  }
}

// How a call counts and admits ids that have no row.
struct AdmissionRule {
  uint32_t min_count = 1;
  bool sketch = false;         // counts are estimates
  bool counts = false;         // count the occurrence
  bool by_occurrence = false;  // every occurrence, not one per step
  bool admits_all = false;     // whatever their counts
  bool admits_none = false;

  struct Result {
    uint32_t occurrences;  // including this one
    uint32_t frequency;    // of the row that is admitted; with by_occurrence
                           // without this occurrence
    bool fresh;            // the occurrence counts
    bool admitted;
  };
  // `before`: occurrences so far. `this_step`: some are of this step. `times`:
  // how often the id occurs, with by_occurrence.
  LODESTAR_HOST_DEVICE Result Apply(uint32_t before, bool this_step,
                                    uint32_t times) const {
    Result result;
    result.fresh = counts && (by_occurrence || !this_step);
    result.occurrences = before;
    if (result.fresh) {
      result.occurrences = SaturatingAdd(before, by_occurrence ? times : 1);
    }
    result.admitted =
        admits_all || (!admits_none && result.occurrences >= min_count);
    result.frequency = by_occurrence ? before : result.occurrences;
    // An estimate may include occurrences of other ids.
    if (sketch && result.frequency > min_count) result.frequency = min_count;
    return result;
  }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ADMISSION_RULE_H_
