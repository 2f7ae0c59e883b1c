#include "tf_ops/core/base/combiner.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(CombinerTest, ParsesNames) {
  const std::pair<const char*, Combiner> names[] = {
      {"sum", Combiner::kSum},   {"mean", Combiner::kMean},
      {"max", Combiner::kMax},   {"sqrtn", Combiner::kSqrtn},
      {"last", Combiner::kLast}, {"first", Combiner::kFirst},
  };
  for (const auto& [name, wanted] : names) {
    Combiner found = Combiner::kSum;
    EXPECT_TRUE(ParseCombiner(name, &found).ok());
    EXPECT_EQ(found, wanted) << name;
  }
}

TEST(CombinerTest, RejectsUnknownNames) {
  Combiner found = Combiner::kMax;
  const Status status = ParseCombiner("Sum", &found);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "unknown combiner 'Sum'. Use sum, mean, sqrtn, max, first or last.");
  EXPECT_EQ(found, Combiner::kMax);
}

}  // namespace
}  // namespace lodestar
