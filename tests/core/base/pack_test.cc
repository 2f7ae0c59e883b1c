#include "tf_ops/core/base/pack.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace lodestar {
namespace {

TEST(PackTest, IsAlignedForOneLoadOfAtMost16Bytes) {
  EXPECT_EQ(sizeof(Pack<float, 4>), 16u);
  EXPECT_EQ(alignof(Pack<float, 4>), 16u);
  EXPECT_EQ(alignof(Pack<float, 1>), 4u);
  EXPECT_EQ(sizeof(Pack<int64_t, 4>), 32u);
  EXPECT_EQ(alignof(Pack<int64_t, 4>), 16u);
}

TEST(PackTest, LoadsAndStoresNeighbors) {
  alignas(16) const float from[] = {1, 2, 3, 4, 5, 6, 7, 8};
  alignas(16) float to[8] = {};
  StorePack(LoadPack<4>(from + 4), to);
  StorePack(LoadPack<1>(from + 1), to + 5);
  const float wanted[] = {5, 6, 7, 8, 0, 2, 0, 0};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(to[i], wanted[i]) << i;
}

TEST(PackTest, TheWidestUnitDividesSizeAndAddresses) {
  alignas(16) const char bytes[32] = {};
  EXPECT_EQ(UnitBytes(48, bytes, bytes + 16), 16);
  EXPECT_EQ(UnitBytes(48, bytes, bytes + 8), 8);
  EXPECT_EQ(UnitBytes(8, bytes), 8);
  EXPECT_EQ(UnitBytes(12, bytes), 4);
  EXPECT_EQ(UnitBytes(16, bytes + 2), 2);
  for (const int size : {16, 8, 4, 2}) {
    VisitUnit(size, [&](auto unit) {
      EXPECT_EQ(sizeof(unit), static_cast<size_t>(size));
      EXPECT_EQ(alignof(decltype(unit)), static_cast<size_t>(size));
    });
  }
}

TEST(PackTest, OnlyAlignedRowsAreVisitedInPacks) {
  alignas(16) const double row[4] = {};
  const auto width = [](auto n) { return n(); };
  EXPECT_EQ(VisitPack<double>(2, width, row), 2);
  EXPECT_EQ(VisitPack<double>(3, width, row), 1);
  EXPECT_EQ(VisitPack<double>(2, width, row, row + 1), 1);
  EXPECT_EQ(VisitPack<uint16_t>(8, width, row), 8);
}

}  // namespace
}  // namespace lodestar
