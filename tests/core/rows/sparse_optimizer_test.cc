#include "tf_ops/core/rows/sparse_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace lodestar {
namespace {

// A row of one column after two steps, compared with the formula in float64.
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
    Step("adagrad", {0.1f, 0, 1e-2f}, g, &row);
    a += g * g;
    v -= 0.1 * g / std::sqrt(a + 1e-2);
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

TEST(SparseOptimizerTest, Amsgrad) {
  Row row{{1.0f}, {{0.0f}, {0.0f}, {0.0f}}};
  double m = 0, s = 0, top = 0, v = 1;
  for (double g : {2.0, -0.5, 0.25}) {
    Step("adam_amsgrad", {0.1f, 0, 0.1f, 0.5f, 1e-7f, 0.3f}, g, &row);
    m += (g - m) * 0.1;
    s += (g * g - s) * 0.5;
    top = std::max(top, s);
    v -= m * 0.3 / (std::sqrt(top) + 1e-7);
  }
  EXPECT_GT(top, s);  // otherwise it equals Adam
  EXPECT_NEAR(row.value[0], v, 2e-6);
  EXPECT_NEAR(row.slots[2][0], top, 2e-6);
}

TEST(SparseOptimizerTest, RmsProp) {
  for (bool momentum : {false, true}) {
    for (bool centered : {false, true}) {
      std::string name = "rmsprop";
      Row row{{1.0f}, {{0.0f}}};
      if (momentum) name += "_momentum", row.slots.push_back({0.0f});
      if (centered) name += "_centered", row.slots.push_back({0.0f});
      double velocity = 0, moved = 0, mean = 0, v = 1;
      for (double g : {2.0, -0.5, 0.25}) {
        Step(name, {0.1f, 0, 0.75f, 0.25f, 1e-3f, momentum ? 0.5f : 0.0f}, g,
             &row);
        velocity = 0.75 * velocity + 0.25 * g * g;
        mean = 0.75 * mean + 0.25 * g;
        const double below = centered ? velocity - mean * mean : velocity;
        const double step = 0.1 * g / std::sqrt(below + 1e-3);
        moved = (momentum ? 0.5 * moved : 0.0) + step;
        v -= moved;
      }
      EXPECT_NEAR(row.value[0], v, 2e-6) << name;
      EXPECT_NEAR(row.slots[0][0], velocity, 2e-6) << name;
      if (momentum) {
        EXPECT_NEAR(row.slots[1][0], moved, 2e-6) << name;
      }
      if (centered) {
        EXPECT_NEAR(row.slots.back()[0], mean, 2e-6) << name;
      }
    }
  }
}

TEST(SparseOptimizerTest, Adadelta) {
  Row row{{1.0f}, {{0.0f}, {0.0f}}};
  double squares = 0, deltas = 0, v = 1;
  for (double g : {2.0, -0.5, 0.25}) {
    Step("adadelta", {0.1f, 0, 0.75f, 0.25f, 1e-2f}, g, &row);
    squares = 0.75 * squares + 0.25 * g * g;
    const double delta =
        -std::sqrt(deltas + 1e-2) * g / std::sqrt(squares + 1e-2);
    deltas = 0.75 * deltas + 0.25 * delta * delta;
    v += 0.1 * delta;
  }
  EXPECT_NEAR(row.value[0], v, 2e-6);
  EXPECT_NEAR(row.slots[1][0], deltas, 2e-6);
}

TEST(SparseOptimizerTest, Adamax) {
  Row row{{1.0f}, {{0.0f}, {0.0f}}};
  double m = 0, u = 0, v = 1;
  int t = 0;
  for (double g : {2.0, -3.0, 0.25}) {
    const double correction = 1 - std::pow(0.9, ++t);
    Step("adamax",
         {0.1f, 0, 0.1f, 0.75f, 1e-7f, static_cast<float>(correction)}, g,
         &row);
    m += (g - m) * 0.1;
    u = std::max(0.75 * u, std::fabs(g));
    v -= 0.1 * m / (correction * (u + 1e-7));
  }
  EXPECT_NEAR(row.value[0], v, 2e-6);
  EXPECT_NEAR(row.slots[1][0], u, 2e-6);
}

TEST(SparseOptimizerTest, Nadam) {
  Row row{{1.0f}, {{0.0f}, {0.0f}}};
  const auto u = [](int t) { return 0.9 * (1 - 0.5 * std::pow(0.96, t)); };
  double m = 0, s = 0, v = 1, product = 1;
  int t = 0;
  for (double g : {2.0, -0.5, 0.25}) {
    ++t;
    product *= u(t);
    const double correction = 1 - std::pow(0.75, t);
    Step("nadam",
         {0.1f, 0, 0.1f, 0.25f, 1e-7f, static_cast<float>(correction),
          static_cast<float>(u(t)), static_cast<float>(u(t + 1)),
          static_cast<float>(product)},
         g, &row);
    m += (g - m) * 0.1;
    s += (g * g - s) * 0.25;
    const double m_hat = u(t + 1) * m / (1 - product * u(t + 1)) +
                         (1 - u(t)) * g / (1 - product);
    v -= m_hat * 0.1 / (std::sqrt(s / correction) + 1e-7);
  }
  EXPECT_NEAR(row.value[0], v, 2e-6);
}

TEST(SparseOptimizerTest, Lion) {
  Row row{{1.0f}, {{0.0f}}};
  const std::vector<float> h = {0.1f, 0, 0.75f, 0.25f, 0.5f, 0.5f};
  Step("lion", h, 2.0f, &row);  // sign(0.5) = 1
  EXPECT_FLOAT_EQ(row.value[0], 0.9f);
  EXPECT_FLOAT_EQ(row.slots[0][0], 1.0f);
  Step("lion", h, -3.0f, &row);  // sign(0.75 - 0.75) = 0
  EXPECT_FLOAT_EQ(row.value[0], 0.9f);
  EXPECT_FLOAT_EQ(row.slots[0][0], -1.0f);
  Step("lion", h, -1.0f, &row);  // sign(-1) = -1
  EXPECT_FLOAT_EQ(row.value[0], 1.0f);
  Step("lion", h, std::nanf(""), &row);
  EXPECT_TRUE(std::isnan(row.value[0]));
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

// row -= lr * gradient / (sqrt(accumulator) + epsilon), with weight decay
// first.
TEST(SparseOptimizerTest, RowWiseAdagrad) {
  SparseOptimizer optimizer;
  ASSERT_TRUE(SparseOptimizer::Create("row_wise_adagrad",
                                      std::vector<float>{0.1f, 0.01f, 1e-3f},
                                      &optimizer)
                  .ok());
  EXPECT_TRUE(optimizer.row_wise());
  EXPECT_TRUE(SparseOptimizer::IsRowWise("row_wise_adagrad"));
  EXPECT_FALSE(SparseOptimizer::IsRowWise("adagrad"));
  EXPECT_FALSE(SparseOptimizer::IsRowWise("replay:row_wise_adagrad"));
  const std::vector<double> gradient = {3.0, -4.0};
  std::vector<double> value = {1.0, 2.0};
  std::vector<double> wanted = value;
  double accumulator = 0.1;
  double wanted_accumulator = 0.1;
  for (int step = 0; step < 3; ++step) {
    wanted_accumulator += 12.5;  // (9 + 16) / 2
    for (int c = 0; c < 2; ++c) {
      wanted[c] -= wanted[c] * 0.01 * 0.1;
      wanted[c] -= 0.1 * gradient[c] / (std::sqrt(wanted_accumulator) + 1e-3);
    }
    const double rate = optimizer.UpdateSlots(12.5, &accumulator);
    optimizer.UpdateColumns(rate, gradient.data(), 2, value.data());
  }
  EXPECT_DOUBLE_EQ(accumulator, wanted_accumulator);
  // Hyperparameters are float32.
  for (int c = 0; c < 2; ++c) EXPECT_NEAR(value[c], wanted[c], 1e-8);
}

TEST(SparseOptimizerTest, ReportsInvalidArguments) {
  SparseOptimizer out;
  const std::vector<float> two = {0.1f, 0.0f};
  EXPECT_NE(SparseOptimizer::Create("lamb", two, &out)
                .message()
                .find("unknown optimizer 'lamb'. Known optimizers: sgd, "),
            std::string::npos);
  EXPECT_NE(SparseOptimizer::Create("adam", two, &out)
                .message()
                .find("'adam' takes 6 hyperparameters (learning_rate, "
                      "weight_decay, 1 - beta_1, 1 - beta_2, epsilon, alpha), "
                      "got 2."),
            std::string::npos);
  std::vector<std::string> slots;
  EXPECT_FALSE(SparseOptimizer::SlotNames("lamb", &slots));
  EXPECT_TRUE(SparseOptimizer::SlotNames("adam", &slots));
  EXPECT_EQ(slots, (std::vector<std::string>{"momentum", "velocity"}));
}

template <typename C>
void UpdateWith(Isa isa, const std::string& name, const std::vector<float>& h,
                const std::vector<C>& gradient, std::vector<C>* value,
                std::vector<std::vector<C>>* slots) {
  SparseOptimizer optimizer;
  ASSERT_TRUE(SparseOptimizer::Create(name, h, &optimizer, isa).ok());
  std::vector<C*> slot_data;
  for (auto& slot : *slots) slot_data.push_back(slot.data());
  const int dim = static_cast<int>(gradient.size());
  if (optimizer.row_wise()) {
    const C rate = optimizer.UpdateSlots(gradient[dim - 1], slot_data[0]);
    optimizer.UpdateColumns(rate, gradient.data(), dim, value->data());
  } else {
    optimizer.Update(gradient.data(), dim, value->data(), slot_data.data());
  }
}

// Ignores the sign of NaN, which no standard defines.
template <typename C>
void ExpectSameBits(const std::vector<C>& a, const std::vector<C>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    EXPECT_EQ(std::memcmp(&a[i], &b[i], sizeof(C)), 0) << i;
  }
}

template <typename C>
void CompareIsas() {
  const std::vector<std::pair<std::string, int>> rules = {
      {"sgd", 2},
      {"sgd_momentum", 4},
      {"adagrad", 3},
      {"row_wise_adagrad", 3},
      {"adam", 6},
      {"adam_amsgrad", 6},
      {"rmsprop", 6},
      {"rmsprop_momentum", 6},
      {"rmsprop_centered", 6},
      {"rmsprop_momentum_centered", 6},
      {"adadelta", 5},
      {"adamax", 6},
      {"nadam", 9},
      {"lion", 6},
      {"ftrl", 7}};
  std::mt19937 random(7);
  std::uniform_real_distribution<C> uniform(0.05, 1);
  for (const auto& [name, numbers] : rules) {
    std::vector<std::string> slot_names;
    ASSERT_TRUE(SparseOptimizer::SlotNames(name, &slot_names));
    for (int dim : {1, 2, 3, 7, 8, 9, 31, 32, 67}) {
      std::vector<float> h(numbers);
      for (float& number : h) number = static_cast<float>(uniform(random));
      if (name == "ftrl" && dim % 2 == 0) h[2] = -0.5f;
      std::vector<C> gradient(dim);
      for (C& g : gradient) g = uniform(random) - C(0.5);
      gradient[dim / 2] = std::numeric_limits<C>::quiet_NaN();
      gradient[dim / 3] = std::numeric_limits<C>::infinity();
      gradient[0] = C(-0.0);
      std::vector<C> value(dim);
      for (C& v : value) v = uniform(random) - C(0.5);
      std::vector<std::vector<C>> slots(slot_names.size(), std::vector<C>(dim));
      for (auto& slot : slots) {
        for (C& s : slot) s = uniform(random);
      }
      auto best_value = value;
      auto best_slots = slots;
      UpdateWith(Isa::kBaseline, name, h, gradient, &value, &slots);
      UpdateWith(BestIsa(), name, h, gradient, &best_value, &best_slots);
      SCOPED_TRACE(name + ", dim " + std::to_string(dim));
      ExpectSameBits(value, best_value);
      for (size_t s = 0; s < slots.size(); ++s) {
        ExpectSameBits(slots[s], best_slots[s]);
      }
    }
  }
}

TEST(SparseOptimizerTest, EveryInstructionSetGivesTheSameBits) {
  CompareIsas<float>();
  CompareIsas<double>();
}

}  // namespace
}  // namespace lodestar
