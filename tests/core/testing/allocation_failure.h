// Lets a test fail one allocation of core, whichever way it asks for memory:
// operator new, std::malloc or mmap. Memory that is freed is overwritten, so
// that whoever still reads it gets something else than it left there.
//
// Link with //tests/core/testing:allocation_failure.

#ifndef LODESTAR_TESTS_CORE_TESTING_ALLOCATION_FAILURE_H_
#define LODESTAR_TESTS_CORE_TESTING_ALLOCATION_FAILURE_H_

#include <cstdint>

namespace lodestar {

// While it lives, the allocation after `count` others fails, once. One at a
// time.
class FailAllocation {
 public:
  explicit FailAllocation(int64_t count);
  ~FailAllocation();
  FailAllocation(const FailAllocation&) = delete;
  FailAllocation& operator=(const FailAllocation&) = delete;

  // Whether there was one to fail.
  bool failed() const;
};

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_ALLOCATION_FAILURE_H_
