#include "tf_ops/core/records/slot_batch.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/records/slot_samples.h"

namespace lodestar {
namespace {

// Compares every column of the batch with the rows it was made of.
void ExpectColumns(const SlotBatch& batch, const SlotRows& wanted) {
  ASSERT_EQ(batch.num_rows(), wanted.num_rows());
  const std::vector<ColumnSpec> specs = Specs();
  for (size_t c = 0; c < specs.size(); ++c) {
    const SlotColumn& column = wanted.columns()[c];
    std::vector<SlotBatch::Piece> pieces;
    std::vector<int64_t> splits(batch.num_rows() + 1, -1);
    const bool is_ragged = specs[c].size < 0;
    const int64_t count =
        batch.Find(c, &pieces, is_ragged ? splits.data() : nullptr);
    EXPECT_EQ(batch.Find(c, &pieces, nullptr), count);
    if (specs[c].is_float) {
      std::vector<float> values(count);
      SlotBatch::Copy(pieces, values.data());
      EXPECT_EQ(values, column.floats) << c;
    } else {
      std::vector<int64_t> values(count);
      SlotBatch::Copy(pieces, values.data());
      EXPECT_EQ(values, column.ints) << c;
    }
    if (is_ragged) {
      EXPECT_EQ(splits, column.row_splits) << c;
    }
  }
}

TEST(SlotBatchTest, CopiesRunsOfSeveralRows) {
  const auto first = std::make_shared<const SlotRows>(MakeRows(0, 20));
  const auto second = std::make_shared<const SlotRows>(MakeRows(20, 30));
  const std::vector<std::pair<int, int>> runs[] = {
      {}, {{0, 0}}, {{0, 20}}, {{3, 4}, {7, 9}}, {{5, 1}, {4, 1}, {5, 1}}};
  for (const auto& some : runs) {
    SlotBatch batch;
    SlotRows wanted(Specs());
    for (const auto& [begin, count] : some) {
      batch.Add(first, begin, count);
      wanted.Append(*first, begin, count);
      batch.Add(second, 2, 3);
      wanted.Append(*second, 2, 3);
    }
    ExpectColumns(batch, wanted);
    SlotRows rows(Specs());
    batch.AppendTo(&rows);
    ExpectEqual(rows, wanted);
  }
}

TEST(SlotBatchTest, CopiesManySamplesOneByOne) {
  const auto rows = std::make_shared<const SlotRows>(MakeRows(0, 50));
  SlotBatch batch;
  SlotRows wanted(Specs());
  for (int64_t i = 0; i < 100; ++i) {
    const int64_t row = (i * 17 + 3) % 50;
    batch.Add(rows, row, 1);
    wanted.Append(*rows, row, 1);
  }
  ExpectColumns(batch, wanted);
}

TEST(SlotBatchTest, KeepsItsSourceRowsAlive) {
  auto rows = std::make_shared<const SlotRows>(MakeRows(0, 5));
  SlotBatch batch;
  batch.Add(rows, 0, 2);
  batch.Add(rows, 2, 3);
  rows.reset();
  ExpectColumns(batch, MakeRows(0, 5));
}

}  // namespace
}  // namespace lodestar
