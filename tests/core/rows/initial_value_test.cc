#include "tf_ops/core/rows/initial_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace lodestar {
namespace {

using Kind = InitialValue::Kind;

TEST(InitialValueTest, DependsOnSeedSaltIdAndColumn) {
  const InitialValue a = {Kind::kUniform, -1.0f, 1.0f,
                          InitialValue::KeyOf(1, 2)};
  const InitialValue other_seed = {Kind::kUniform, -1.0f, 1.0f,
                                   InitialValue::KeyOf(3, 2)};
  const InitialValue other_salt = {Kind::kUniform, -1.0f, 1.0f,
                                   InitialValue::KeyOf(1, 3)};
  const float value = a.Draw(a.BaseOf(7), 0);
  EXPECT_EQ(a.Draw(a.BaseOf(7), 0), value);
  EXPECT_NE(a.Draw(a.BaseOf(7), 1), value);
  EXPECT_NE(a.Draw(a.BaseOf(8), 0), value);
  EXPECT_NE(other_seed.Draw(other_seed.BaseOf(7), 0), value);
  EXPECT_NE(other_salt.Draw(other_salt.BaseOf(7), 0), value);
}

TEST(InitialValueTest, KeepsItsBounds) {
  const InitialValue uniform = {Kind::kUniform, 2.0f, 3.0f, 5};
  const InitialValue truncated = {Kind::kTruncatedNormal, 1.0f, 0.5f, 5};
  const InitialValue normal = {Kind::kNormal, 1.0f, 0.5f, 5};
  int beyond = 0;
  for (int64_t id = 0; id < 20000; ++id) {
    const float u = uniform.Draw(uniform.BaseOf(id), 3);
    EXPECT_GE(u, 2.0f);
    EXPECT_LT(u, 3.0f);
    EXPECT_LE(std::fabs(truncated.Draw(truncated.BaseOf(id), 3) - 1.0f), 1.0f);
    beyond += std::fabs(normal.Draw(normal.BaseOf(id), 3) - 1.0f) > 1.0f;
  }
  // 4.55 % of a normal distribution are beyond two standard deviations.
  EXPECT_NEAR(beyond, 910, 150);
}

TEST(InitialValueTest, ConstantIsItself) {
  const InitialValue constant = {Kind::kConstant, 0.25f, 9.0f, 5};
  EXPECT_EQ(constant.Draw(constant.BaseOf(1), 2), 0.25f);
}

}  // namespace
}  // namespace lodestar
