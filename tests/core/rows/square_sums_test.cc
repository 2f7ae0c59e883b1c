#include "tf_ops/core/rows/square_sums.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lodestar {
namespace {

// The documented order, one column at a time.
float InOrder(const std::vector<float>& x) {
  float sums[16] = {};
  for (size_t c = 0; c < x.size(); ++c) sums[c % 16] += x[c] * x[c];
  for (int half = 8; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

TEST(SquareSumsTest, TheOrderDependsOnColumnsAlone) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const int dim : {1, 2, 15, 16, 17, 31, 32, 33, 100, 1024, 1041}) {
    std::vector<float> x(dim);
    for (float& value : x) value = uniform(random);
    const float wanted = InOrder(x);
    for (const int part : {16, 48, 2048}) {
      SquareSums sums;
      for (int c = 0; c < dim; c += part) {
        sums.Add(x.data() + c, std::min(part, dim - c));
      }
      EXPECT_EQ(sums.Total(), wanted) << dim << " in parts of " << part;
    }
  }
}

}  // namespace
}  // namespace lodestar
