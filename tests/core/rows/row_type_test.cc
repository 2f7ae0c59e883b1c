#include "tf_ops/core/rows/row_type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace lodestar {
namespace {

TEST(RowTypeTest, RowsAreConvertedElementwise) {
  std::mt19937 rng(1);
  for (int size : {0, 1, 7, 8, 33, 4096}) {
    std::vector<float> floats(size);
    for (float& x : floats) {
      const uint32_t bits = rng();
      std::memcpy(&x, &bits, sizeof(x));
    }
    std::vector<Float16> halves(size);
    RoundRow(floats.data(), size, halves.data());
    std::vector<float> back(size);
    ToComputeRow(halves.data(), size, back.data());
    for (int i = 0; i < size; ++i) {
      ASSERT_EQ(halves[i].bits, RoundTo<Float16>(floats[i]).bits);
      const float wanted = ToCompute(halves[i]);
      ASSERT_EQ(std::memcmp(&back[i], &wanted, sizeof(wanted)), 0);
    }
  }
}

template <typename T>
class IsShorterTest : public testing::Test {};
using RowTypes = testing::Types<float, Float16, BFloat16>;
TYPED_TEST_SUITE(IsShorterTest, RowTypes);

TYPED_TEST(IsShorterTest, ComparesTheEuclideanNorm) {
  const TypeParam row[] = {RoundTo<TypeParam>(3.0f), RoundTo<TypeParam>(-4.0f)};
  EXPECT_FALSE(IsShorter(row, 2, 5.0f));
  EXPECT_TRUE(IsShorter(row, 2, std::nextafter(5.0f, 6.0f)));
  EXPECT_TRUE(IsShorter(row, 1, 5.0f));
  EXPECT_FALSE(IsShorter(row, 0, 0.0f));
}

}  // namespace
}  // namespace lodestar
