#include "tf_ops/core/base/parallel.h"

#include <gtest/gtest.h>

#include <vector>

namespace lodestar {
namespace {

TEST(ParallelTest, WithoutThreadsRunsOneRangeInline) {
  const ParallelFor none;
  for (const ParallelFor* parallel :
       std::initializer_list<const ParallelFor*>{nullptr, &none}) {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    RunParallel(parallel, 7, 1, [&](int64_t begin, int64_t end) {
      ranges.push_back({begin, end});
    });
    EXPECT_EQ(ranges, (std::vector<std::pair<int64_t, int64_t>>{{0, 7}}));
  }
}

TEST(ParallelTest, UsesTheCallersRanges) {
  int64_t given_cost = 0;
  const ParallelFor halves =
      [&](int64_t total, int64_t cost,
          const std::function<void(int64_t, int64_t)>& body) {
        given_cost = cost;
        body(0, total / 2);
        body(total / 2, total);
      };
  std::vector<int> visits(7, 0);
  RunParallel(&halves, 7, 42, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++visits[i];
  });
  EXPECT_EQ(visits, std::vector<int>(7, 1));
  EXPECT_EQ(given_cost, 42);
}

TEST(ParallelTest, EmptyRangeCallsNothing) {
  for (const int64_t total : {0, -1}) {
    RunParallel(nullptr, total, 1, [](int64_t, int64_t) { FAIL(); });
  }
}

}  // namespace
}  // namespace lodestar
