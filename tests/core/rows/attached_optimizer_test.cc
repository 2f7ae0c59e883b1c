#include "tf_ops/core/rows/attached_optimizer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/rows/sparse_optimizer.h"

namespace lodestar {
namespace {

AttachedOptimizer Make(const std::string& name,
                       std::vector<std::string> slot_names) {
  AttachedOptimizer optimizer;
  optimizer.name = name;
  optimizer.slot_inits.resize(slot_names.size());
  optimizer.slot_names = std::move(slot_names);
  return optimizer;
}

TEST(AttachedOptimizerTest, HasTheSlotsOfItsRule) {
  std::vector<std::string> adam;
  ASSERT_TRUE(SparseOptimizer::SlotNames("adam", &adam));
  EXPECT_TRUE(Make("adam", adam).Check().ok());
  EXPECT_FALSE(Make("adam", adam).unfused());
  EXPECT_EQ(Make("adam", {}).Check().message(),
            "'adam' has 2 optimizer slots, but got 0 slot names and 0 "
            "slot_inits.");
  EXPECT_EQ(Make("adams", adam).Check().message(),
            "unknown optimizer 'adams'.");
}

TEST(AttachedOptimizerTest, AnUnfusedOneHasSlotsOfAnyNames) {
  EXPECT_TRUE(Make("replay:mine", {}).Check().ok());
  EXPECT_TRUE(Make("replay:mine", {"a", "b"}).Check().ok());
  EXPECT_TRUE(Make("replay:mine", {"a", "b"}).unfused());
  EXPECT_EQ(Make("replay:mine", {"a", "b", "a"}).Check().message(),
            "'replay:mine' has two optimizer slots named 'a'.");
  EXPECT_EQ(Make("replay:mine", {"a", "b", "c", "d", "e"}).Check().message(),
            "'replay:mine' must have at most 4 optimizer slots, got 5.");
  AttachedOptimizer uneven = Make("replay:mine", {"a", "b"});
  uneven.slot_inits.pop_back();
  EXPECT_EQ(uneven.Check().message(),
            "'replay:mine' has 2 slot names, but 1 slot_inits.");
}

}  // namespace
}  // namespace lodestar
