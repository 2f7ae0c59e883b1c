// Samples shared by the tests of sample containers.

#ifndef LODESTAR_TESTS_CORE_RECORDS_SLOT_SAMPLES_H_
#define LODESTAR_TESTS_CORE_RECORDS_SLOT_SAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tf_ops/core/records/multislot_format.h"
#include "tf_ops/core/records/slot_rows.h"

namespace lodestar {

inline std::vector<ColumnSpec> Specs() {
  return {{"n", false, 1, 0},
          {"d", true, 2, 0},
          {"ids", false, -1, 0},
          {"weights", true, -1, 0}};
}

// Row i: n = i, d = (i, -i), i % 3 ids, i % 2 weights.
inline SlotRows MakeRows(int64_t begin, int64_t end) {
  const MultiSlotFormat format(Specs());
  SlotRows rows(format.specs());
  for (int64_t i = begin; i < end; ++i) {
    std::string line = StrCat("1 ", i, " 2 ", i, " ", -i, " ", i % 3);
    for (int64_t k = 0; k < i % 3; ++k) line += StrCat(" ", 10 * i + k);
    line += StrCat(" ", i % 2);
    if (i % 2) line += StrCat(" ", i);
    line += '\n';
    BadRecord bad;
    const Status status =
        format.Parse(0, line.data(), line.data() + line.size(), &rows, &bad);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return rows;
}

inline void ExpectEqual(const SlotRows& a, const SlotRows& b) {
  ASSERT_EQ(a.num_rows(), b.num_rows());
  for (size_t c = 0; c < a.columns().size(); ++c) {
    EXPECT_EQ(a.columns()[c].ints, b.columns()[c].ints) << c;
    EXPECT_EQ(a.columns()[c].floats, b.columns()[c].floats) << c;
    EXPECT_EQ(a.columns()[c].row_splits, b.columns()[c].row_splits) << c;
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_RECORDS_SLOT_SAMPLES_H_
