#include "tf_ops/core/embedding/embedding_gradient.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "tests/core/testing/threads.h"
#include "tf_ops/core/base/batch_unique.h"

namespace lodestar {
namespace {

// Positions are in any order; some are unused, some are padding. Sums are not
// initialized.
TEST(EmbeddingGradientTest, SumsByPositionsInAnyOrder) {
  std::mt19937 random(3);
  const auto draw = [&](int n) { return static_cast<int>(random() % n); };
  for (int dim : {1, 3, 16, 32, 33, 64, 100}) {
    for (int round = 0; round < 20; ++round) {
      const int64_t num_unique = 1 + draw(40);
      std::vector<int64_t> positions(draw(200));
      for (int64_t& p : positions) {
        p = draw(5) == 0 ? kNoPosition : draw(num_unique);
      }
      std::vector<float> gradients(positions.size() * dim);
      for (float& g : gradients) g = static_cast<float>(draw(100)) - 50.0f;
      std::vector<float> wanted(num_unique * dim, 0.0f);
      for (size_t i = 0; i < positions.size(); ++i) {
        if (positions[i] == kNoPosition) continue;
        for (int c = 0; c < dim; ++c) {
          wanted[positions[i] * dim + c] += gradients[i * dim + c];
        }
      }
      for (int threads : {1, 3}) {
        const ParallelFor parallel = Threads(threads);
        std::vector<float> sums(num_unique * dim, 1e9f);
        SumByPosition(gradients.data(), positions, num_unique, dim, sums.data(),
                      &parallel);
        EXPECT_EQ(sums, wanted) << "dim " << dim << ", threads " << threads;
      }
    }
  }
}

// Each position belongs to exactly one part.
TEST(EmbeddingGradientTest, PartsPartitionAllPositions) {
  for (int64_t dim : {1, 8, 64, 100}) {
    for (int64_t position = 0; position < 1000; ++position) {
      int64_t owners = 0;
      for (int64_t part = 0; part < kSumParts; ++part) {
        const GradientSums sums(nullptr, 1000, dim, part, kSumParts);
        owners += sums.Has(position);
        EXPECT_FALSE(sums.Has(kNoPosition));
      }
      EXPECT_EQ(owners, 1) << "dim " << dim << ", position " << position;
    }
  }
}

// More ids than a thread collects at a time.
TEST(EmbeddingGradientTest, SumsOfLongBatchesAreTheSameInParts) {
  const int64_t num_unique = 700;
  const int dim = 12;
  std::mt19937 random(5);
  std::vector<int64_t> positions(3000);
  for (int64_t& p : positions) p = random() % num_unique;
  std::vector<float> gradients(positions.size() * dim);
  for (float& g : gradients) g = static_cast<float>(random() % 1000) * 0.37f;
  std::vector<float> whole(num_unique * dim, 1e9f);
  std::vector<float> parts = whole;
  const ParallelFor parallel = Threads(3);
  SumByPosition(gradients.data(), positions, num_unique, dim, whole.data(),
                nullptr);
  SumByPosition(gradients.data(), positions, num_unique, dim, parts.data(),
                &parallel);
  EXPECT_EQ(whole, parts);
}

TEST(EmbeddingGradientTest, SumsDuplicatesInBatchOrder) {
  // The order of addition changes the last bits of these sums.
  const std::vector<float> gradients = {1e8f, 1.0f, -1e8f, 1.0f};
  const std::vector<int64_t> positions = {0, 0, 0, kNoPosition};
  std::vector<float> sum(1);
  SumByPosition(gradients.data(), positions, 1, 1, sum.data(), nullptr);
  EXPECT_EQ(sum[0], (1e8f + 1.0f) + -1e8f);
}

}  // namespace
}  // namespace lodestar
