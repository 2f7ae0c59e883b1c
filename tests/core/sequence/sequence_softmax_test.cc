#include "tf_ops/core/sequence/sequence_softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/core/sequence/sequences.h"

namespace lodestar {
namespace {

template <typename T>
std::vector<T> Softmax(std::vector<T> values, int64_t dim,
                       const std::vector<int64_t>& splits,
                       const ParallelFor* parallel = nullptr,
                       Isa isa = BestIsa()) {
  // In place, as in the kernel.
  SequenceSoftmax(values.data(), dim, splits, values.data(), parallel, isa);
  return values;
}

template <typename T>
void CheckAgainstPlainLoops(double tolerance) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal(0.0, 4.0);
  for (const int64_t dim : {0, 1, 2, 3, 8, 33, 64, 65, 130}) {
    // Short sequences, and some that do not fit the scratch.
    std::vector<int64_t> splits = {0, 0};
    for (int b = 0; b < 40; ++b) {
      splits.push_back(splits.back() + static_cast<int64_t>(random() % 6));
    }
    splits.push_back(splits.back() + (dim < 4 ? 5000 : 300));
    splits.push_back(splits.back() + 7);
    const int64_t size = splits.back() * dim;
    std::vector<T> values(size);
    std::vector<T> gradient(size);
    for (auto& x : values) x = static_cast<T>(normal(random));
    for (auto& x : gradient) x = static_cast<T>(normal(random));
    std::vector<double> wanted(size);
    std::vector<double> wanted_gradient(size);
    for (size_t b = 0; b + 1 < splits.size(); ++b) {
      for (int64_t c = 0; c < dim; ++c) {
        const auto each = [&](const auto& body) {
          for (int64_t r = splits[b]; r < splits[b + 1]; ++r) body(r * dim + c);
        };
        double sum = 0.0;
        double dot = 0.0;
        each([&](int64_t i) { sum += std::exp(double{values[i]}); });
        each([&](int64_t i) { wanted[i] = std::exp(double{values[i]}) / sum; });
        each([&](int64_t i) { dot += wanted[i] * gradient[i]; });
        each([&](int64_t i) {
          wanted_gradient[i] = wanted[i] * (gradient[i] - dot);
        });
      }
    }
    const auto got = Softmax(values, dim, splits);
    std::vector<T> back(size);
    SequenceSoftmaxGradient(got.data(), gradient.data(), dim, splits,
                            back.data(), nullptr);
    for (int64_t i = 0; i < size; ++i) {
      ASSERT_NEAR(got[i], wanted[i], tolerance * wanted[i]);
      ASSERT_NEAR(back[i], wanted_gradient[i], tolerance * 10);
    }
    // Bitwise equal for every partition and instruction set.
    for (const int64_t step : {1, 7, 100}) {
      const ParallelFor parallel = InSteps(step);
      for (const Isa isa : {Isa::kBaseline, BestIsa()}) {
        ASSERT_EQ(Softmax(values, dim, splits, &parallel, isa), got);
        std::vector<T> cut = gradient;
        SequenceSoftmaxGradient(got.data(), cut.data(), dim, splits, cut.data(),
                                &parallel, isa);
        ASSERT_EQ(cut, back);
      }
    }
  }
}

TEST(SequenceSoftmaxTest, FloatsMatchNaiveLoops) {
  CheckAgainstPlainLoops<float>(1e-5);
}

TEST(SequenceSoftmaxTest, DoublesMatchNaiveLoops) {
  CheckAgainstPlainLoops<double>(1e-14);
}

template <typename T>
void CheckNumbersOfAnySize() {
  const T inf = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const auto one = [](std::vector<T> values) {
    const int64_t n = values.size();
    return Softmax<T>(std::move(values), 1, {0, n});
  };
  for (const T x : {T(1e4), T(-1e4), std::numeric_limits<T>::max(),
                    std::numeric_limits<T>::lowest()}) {
    EXPECT_EQ(one({x, x}), (std::vector<T>{0.5, 0.5}));
  }
  EXPECT_EQ(one({-1e4, 1e4}), (std::vector<T>{0, 1}));
  EXPECT_EQ(one({-inf, 3, -inf, 3}), (std::vector<T>{0, 0.5, 0, 0.5}));
  for (const auto& values :
       {std::vector<T>{-inf, -inf}, {nan, 1}, {1, nan}, {inf, 1}, {1, inf}}) {
    for (const T x : one(values)) EXPECT_TRUE(std::isnan(x));
  }
  // Columns and sequences do not affect each other.
  const auto got = Softmax<T>({nan, 0, 1, 0, -inf, 2}, 2, {0, 2, 3});
  EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[2]) && std::isnan(got[4]));
  EXPECT_EQ(got[1], T{0.5});
  EXPECT_EQ(got[3], T{0.5});
  EXPECT_EQ(got[5], T{1});
}

TEST(SequenceSoftmaxTest, FloatsOfAnySize) { CheckNumbersOfAnySize<float>(); }

TEST(SequenceSoftmaxTest, DoublesOfAnySize) { CheckNumbersOfAnySize<double>(); }

TEST(SequenceSoftmaxTest, NoSequencesAndNoRows) {
  EXPECT_TRUE(Softmax<float>({}, 3, {0}).empty());
  EXPECT_TRUE(Softmax<float>({}, 3, {0, 0, 0}).empty());
}

}  // namespace
}  // namespace lodestar
