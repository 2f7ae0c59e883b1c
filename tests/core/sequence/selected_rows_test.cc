#include "tf_ops/core/sequence/selected_rows.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lodestar {
namespace {

std::string Message(const std::vector<int64_t>& rows, int64_t num_values,
                    int64_t height) {
  return ValidateSelectedRows(rows, num_values, height).message();
}

TEST(SelectedRowsTest, AcceptsRowsBelowHeight) {
  EXPECT_EQ(Message({}, 0, 0), "");
  EXPECT_EQ(Message({5, 3, 5, 0, 9}, 5, 10), "");
}

TEST(SelectedRowsTest, RejectsInvalidRows) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Message({1, 2}, 3, 9),
            "`rows` has 2 elements, but there are 3 values.");
  EXPECT_EQ(Message({}, 0, -1), "`height` must be at least 0, got -1.");
  EXPECT_EQ(Message({3, 10}, 2, 10), "`rows[1]` must be in [0, 10), got 10.");
  EXPECT_EQ(Message({-1}, 1, 10), "`rows[0]` must be in [0, 10), got -1.");
  EXPECT_EQ(Message({0}, 1, 0), "`rows[0]` must be in [0, 0), got 0.");
  EXPECT_NE(Message({kMin}, 1, kMax), "");
  EXPECT_NE(Message({kMax}, 1, kMax), "");
}

}  // namespace
}  // namespace lodestar
