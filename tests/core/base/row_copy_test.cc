#include "tf_ops/core/base/row_copy.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace lodestar {
namespace {

constexpr int64_t kWidths[] = {1, 2, 3, 4, 8, 16, 31, 32, 64, 128, 200, 256};

std::vector<char> Counting(int64_t size) {
  std::vector<char> bytes(size);
  std::iota(bytes.begin(), bytes.end(), static_cast<char>(1));
  return bytes;
}

TEST(RowCopyTest, CopiesExactlyTheRows) {
  for (const int64_t width : kWidths) {
    for (const int64_t count : {0, 1, 5, 100}) {
      const std::vector<char> rows = Counting(width * count);
      std::vector<char> out(rows.size() + 1, 'x');
      VisitWidth<char>(
          width, [&](auto w) { CopyRows(rows.data(), count, w, out.data()); });
      EXPECT_EQ(out.back(), 'x');
      out.pop_back();
      EXPECT_EQ(out, rows) << count << " of " << width;
    }
  }
}

TEST(RowCopyTest, RepeatsARow) {
  for (const int64_t width : kWidths) {
    for (const int64_t count : {0, 1, 3, 5000}) {
      const std::vector<char> row = Counting(width);
      std::vector<char> out(width * count + 1, 'x');
      VisitWidth<char>(
          width, [&](auto w) { RepeatRow(row.data(), count, w, out.data()); });
      for (int64_t i = 0; i < width * count; ++i) {
        ASSERT_EQ(out[i], row[i % width]) << count << " of " << width;
      }
      EXPECT_EQ(out.back(), 'x');
    }
  }
}

TEST(RowCopyTest, OtherTypesAreAssigned) {
  const std::vector<std::string> rows = {"a", "b", "c", "d"};
  std::vector<std::string> out(4);
  VisitWidth<std::string>(
      2, [&](auto w) { CopyRows(rows.data(), 2, w, out.data()); });
  EXPECT_EQ(out, rows);
  RepeatRow(rows.data() + 2, 2, int64_t{2}, out.data());
  EXPECT_EQ(out, (std::vector<std::string>{"c", "d", "c", "d"}));
}

}  // namespace
}  // namespace lodestar
