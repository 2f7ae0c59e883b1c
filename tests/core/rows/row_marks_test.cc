#include "tf_ops/core/rows/row_marks.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(RowMarksTest, AWordHasABitForEachOfItsRows) {
  EXPECT_EQ(kMarkedRows, 8 * sizeof(MarkWord));
  EXPECT_TRUE(MarkWord::is_always_lock_free);
  EXPECT_EQ(static_cast<int>(RowMark::kTaken) + 1, kRowMarks);
}

}  // namespace
}  // namespace lodestar
