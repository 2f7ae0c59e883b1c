// Checks of the errors that calls return.

#ifndef LODESTAR_TESTS_CORE_TESTING_ERRORS_H_
#define LODESTAR_TESTS_CORE_TESTING_ERRORS_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// Expects an error whose message contains all `parts`.
inline void ExpectError(const Status& status, StatusCode code,
                        const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status.message();
  for (const std::string& part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "'" << part << "' is not in: " << status.message();
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_ERRORS_H_
