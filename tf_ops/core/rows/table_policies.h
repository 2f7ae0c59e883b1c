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

  // Whether every row must be read to find those to evict.
  bool scans_rows() const { return min_norm > 0.0f || min_frequency > 0; }
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
