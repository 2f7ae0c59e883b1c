#include "tf_ops/core/sequence/sequence_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "tests/core/sequence/sequences.h"

namespace lodestar {
namespace {

const std::vector<float> kRows = {1, 3, 2, 4, 6, 5, 1};
const std::vector<int64_t> kSplits = {0, 2, 5, 7, 7};

template <typename T = float>
std::vector<T> Pool(Combiner combiner, const std::vector<T>& rows,
                    const std::vector<int64_t>& splits, T pad = 0,
                    std::vector<int64_t>* winners = nullptr) {
  std::vector<T> pooled(splits.size() - 1);
  std::vector<int64_t> unused(pooled.size());
  if (winners == nullptr) winners = &unused;
  winners->resize(pooled.size());
  SequencePool<T>(combiner, rows.data(), 1, splits, pad, pooled.data(),
                  winners->data(), nullptr);
  return pooled;
}

TEST(SequencePoolTest, MaxKeepsTheFirstAndNanNeverWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<int64_t> winners;
  EXPECT_EQ(Pool(Combiner::kMax, {2.0f, nan, 2.0f}, {0, 3}, 0.0f, &winners)[0],
            2.0f);
  EXPECT_EQ(winners[0], 0);
  EXPECT_TRUE(std::isnan(
      Pool(Combiner::kMax, {nan, 2.0f, 3.0f}, {0, 3}, 0.0f, &winners)[0]));
  EXPECT_EQ(winners[0], 0);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Pool(Combiner::kMax, {-inf, -inf}, {0, 2}, 0.0f, &winners)[0],
            -inf);
  EXPECT_EQ(winners[0], 0);
}

TEST(SequencePoolTest, IntegersRoundTowardZero) {
  EXPECT_EQ(Pool<int64_t>(Combiner::kMean, {3, 4, -3, -4}, {0, 2, 4}),
            (std::vector<int64_t>{3, -3}));
  EXPECT_EQ(Pool<int32_t>(Combiner::kSqrtn, {3, 4, -3, -4}, {0, 2, 4}),
            (std::vector<int32_t>{4, -4}));
}

TEST(SequencePoolTest, LargeIntegers) {
  constexpr int32_t kMax32 = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
  // The mean fits although the sum overflows; a sum wraps around.
  EXPECT_EQ(Pool<int32_t>(Combiner::kMean, {kMax32, kMax32}, {0, 2})[0],
            kMax32);
  EXPECT_EQ(Pool<int32_t>(Combiner::kSum, {kMax32, kMax32}, {0, 2})[0], -2);
  EXPECT_EQ(Pool<int64_t>(Combiner::kSum, {kMax64, kMax64}, {0, 2})[0], -2);
  // Not computed in float64, which would round.
  EXPECT_EQ(Pool<int64_t>(Combiner::kMean, {kMax64, 0}, {0, 2})[0], kMax64 / 2);
  EXPECT_EQ(Pool<int64_t>(Combiner::kSqrtn, {kMax64}, {0, 1})[0], kMax64);
  EXPECT_EQ(Pool<int64_t>(Combiner::kMax, {kMax64 - 1, kMax64}, {0, 2})[0],
            kMax64);
}

// The upper half of a float, like bfloat16.
struct Float16Bits {
  Float16Bits() = default;
  explicit Float16Bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    upper = static_cast<uint16_t>(bits >> 16);
  }
  explicit operator float() const {
    const uint32_t bits = static_cast<uint32_t>(upper) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof(x));
    return x;
  }
  uint16_t upper = 0;
};

TEST(SequencePoolTest, SixteenBitFloatsAreSummedInFloat) {
  // 256 + 1 is not representable; a sum of ones in this type would stop at 256.
  std::vector<Float16Bits> rows(512, Float16Bits(1.0f));
  const std::vector<int64_t> splits = {0, 512};
  Float16Bits pooled;
  for (Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kMax}) {
    int64_t winners = -7;
    SequencePool(combiner, rows.data(), 1, splits, Float16Bits(), &pooled,
                 &winners, nullptr);
    EXPECT_EQ(static_cast<float>(pooled),
              combiner == Combiner::kSum ? 512.0f : 1.0f);
  }
}

TEST(SequencePoolTest, NoSequencesAndNoRows) {
  EXPECT_TRUE(Pool(Combiner::kSum, {}, {0}).empty());
  EXPECT_EQ(Pool(Combiner::kMean, {}, {0, 0, 0}, 7.0f),
            (std::vector<float>{7, 7}));
}

// Compares random batches with a naive loop, unpartitioned and with every
// partition, bitwise.
TEST(SequencePoolTest, MatchesNaiveLoopsForEveryPartition) {
  std::mt19937_64 random(11);
  for (int64_t dim : {0, 1, 3, 64, 65, 130}) {
    for (int trial = 0; trial < 12; ++trial) {
      const int64_t batch = trial % 6;
      const std::vector<int64_t> splits = RandomSplits(&random, batch);
      const int64_t n = splits.back();
      std::vector<double> rows(n * dim);
      for (auto& x : rows) x = static_cast<double>(random() % 9);
      std::vector<double> gradient(batch * dim);
      for (auto& x : gradient) x = static_cast<double>(random() % 1000);
      for (Combiner combiner :
           {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn, Combiner::kMax,
            Combiner::kFirst, Combiner::kLast}) {
        std::vector<double> wanted(batch * dim, 7.0);
        std::vector<int64_t> wanted_winners(batch * dim, -1);
        std::vector<double> wanted_gradient(n * dim, 0.0);
        for (int64_t b = 0; b < batch; ++b) {
          const int64_t length = splits[b + 1] - splits[b];
          if (length == 0) continue;
          for (int64_t c = 0; c < dim; ++c) {
            double sum = 0.0;
            int64_t best = splits[b];
            for (int64_t r = splits[b]; r < splits[b + 1]; ++r) {
              sum += rows[r * dim + c];
              if (rows[r * dim + c] > rows[best * dim + c]) best = r;
            }
            const double g = gradient[b * dim + c];
            double divisor = 1.0;
            if (combiner == Combiner::kMean) divisor = length;
            if (combiner == Combiner::kSqrtn) divisor = std::sqrt(length);
            double* out = &wanted[b * dim + c];
            int64_t source = -1;
            if (combiner == Combiner::kFirst) source = splits[b];
            if (combiner == Combiner::kLast) source = splits[b + 1] - 1;
            if (combiner == Combiner::kMax) {
              source = wanted_winners[b * dim + c] = best;
            }
            if (source >= 0) {
              *out = rows[source * dim + c];
              wanted_gradient[source * dim + c] = g;
            } else {
              *out = sum / divisor;
              for (int64_t r = splits[b]; r < splits[b + 1]; ++r) {
                wanted_gradient[r * dim + c] = g / divisor;
              }
            }
          }
        }
        for (int64_t step : {1, 2, 3, 7, 1000}) {
          const ParallelFor parallel = InSteps(step);
          std::vector<double> pooled(batch * dim, -1.0);
          std::vector<int64_t> winners(batch * dim, -1);
          SequencePool(combiner, rows.data(), dim, splits, 7.0, pooled.data(),
                       winners.data(), &parallel);
          ASSERT_EQ(pooled, wanted);
          if (combiner == Combiner::kMax) {
            ASSERT_EQ(winners, wanted_winners);
          }
          std::vector<double> back(n * dim, -1.0);
          ASSERT_TRUE(SequencePoolGradient(combiner, gradient.data(), dim,
                                           splits, winners.data(), back.data(),
                                           &parallel)
                          .ok());
          ASSERT_EQ(back, wanted_gradient);
        }
      }
    }
  }
}

// Wide rows use vector registers, a single column does not.
template <typename T>
void CheckWideRowsAgainstEachColumn() {
  constexpr int64_t kDim = 2 * kVectorColumns<Isa::kAvx2, T, 4> +
                           kVectorColumns<Isa::kAvx2, T, 1> + 1;
  const std::vector<int64_t> splits = {0, 3, 3, 4, 24, 26};
  const int64_t batch = splits.size() - 1;
  std::mt19937_64 random(7);
  std::vector<T> rows(splits.back() * kDim);
  // Few values, so that some are equal, including -0.0 and NaN.
  for (auto& x : rows) {
    x = static_cast<T>(static_cast<double>(random() % 19) - 9.0) / 3;
    if constexpr (std::is_floating_point_v<T>) {
      if (random() % 40 == 0) x = std::numeric_limits<T>::quiet_NaN();
      if (random() % 20 == 0) x = -T{0};
    }
  }
  std::vector<T> gradient(batch * kDim);
  for (auto& x : gradient) x = static_cast<T>(random() % 1000) / 7;
  const auto column = [&](const auto& matrix, int64_t c) {
    std::decay_t<decltype(matrix)> out;
    for (size_t i = c; i < matrix.size(); i += kDim) out.push_back(matrix[i]);
    return out;
  };
  const auto same_bits = [](const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  };
  for (Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn,
                            Combiner::kMax, Combiner::kFirst}) {
    for (const Isa isa : {Isa::kBaseline, BestIsa()}) {
      std::vector<T> pooled(batch * kDim);
      std::vector<int64_t> winners(batch * kDim);
      SequencePool<T>(combiner, rows.data(), kDim, splits, T{5}, pooled.data(),
                      winners.data(), nullptr, isa);
      for (int64_t c = 0; c < kDim; ++c) {
        std::vector<int64_t> one_winners;
        const auto one =
            Pool<T>(combiner, column(rows, c), splits, T{5}, &one_winners);
        ASSERT_TRUE(same_bits(column(pooled, c), one)) << c;
        if (combiner != Combiner::kMax) continue;
        ASSERT_EQ(column(winners, c), one_winners);
      }
      if constexpr (std::is_floating_point_v<T>) {
        const ParallelFor parallel = InSteps(5);
        std::vector<T> back(rows.size(), T{-1});
        ASSERT_TRUE(SequencePoolGradient(combiner, gradient.data(), kDim,
                                         splits, winners.data(), back.data(),
                                         &parallel, isa)
                        .ok());
        for (int64_t c = 0; c < kDim; ++c) {
          std::vector<T> one(splits.back());
          ASSERT_TRUE(SequencePoolGradient(combiner, column(gradient, c).data(),
                                           1, splits, column(winners, c).data(),
                                           one.data(), nullptr)
                          .ok());
          ASSERT_TRUE(same_bits(column(back, c), one)) << c;
        }
      }
    }
  }
}

TEST(SequencePoolTest, WideRowsEqualSingleColumns) {
  CheckWideRowsAgainstEachColumn<float>();
  CheckWideRowsAgainstEachColumn<double>();
  CheckWideRowsAgainstEachColumn<int32_t>();
  CheckWideRowsAgainstEachColumn<int64_t>();
}

TEST(SequencePoolTest, RejectsAnIndexOfAnotherSequence) {
  const std::vector<float> gradient = {1, 2, 3, 4};
  for (int64_t bad : {int64_t{-1}, int64_t{5}, int64_t{1},
                      std::numeric_limits<int64_t>::max(),
                      std::numeric_limits<int64_t>::min()}) {
    for (int64_t step : {1, 2, 1000}) {
      // The index of an empty sequence is not checked.
      const std::vector<int64_t> winners = {1, bad, 5, 99};
      std::vector<float> rows(kRows.size());
      const ParallelFor parallel = InSteps(step);
      EXPECT_EQ(
          SequencePoolGradient(Combiner::kMax, gradient.data(), 1, kSplits,
                               winners.data(), rows.data(), &parallel)
              .message(),
          StrCat("`index` has ", bad, " for sequence 1 of rows [2, 5)."));
    }
  }
}

}  // namespace
}  // namespace lodestar
