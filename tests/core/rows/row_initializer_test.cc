#include "tf_ops/core/rows/row_initializer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace lodestar {
namespace {

RowInitializer Make(const std::string& kind, float a, float b, int64_t seed = 1,
                    int64_t salt = 2) {
  RowInitializer initializer;
  EXPECT_TRUE(
      RowInitializer::Create(kind, a, b, seed, salt, &initializer).ok());
  return initializer;
}

std::vector<float> Draw(const RowInitializer& initializer, int64_t id,
                        int dim) {
  std::vector<float> row(dim);
  initializer.Draw(id, dim, row.data());
  return row;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  float least = 1e9f;
  float most = -1e9f;
};

Moments MomentsOf(const RowInitializer& initializer) {
  Moments m;
  double square = 0;
  constexpr int kIds = 4000;
  constexpr int kDim = 25;
  for (int64_t id = 0; id < kIds; ++id) {
    for (float x : Draw(initializer, id, kDim)) {
      m.mean += x;
      square += static_cast<double>(x) * x;
      m.least = std::min(m.least, x);
      m.most = std::max(m.most, x);
    }
  }
  m.mean /= kIds * kDim;
  m.deviation = std::sqrt(square / (kIds * kDim) - m.mean * m.mean);
  return m;
}

TEST(RowInitializerTest, ConstantKinds) {
  EXPECT_EQ(Draw(Make("zeros", 9, 9), 5, 2), (std::vector<float>{0, 0}));
  EXPECT_EQ(Draw(Make("ones", 9, 9), 5, 2), (std::vector<float>{1, 1}));
  EXPECT_EQ(Draw(Make("constant", 9, 0), 5, 2), (std::vector<float>{9, 9}));
}

TEST(RowInitializerTest, UniformFillsItsRange) {
  const Moments m = MomentsOf(Make("uniform", -1.0f, 3.0f));
  EXPECT_NEAR(m.mean, 1.0, 0.02);
  EXPECT_NEAR(m.deviation, 4.0 / std::sqrt(12.0), 0.02);
  EXPECT_GE(m.least, -1.0f);
  EXPECT_LT(m.most, 3.0f);
}

TEST(RowInitializerTest, NormalHasItsMomentsAndTails) {
  const Moments m = MomentsOf(Make("normal", 0.5f, 2.0f));
  EXPECT_NEAR(m.mean, 0.5, 0.03);
  EXPECT_NEAR(m.deviation, 2.0, 0.03);
  EXPECT_GT(m.most, 0.5f + 3.5f * 2.0f);
  EXPECT_LT(m.most, 0.5f + 6.0f * 2.0f);
}

TEST(RowInitializerTest, TruncatedNormalIsCutAtTwoDeviations) {
  const Moments m = MomentsOf(Make("truncated_normal", 0.0f, 1.0f));
  EXPECT_NEAR(m.mean, 0.0, 0.02);
  EXPECT_NEAR(m.deviation, 0.8796, 0.02);
  EXPECT_GE(m.least, -2.0f);
  EXPECT_LE(m.most, 2.0f);
  EXPECT_GT(m.most, 1.95f);
}

TEST(RowInitializerTest, RejectsInvalidParameters) {
  RowInitializer out;
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_NE(RowInitializer::Create("orthogonal", 0, 0, 0, 0, &out)
                .message()
                .find("truncated_normal, got 'orthogonal'"),
            std::string::npos);
  EXPECT_NE(RowInitializer::Create("uniform", 1, 0, 0, 0, &out)
                .message()
                .find("minval <= maxval, got 1 and 0"),
            std::string::npos);
  EXPECT_NE(RowInitializer::Create("normal", 0, -1, 0, 0, &out)
                .message()
                .find("non-negative stddev, got -1"),
            std::string::npos);
  EXPECT_FALSE(RowInitializer::Create("constant", inf, 0, 0, 0, &out).ok());
}

}  // namespace
}  // namespace lodestar
