#include "tf_ops/core/records/slot_shuffler.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/records/slot_samples.h"

namespace lodestar {
namespace {

std::shared_ptr<const SlotRows> Shared(int64_t begin, int64_t end) {
  return std::make_shared<const SlotRows>(MakeRows(begin, end));
}

SlotRows Rows(const SlotBatch& batch) {
  SlotRows rows(Specs());
  batch.AppendTo(&rows);
  return rows;
}

TEST(SlotShufflerTest, DrawsEachRowOnceInAnOrderFixedBySeed) {
  const auto run = [](uint64_t seed) {
    SlotShuffler shuffler(16, seed);
    SlotBatch out;
    for (int64_t begin = 0; begin < 100; begin += 10) {
      shuffler.Add(Shared(begin, begin + 10));
      while (!shuffler.WantsMore()) shuffler.Draw(&out);
    }
    while (shuffler.Size() > 0) shuffler.Draw(&out);
    return Rows(out);
  };
  const SlotRows out = run(1);
  std::vector<int64_t> order = out.columns()[0].ints;
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(order, run(1).columns()[0].ints);
  EXPECT_NE(order, run(2).columns()[0].ints);
  SlotRows wanted(Specs());
  for (const int64_t i : order) wanted.Append(MakeRows(i, i + 1), 0, 1);
  ExpectEqual(out, wanted);
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(order[i], i);
}

TEST(SlotShufflerTest, ARestoredShufflerDrawsTheSameRows) {
  SlotShuffler shuffler(16, 3);
  for (int64_t begin = 0; begin < 20; begin += 5) {
    shuffler.Add(Shared(begin, begin + 5));
  }
  SlotBatch drawn;
  for (int i = 0; i < 7; ++i) shuffler.Draw(&drawn);
  const SlotRows window = shuffler.CopyRowsLeft(Specs());
  EXPECT_EQ(window.num_rows(), 13);
  EXPECT_EQ(window.FindUnfit(Specs()), -1);
  SlotShuffler again(16, 0);
  again.Restore(shuffler.state(), window);
  SlotBatch wanted;
  SlotBatch found;
  while (shuffler.Size() > 0) {
    shuffler.Draw(&wanted);
    again.Draw(&found);
  }
  EXPECT_EQ(again.Size(), 0);
  ExpectEqual(Rows(found), Rows(wanted));
}

}  // namespace
}  // namespace lodestar
