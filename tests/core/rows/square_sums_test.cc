#include "tf_ops/core/rows/square_sums.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lodestar {
namespace {

// The documented order, one column at a time.
template <typename C>
C InOrder(const std::vector<C>& x) {
  C sums[16] = {};
  for (size_t c = 0; c < x.size(); ++c) sums[c % 16] += x[c] * x[c];
  for (int half = 8; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

template <typename C>
void CompareSums() {
  std::mt19937 random(3);
  std::uniform_real_distribution<C> uniform(-1, 1);
  for (const int dim : {1, 2, 15, 16, 17, 31, 32, 33, 100, 1024, 1041}) {
    std::vector<C> x(dim);
    for (C& value : x) value = uniform(random);
    const C wanted = InOrder(x);
    for (const int part : {16, 48, 2048}) {
      SquareSums<C> sums;
      for (int c = 0; c < dim; c += part) {
        sums.Add(x.data() + c, std::min(part, dim - c));
      }
      EXPECT_EQ(sums.Total(), wanted) << dim << " in parts of " << part;
    }
  }
}

TEST(SquareSumsTest, TheOrderDependsOnColumnsAlone) {
  CompareSums<float>();
  CompareSums<double>();
}

}  // namespace
}  // namespace lodestar
