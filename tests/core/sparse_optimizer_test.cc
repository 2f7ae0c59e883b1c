#include "tf_ops/core/sparse_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace lodestar {
namespace {

// One row of one number through two steps, beside the formula in float64.
struct Row {
  std::vector<float> value;
  std::vector<std::vector<float>> slots;
};

void Step(const std::string& name, const std::vector<float>& h, float gradient,
          Row* row) {
  SparseOptimizer optimizer;
  ASSERT_TRUE(SparseOptimizer::Create(name, h, &optimizer).ok());
  std::vector<float*> slots;
  for (auto& slot : row->slots) slots.push_back(slot.data());
  const std::vector<float> gradients(row->value.size(), gradient);
  optimizer.Update(gradients.data(), static_cast<int>(row->value.size()),
                   row->value.data(), slots.data());
}

TEST(SparseOptimizerTest, Sgd) {
  Row row{{1.0f, 2.0f, -3.0f}, {}};
  Step("sgd", {0.1f, 0.0f}, 2.0f, &row);
  EXPECT_NEAR(row.value[0], 0.8, 1e-6);
  EXPECT_NEAR(row.value[2], -3.2, 1e-6);
}

TEST(SparseOptimizerTest, WeightDecayComesFirst) {
  Row row{{1.0f}, {}};
  Step("sgd", {0.1f, 0.5f}, 2.0f, &row);
  EXPECT_NEAR(row.value[0], 1.0 - 0.5 * 0.1 - 0.2, 1e-6);
}

TEST(SparseOptimizerTest, SgdMomentumAndNesterov) {
  Row plain{{1.0f}, {{0.0f}}};
  Row nesterov{{1.0f}, {{0.0f}}};
  double m = 0, v = 1, vn = 1;
  for (double g : {2.0, -1.0}) {
    Step("sgd_momentum", {0.1f, 0, 0.9f, 0}, g, &plain);
    Step("sgd_momentum", {0.1f, 0, 0.9f, 1}, g, &nesterov);
    m = m * 0.9 - 0.1 * g;
    v += m;
    vn += m * 0.9 - 0.1 * g;
  }
  EXPECT_NEAR(plain.value[0], v, 1e-6);
  EXPECT_NEAR(nesterov.value[0], vn, 1e-6);
  EXPECT_NEAR(plain.slots[0][0], m, 1e-6);
}

TEST(SparseOptimizerTest, Adagrad) {
  Row row{{1.0f}, {{0.1f}}};
  double a = 0.1, v = 1;
  for (double g : {2.0, -0.5}) {
    Step("adagrad", {0.1f, 0, 1e-7f}, g, &row);
    a += g * g;
    v -= 0.1 * g / std::sqrt(a + 1e-7);
  }
  EXPECT_NEAR(row.value[0], v, 1e-6);
  EXPECT_NEAR(row.slots[0][0], a, 1e-6);
}

TEST(SparseOptimizerTest, Adam) {
  Row row{{1.0f}, {{0.0f}, {0.0f}}};
  double m = 0, s = 0, v = 1;
  int t = 0;
  for (double g : {2.0, -0.5, 0.25}) {
    ++t;
    const double alpha =
        0.1 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t));
    Step("adam", {0.1f, 0, 0.1f, 0.001f, 1e-7f, static_cast<float>(alpha)}, g,
         &row);
    m += (g - m) * 0.1;
    s += (g * g - s) * 0.001;
    v -= m * alpha / (std::sqrt(s) + 1e-7);
  }
  EXPECT_NEAR(row.value[0], v, 2e-6);
}

TEST(SparseOptimizerTest, Ftrl) {
  for (float power : {-0.5f, -0.7f}) {
    Row row{{1.0f}, {{0.1f}, {0.0f}}};
    const double lr = 0.1, l1 = 0.01, shrinkage = 0.02, beta = 0.3;
    const double l2 = 0.05 + beta / (2 * lr);
    double a = 0.1, z = 0, v = 1;
    for (double g : {2.0, -0.5, 1.0}) {
      Step("ftrl", {0.1f, 0, power, 0.01f, 0.05f, 0.02f, 0.3f}, g, &row);
      const double grown = a + g * g;
      const double root = std::pow(grown, -power);
      z += g + 2 * shrinkage * v - (root - std::pow(a, -power)) / lr * v;
      v = (std::min(std::max(z, -l1), l1) - z) / (root / lr + 2 * l2);
      a = grown;
    }
    EXPECT_NEAR(row.value[0], v, 2e-6);
    EXPECT_NEAR(row.slots[1][0], z, 2e-5);
  }
}

TEST(SparseOptimizerTest, NamesWhatItRefuses) {
  SparseOptimizer out;
  const std::vector<float> two = {0.1f, 0.0f};
  EXPECT_NE(SparseOptimizer::Create("lamb", two, &out)
                .message()
                .find("unknown optimizer 'lamb'"),
            std::string::npos);
  EXPECT_NE(SparseOptimizer::Create("adam", two, &out)
                .message()
                .find("'adam' takes 6 hyperparameters, found 2"),
            std::string::npos);
  std::vector<std::string> slots;
  EXPECT_FALSE(SparseOptimizer::SlotNames("lamb", &slots));
  EXPECT_TRUE(SparseOptimizer::SlotNames("adam", &slots));
  EXPECT_EQ(slots, (std::vector<std::string>{"momentum", "velocity"}));
}

}  // namespace
}  // namespace lodestar
