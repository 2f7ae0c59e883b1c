// Admission, eviction, shared rows, rounding and storage of a table.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_TABLE_POLICIES_H_
#define LODESTAR_TF_OPS_CORE_ROWS_TABLE_POLICIES_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/host_device.h"

namespace lodestar {

// Which occurrence of a new id creates its row.
struct AdmissionPolicy {
  enum class Kind {
    kAll,            // the first
    kMinCount,       // the min_count-th, counted exactly
    kCountingBloom,  // counted in a sketch: never late, seldom early
  };
  Kind kind = Kind::kAll;
  int64_t min_count = 1;
  int64_t num_counters = 0;  // kCountingBloom only
  int64_t num_hashes = 0;
  // kMinCount: every occurrence in a lookup counts, also in the frequency of
  // rows. Otherwise an id counts once per step.
  bool count_occurrences = false;
};

// Rows are evicted if any of these limits applies.
struct EvictionPolicy {
  enum class Order {
    kLru,  // the smallest (last seen, Mix64(id)) first
    kLfu,  // the smallest (frequency, last seen, Mix64(id)) first
  };
  // Maximum number of rows; 0: unlimited.
  int64_t max_rows = 0;
  // A call with new ids beyond max_rows fails instead of evicting rows.
  bool raise_when_full = false;
  Order order = Order::kLru;
  // Evicts rows last seen more than this many steps ago; negative: none.
  int64_t max_age = -1;
  // Evicts rows with a smaller Euclidean norm; 0: none.
  float min_norm = 0.0f;
  // Evicts rows with a smaller frequency; 0: none.
  int64_t min_frequency = 0;
  // A table applies its own min_norm and min_frequency when its step reaches or
  // passes a multiple of these.
  int64_t min_norm_every = 1000;
  int64_t min_frequency_every = 1000;

  // Whether every row must be read to find those to evict.
  bool scans_rows() const { return min_norm > 0.0f || min_frequency > 0; }
  // Whether a table in host memory with this policy keeps its rows in the order
  // in which the cap evicts them, and by last step.
  bool keeps_cap_order() const { return max_rows > 0 && !raise_when_full; }
  bool keeps_age_order() const { return max_age >= 0; }
  // Returns the limits that a table with this policy applies when its step
  // moves from `before` to `now`. Lookups apply max_rows.
  EvictionPolicy Due(int64_t before, int64_t now) const {
    EvictionPolicy due;
    due.max_age = max_age;
    if (Passes(before, now, min_norm_every)) due.min_norm = min_norm;
    if (Passes(before, now, min_frequency_every)) {
      due.min_frequency = min_frequency;
    }
    return due;
  }

 private:
  // Returns whether a multiple of `every` is in (before, now].
  static bool Passes(int64_t before, int64_t now, int64_t every) {
    const auto floor = [every](int64_t step) {
      return step / every - (step % every < 0 ? 1 : 0);
    };
    return floor(before) < floor(now);
  }
};

// How rows are stored, see StoredRow. Only kSame allows lookups of training and
// updates.
enum class RowStorage { kSame, kFloat16, kBFloat16, kInt8 };

inline const char* NameOf(RowStorage storage) {
  return storage == RowStorage::kFloat16    ? "float16"
         : storage == RowStorage::kBFloat16 ? "bfloat16"
         : storage == RowStorage::kInt8     ? "int8"
                                            : "same";
}

// Size of a stored number. Requires: not kSame.
inline int64_t SizeOf(RowStorage storage) {
  return storage == RowStorage::kInt8 ? 1 : 2;
}

struct TablePolicies {
  AdmissionPolicy admission;
  EvictionPolicy eviction;
  // Trained rows outside the id space. An id without a row reads and trains
  // one of them, see SharedRowOf. 0: none.
  int64_t shared_rows = 0;
  // Updates round rows of 16 bits stochastically instead of to nearest.
  bool stochastic_rounding = false;
  // Of rows other than shared rows.
  RowStorage storage = RowStorage::kSame;
  std::string table_name;  // in errors; empty: unknown
};

// The shared row of an id.
LODESTAR_HOST_DEVICE inline uint32_t SharedRowOf(int64_t id,
                                                 int64_t shared_rows) {
  return static_cast<uint32_t>(Mix64(static_cast<uint64_t>(id)) % shared_rows);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_TABLE_POLICIES_H_
