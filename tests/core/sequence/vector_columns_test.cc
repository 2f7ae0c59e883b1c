#include "tf_ops/core/sequence/vector_columns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace lodestar {
namespace {

// Rows are one value longer than the vectors, which must not touch it.
constexpr int kVectors = 2;
template <typename T>
constexpr int64_t kColumns = kVectorColumns<Isa::kBaseline, T, kVectors>;
template <typename T>
constexpr int64_t kStride = kColumns<T> + 1;

template <typename T>
class VectorColumnsTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 5;

  VectorColumnsTest() : rows_(kRows * kStride<T>) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i] = static_cast<T>((i * 7 + i / 5) % 11);
    }
  }
  T at(int64_t r, int64_t c) const { return rows_[r * kStride<T> + c]; }

  std::vector<T> rows_;
};

using Numbers = testing::Types<float, double, uint32_t, uint64_t>;
TYPED_TEST_SUITE(VectorColumnsTest, Numbers);

TYPED_TEST(VectorColumnsTest, ReducesColumns) {
  using T = TypeParam;
  std::vector<T> sums(kStride<T>, 99);
  std::vector<T> maxima(kStride<T>, 99);
  ReduceColumns<Isa::kBaseline, kVectors, /*kMax=*/false>(
      this->rows_.data(), kStride<T>, this->kRows, sums.data());
  ReduceColumns<Isa::kBaseline, kVectors, /*kMax=*/true>(
      this->rows_.data(), kStride<T>, this->kRows, maxima.data());
  for (int64_t c = 0; c < kColumns<T>; ++c) {
    T sum = 0;
    T most = 0;
    for (int64_t r = 0; r < this->kRows; ++r) {
      sum += this->at(r, c);
      most = std::max(most, this->at(r, c));
    }
    EXPECT_EQ(sums[c], sum);
    EXPECT_EQ(maxima[c], most);
  }
  EXPECT_EQ(sums.back(), 99);
  EXPECT_EQ(maxima.back(), 99);
}

TYPED_TEST(VectorColumnsTest, MaximaSelectTheFirstOfEqualRows) {
  using T = TypeParam;
  using RowNumber = typename VectorOf<Isa::kBaseline, T>::RowNumber;
  std::vector<T> maxima(kColumns<T>);
  std::vector<RowNumber> winners(kColumns<T>);
  MaximaOfColumns<Isa::kBaseline, kVectors>(this->rows_.data(), kStride<T>,
                                            this->kRows, maxima.data(),
                                            winners.data());
  std::vector<T> put(this->kRows * kStride<T>, 99);
  PutColumns<Isa::kBaseline, kVectors>(maxima.data(), winners.data(),
                                       kStride<T>, this->kRows, put.data());
  for (int64_t c = 0; c < kColumns<T>; ++c) {
    for (int64_t r = 0; r < this->kRows; ++r) {
      if (r < winners[c]) {
        EXPECT_LT(this->at(r, c), maxima[c]);
      } else {
        EXPECT_LE(this->at(r, c), maxima[c]);
      }
      EXPECT_EQ(put[r * kStride<T> + c], r == winners[c] ? maxima[c] : 0);
    }
    EXPECT_EQ(this->at(winners[c], c), maxima[c]);
  }
  EXPECT_EQ(put.back(), 99);
}

TYPED_TEST(VectorColumnsTest, RepeatsARow) {
  using T = TypeParam;
  std::vector<T> out(3 * kStride<T>, 99);
  RepeatColumns<Isa::kBaseline, kVectors>(this->rows_.data(), kStride<T>, 3,
                                          out.data());
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < kColumns<T>; ++c) {
      EXPECT_EQ(out[r * kStride<T> + c], this->at(0, c));
    }
    EXPECT_EQ(out[r * kStride<T> + kColumns<T>], 99);
  }
}

TEST(VectorColumnsNanTest, ANanNeverReplacesANumber) {
  std::vector<float> rows(2 * kColumns<float>, 1.0f);
  rows[kColumns<float>] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> maxima(kColumns<float>);
  ReduceColumns<Isa::kBaseline, kVectors, /*kMax=*/true>(
      rows.data(), kColumns<float>, 2, maxima.data());
  EXPECT_EQ(maxima, std::vector<float>(kColumns<float>, 1.0f));
}

}  // namespace
}  // namespace lodestar
