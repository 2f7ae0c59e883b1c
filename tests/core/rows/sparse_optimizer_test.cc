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

// tests/python/optimizers/parity_test.py compares all rules with Keras.

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

TEST(SparseOptimizerTest, TheSignOfLion) {
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

TEST(SparseOptimizerTest, OneRuleIsRowWise) {
  EXPECT_TRUE(SparseOptimizer::IsRowWise("row_wise_adagrad"));
  EXPECT_FALSE(SparseOptimizer::IsRowWise("adagrad"));
  EXPECT_FALSE(SparseOptimizer::IsRowWise("replay:row_wise_adagrad"));
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

void UpdateWith(Isa isa, const std::string& name, const std::vector<float>& h,
                const std::vector<float>& gradient, std::vector<float>* value,
                std::vector<std::vector<float>>* slots) {
  SparseOptimizer optimizer;
  ASSERT_TRUE(SparseOptimizer::Create(name, h, &optimizer, isa).ok());
  std::vector<float*> slot_data;
  for (auto& slot : *slots) slot_data.push_back(slot.data());
  const int dim = static_cast<int>(gradient.size());
  if (optimizer.row_wise()) {
    const float rate = optimizer.UpdateSlots(gradient[dim - 1], slot_data[0]);
    optimizer.UpdateColumns(rate, gradient.data(), dim, value->data());
  } else {
    optimizer.Update(gradient.data(), dim, value->data(), slot_data.data());
  }
}

// Ignores the sign of NaN, which no standard defines.
void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    EXPECT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0) << i;
  }
}

TEST(SparseOptimizerTest, EveryInstructionSetGivesTheSameBits) {
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
  std::uniform_real_distribution<float> uniform(0.05, 1);
  for (const auto& [name, numbers] : rules) {
    std::vector<std::string> slot_names;
    ASSERT_TRUE(SparseOptimizer::SlotNames(name, &slot_names));
    for (int dim : {1, 2, 3, 7, 8, 9, 31, 32, 67}) {
      std::vector<float> h(numbers);
      for (float& number : h) number = static_cast<float>(uniform(random));
      if (name == "ftrl" && dim % 2 == 0) h[2] = -0.5f;
      std::vector<float> gradient(dim);
      for (float& g : gradient) g = uniform(random) - 0.5f;
      gradient[dim / 2] = std::numeric_limits<float>::quiet_NaN();
      gradient[dim / 3] = std::numeric_limits<float>::infinity();
      gradient[0] = -0.0f;
      std::vector<float> value(dim);
      for (float& v : value) v = uniform(random) - 0.5f;
      std::vector<std::vector<float>> slots(slot_names.size(),
                                            std::vector<float>(dim));
      for (auto& slot : slots) {
        for (float& s : slot) s = uniform(random);
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

}  // namespace
}  // namespace lodestar
