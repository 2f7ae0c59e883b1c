// Fails one allocation of core in a test, whether by operator new, std::malloc
// or mmap. Freed memory is overwritten, so that a use after free is likely to
// be noticed.
//
// Link with //tests/core/testing:allocation_failure.

#ifndef LODESTAR_TESTS_CORE_TESTING_ALLOCATION_FAILURE_H_
#define LODESTAR_TESTS_CORE_TESTING_ALLOCATION_FAILURE_H_

#include <cstdint>

namespace lodestar {

// During its lifetime, the allocation after `count` others fails, once. At most
// one may exist at a time.
class FailAllocation {
 public:
  explicit FailAllocation(int64_t count);
  ~FailAllocation();
  FailAllocation(const FailAllocation&) = delete;
  FailAllocation& operator=(const FailAllocation&) = delete;

  // Whether an allocation has failed.
  bool failed() const;
};

// The largest allocation during its lifetime. At most one may exist at a time.
class LargestAllocation {
 public:
  LargestAllocation();

  int64_t bytes() const;
};

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_ALLOCATION_FAILURE_H_
