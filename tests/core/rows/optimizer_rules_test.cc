#include "tf_ops/core/rows/optimizer_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tf_ops/core/rows/sparse_optimizer.h"

namespace lodestar {
namespace {

// A single column gives the same bits as in a vectorized row.
TEST(OptimizerRulesTest, SingleColumnsMatchRows) {
  constexpr int kDim = 37;
  int rules = 0;
  VisitRules([&](auto rule) {
    using Rule = decltype(rule);
    ++rules;
    std::vector<float> numbers(kHyperparameters<Rule>);
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = 0.1f + 0.05f * static_cast<float>(i);
    }
    numbers[1] = 0.0f;  // the rule does not apply weight decay
    SparseOptimizer optimizer;
    ASSERT_TRUE(SparseOptimizer::Create(Rule::kName, numbers, &optimizer).ok());
    ASSERT_EQ(optimizer.num_slots(), kRuleSlots<Rule>);
    ASSERT_EQ(optimizer.row_wise(), kIsRowWise<Rule>);
    std::vector<std::string> names;
    ASSERT_TRUE(SparseOptimizer::SlotNames(Rule::kName, &names));
    EXPECT_EQ(names, std::vector<std::string>(Rule::kSlots.begin(),
                                              Rule::kSlots.end()));
    std::vector<float> gradient(kDim);
    std::vector<float> value(kDim);
    std::vector<std::vector<float>> slots(3, std::vector<float>(kDim));
    for (int c = 0; c < kDim; ++c) {
      gradient[c] = 0.1f * static_cast<float>(c - 18);
      value[c] = 0.01f * static_cast<float>(c);
      // Squares exceed the squares of the means, so no root of a negative
      // number.
      slots[0][c] = 90.0f + static_cast<float>(c);
      slots[1][c] = slots[2][c] = 0.5f;
    }
    float h[kHyperparameters<Rule>];
    for (size_t i = 0; i < numbers.size(); ++i) h[i] = numbers[i];
    std::vector<float> wanted = value;
    std::vector<std::vector<float>> wanted_slots = slots;
    if constexpr (kIsRowWise<Rule>) {
      constexpr float kMeanSquare = 3.0f;
      const float rate =
          Rule::UpdateSlots(h, kMeanSquare, wanted_slots[0].data());
      for (int c = 0; c < kDim; ++c) {
        Rule::UpdateColumn(rate, gradient[c], wanted[c]);
      }
      EXPECT_EQ(optimizer.UpdateSlots(kMeanSquare, slots[0].data()), rate);
      optimizer.UpdateColumns(rate, gradient.data(), kDim, value.data());
    } else {
      for (int c = 0; c < kDim; ++c) {
        float s[3] = {slots[0][c], slots[1][c], slots[2][c]};
        Rule::Update(h, gradient[c], wanted[c], s);
        for (int k = 0; k < kRuleSlots<Rule>; ++k) wanted_slots[k][c] = s[k];
      }
      float* const rows[3] = {slots[0].data(), slots[1].data(),
                              slots[2].data()};
      optimizer.Update(gradient.data(), kDim, value.data(), rows);
    }
    EXPECT_EQ(value, wanted) << Rule::kName;
    EXPECT_EQ(slots, wanted_slots) << Rule::kName;
  });
  EXPECT_EQ(rules, 15);
}

}  // namespace
}  // namespace lodestar
