#include "tf_ops/core/rows/stored_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace lodestar {
namespace {

constexpr int kDims[] = {1, 2, 3, 4, 5, 32, 255, 256, 257, 4096};
constexpr RowStorage kSmaller[] = {RowStorage::kFloat16, RowStorage::kBFloat16,
                                   RowStorage::kInt8};

template <typename T>
class StoredRowTest : public testing::Test {
 protected:
  // Stores a row and reads it again. Checks the parts that are written.
  static std::vector<T> RoundTrip(RowStorage storage,
                                  const std::vector<T>& row) {
    const int dim = static_cast<int>(row.size());
    const StoredRow stored(dim, RowTypeOf<T>(), storage);
    std::vector<char> bytes(stored.bytes(), '?');
    int64_t next = 0;
    stored.Encode(row.data(), [&](const void* part, int64_t size, int64_t at) {
      EXPECT_EQ(at, next);
      EXPECT_EQ(at % (size == 4 ? 4 : 8), 0);
      EXPECT_EQ(size % 2, 0);
      ASSERT_LE(at + size, stored.bytes());
      std::memcpy(bytes.data() + at, part, size);
      next = at + size;
    });
    EXPECT_EQ(next, stored.bytes());
    std::vector<T> read(dim);
    stored.Decode(bytes.data(), read.data());
    return read;
  }
  static std::vector<T> Random(int dim) {
    std::mt19937_64 rng(dim);
    std::normal_distribution<float> normal;
    std::vector<T> row(dim);
    for (T& x : row) x = RoundTo<T>(normal(rng));
    return row;
  }
};

using RowTypes = testing::Types<float, Float16, BFloat16>;
TYPED_TEST_SUITE(StoredRowTest, RowTypes);

TYPED_TEST(StoredRowTest, NumbersOf16BitsAreTheNearest) {
  using T = TypeParam;
  for (const int dim : kDims) {
    const std::vector<T> row = this->Random(dim);
    const auto half = this->RoundTrip(RowStorage::kFloat16, row);
    const auto bfloat = this->RoundTrip(RowStorage::kBFloat16, row);
    for (int c = 0; c < dim; ++c) {
      const float x = ToCompute(row[c]);
      EXPECT_EQ(ToCompute(half[c]),
                ToCompute(RoundTo<T>(ToCompute(RoundTo<Float16>(x)))));
      EXPECT_EQ(ToCompute(bfloat[c]),
                ToCompute(RoundTo<T>(ToCompute(RoundTo<BFloat16>(x)))));
    }
  }
}

TYPED_TEST(StoredRowTest, NumbersOf8BitsHaveAScalePerRow) {
  using T = TypeParam;
  for (const int dim : kDims) {
    const std::vector<T> row = this->Random(dim);
    const auto read = this->RoundTrip(RowStorage::kInt8, row);
    double most = 0;
    for (const T x : row) {
      most = std::max(most, std::abs(static_cast<double>(ToCompute(x))));
    }
    const float scale = static_cast<float>(most / 127);
    for (int c = 0; c < dim; ++c) {
      const double x = ToCompute(row[c]);
      const float wanted = static_cast<float>(std::nearbyint(x / scale));
      EXPECT_EQ(ToCompute(read[c]), ToCompute(RoundTo<T>(wanted * scale)));
      EXPECT_LE(std::abs(wanted), 127);
    }
    // Rounding again changes at most the last bit of the scale.
    const auto again = this->RoundTrip(RowStorage::kInt8, read);
    for (int c = 0; c < dim; ++c) {
      EXPECT_NEAR(ToCompute(again[c]), ToCompute(read[c]),
                  std::abs(ToCompute(read[c])) * 0.01);
    }
  }
}

TYPED_TEST(StoredRowTest, ZerosStay) {
  for (const RowStorage storage : kSmaller) {
    const std::vector<TypeParam> zeros(5, TypeParam{});
    for (const TypeParam x : this->RoundTrip(storage, zeros)) {
      EXPECT_EQ(ToCompute(x), 0);
    }
  }
}

TYPED_TEST(StoredRowTest, NumbersThatAreNotFiniteAreNotHidden) {
  using T = TypeParam;
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<T> row = {RoundTo<T>(1.0f), RoundTo<T>(bad)};
    for (const T x : this->RoundTrip(RowStorage::kInt8, row)) {
      EXPECT_TRUE(std::isnan(ToCompute(x)));
    }
    for (const RowStorage storage :
         {RowStorage::kFloat16, RowStorage::kBFloat16}) {
      const auto read = this->RoundTrip(storage, row);
      EXPECT_EQ(ToCompute(read[0]), 1);
      if (std::isnan(bad)) {
        EXPECT_TRUE(std::isnan(ToCompute(read[1])));
      } else {
        EXPECT_EQ(ToCompute(read[1]), bad);
      }
    }
  }
}

TEST(StoredRowLimitsTest, NumbersBeyondTheRange) {
  const auto read = [](RowStorage storage, float x) {
    const StoredRow stored(1, RowType::kFloat32, storage);
    std::vector<char> bytes(stored.bytes());
    stored.Encode(&x, [&](const void* part, int64_t size, int64_t at) {
      std::memcpy(bytes.data() + at, part, size);
    });
    float found;
    stored.Decode(bytes.data(), &found);
    return found;
  };
  EXPECT_EQ(read(RowStorage::kFloat16, 65504), 65504);
  EXPECT_TRUE(std::isinf(read(RowStorage::kFloat16, 65520)));
  EXPECT_NEAR(read(RowStorage::kInt8, -3e38f), -3e38f, 1e32);
  // 127 times its scale is no float32.
  EXPECT_TRUE(
      std::isnan(read(RowStorage::kInt8, std::numeric_limits<float>::max())));
  const float least = std::numeric_limits<float>::min();
  EXPECT_EQ(read(RowStorage::kInt8, 1e-44f), 0);
  EXPECT_EQ(read(RowStorage::kInt8, least * 0.99f), 0);
  for (const float x : {least, 1.7f * least, 100 * least, 126 * least}) {
    EXPECT_NEAR(read(RowStorage::kInt8, x), x, least / 2);
    EXPECT_GE(read(RowStorage::kInt8, x), least);
  }
}

TEST(StoredRowLimitsTest, Sizes) {
  const auto bytes = [](int dim, RowType type, RowStorage storage) {
    return StoredRow(dim, type, storage).bytes();
  };
  EXPECT_EQ(bytes(3, RowType::kFloat32, RowStorage::kSame), 12);
  EXPECT_EQ(bytes(3, RowType::kBFloat16, RowStorage::kSame), 6);
  EXPECT_EQ(bytes(3, RowType::kFloat32, RowStorage::kFloat16), 6);
  EXPECT_EQ(bytes(3, RowType::kFloat32, RowStorage::kBFloat16), 6);
  EXPECT_EQ(bytes(32, RowType::kFloat32, RowStorage::kInt8), 36);
  EXPECT_EQ(bytes(33, RowType::kFloat32, RowStorage::kInt8), 40);
  EXPECT_TRUE(StoredRow(1, RowType::kFloat32, RowStorage::kSame).is_same());
  EXPECT_FALSE(StoredRow(1, RowType::kFloat32, RowStorage::kInt8).is_same());
}

}  // namespace
}  // namespace lodestar
