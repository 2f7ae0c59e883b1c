// What a table is told about the ids it takes in and the rows it gives up.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_TABLE_POLICIES_H_
#define LODESTAR_TF_OPS_CORE_ROWS_TABLE_POLICIES_H_

#include <cstdint>

namespace lodestar {

// Which sighting of an unseen id gives it a row.
struct AdmissionPolicy {
  enum class Kind {
    kAll,            // the first
    kMinCount,       // the min_count-th, counted exactly
    kCountingBloom,  // the same, counted in a sketch: never late, seldom early
  };
  Kind kind = Kind::kAll;
  int64_t min_count = 1;
  int64_t num_counters = 0;  // kCountingBloom
  int64_t num_hashes = 0;
  // kMinCount: each occurrence in a lookup is a sighting, also in the
  // frequency of rows; else an id has one a step.
  bool count_occurrences = false;
};

// Which rows go; a row that any of these names.
struct EvictionPolicy {
  enum class Order {
    kLru,  // the smallest (last seen, Mix64(id)) first
    kLfu,  // the smallest (frequency, last seen, Mix64(id)) first
  };
  // Never more rows than this; 0: no cap.
  int64_t max_rows = 0;
  Order order = Order::kLru;
  // Rows last seen more than so many steps ago; negative: no limit.
  int64_t max_age = -1;
  // Rows of a smaller Euclidean norm; 0: none.
  float min_norm = 0.0f;
};

struct TablePolicies {
  AdmissionPolicy admission;
  EvictionPolicy eviction;
  // Trained rows outside the id space; ids without a row read and train them,
  // id the one of number Mix64(id) % shared_rows. 0: none.
  int64_t shared_rows = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_TABLE_POLICIES_H_
