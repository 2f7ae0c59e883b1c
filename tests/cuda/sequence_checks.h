// Shapes and comparisons of the programs that compare the CUDA kernels of the
// sequence ops with the CPU core.

#ifndef LODESTAR_TESTS_CUDA_SEQUENCE_CHECKS_H_
#define LODESTAR_TESTS_CUDA_SEQUENCE_CHECKS_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/run_tests.h"
#include "tests/cuda/sequence_data.h"
#include "tf_ops/core/base/float16.h"
#include "tf_ops/kernels/sequence/cuda/number.h"

namespace lodestar {

constexpr int64_t kDims[] = {1, 3, 32, 129};

// The default stream: blocking copies wait for its work.
constexpr cudaStream_t kStream = nullptr;

// A 16-bit float that converts to and from float, as the core requires.
template <typename Stored>
struct ConvertibleFloat {
  ConvertibleFloat() = default;
  ConvertibleFloat(float x) : stored(RoundTo<Stored>(x)) {}
  operator float() const { return ToCompute(stored); }

  Stored stored;
};
using Half = ConvertibleFloat<Float16>;
using BHalf = ConvertibleFloat<BFloat16>;

template <typename T>
constexpr Number NumberOf() {
  return std::is_same_v<T, Half>      ? Number::kFloat16
         : std::is_same_v<T, BHalf>   ? Number::kBFloat16
         : std::is_same_v<T, float>   ? Number::kFloat32
         : std::is_same_v<T, double>  ? Number::kFloat64
         : std::is_same_v<T, int32_t> ? Number::kInt32
                                      : Number::kInt64;
}

inline double ToDouble(float x) { return x; }
inline double ToDouble(double x) { return x; }
inline double ToDouble(uint8_t x) { return x; }
inline double ToDouble(int32_t x) { return x; }
inline double ToDouble(int64_t x) { return static_cast<double>(x); }
inline double ToDouble(Half x) { return static_cast<float>(x); }
inline double ToDouble(BHalf x) { return static_cast<float>(x); }

// Expects values that are equal, both NaN, or different by at most `tolerance`
// times max(1, value), and intact guard zones.
template <typename T>
void ExpectNear(const std::string& what, const DeviceBuffer<T>& buffer,
                const std::vector<T>& wanted, double tolerance = 0) {
  Expect(buffer.ZonesAreIntact(), what + ": writes outside its output");
  const std::vector<T> got = buffer.Download();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double g = ToDouble(got[i]);
    const double w = ToDouble(wanted[i]);
    const bool near =
        g == w || (g != g && w != w) ||
        std::fabs(g - w) <= tolerance * std::max(1.0, std::fabs(w));
    if (near) continue;
    Expect(false, what + ": number " + std::to_string(i) + " is " +
                      std::to_string(g) + ", wanted " + std::to_string(w));
    return;
  }
  Expect(true, what);
}

template <typename T>
void ExpectIntact(const std::string& what, const DeviceBuffer<T>& buffer) {
  Expect(buffer.ZonesAreIntact(), what + ": writes outside its output");
}

// Allowed error of results with rounded sums or exponentials.
template <typename T>
double Tolerance() {
  return std::is_same_v<T, Half>     ? 1e-3
         : std::is_same_v<T, BHalf>  ? 8e-3
         : std::is_same_v<T, double> ? 1e-12
                                     : 2e-6;
}

// Edge cases: lengths at which the reduction changes its method, empty batches,
// very long sequences.
inline std::vector<std::vector<int64_t>> Batches(Random* random) {
  std::vector<std::vector<int64_t>> batches = {
      {},
      {0},
      {0, 0, 0},
      {1},
      {128},
      {0, 129, 0},
      {127, 129, 256, 1, 3},
      {3000},
      {1, 400, 0, 0, 300, 2, 1000, 129, 128}};
  batches.push_back(RandomLengths(random, 300, 4));
  std::vector<int64_t> hot = RandomLengths(random, 400, 4);
  hot[Draw(random, 0, 399)] = 5000;
  batches.push_back(hot);
  return batches;
}

// The batch, and the alignment of its rows.
struct Shape {
  std::vector<int64_t> splits;
  int64_t dim;
  int64_t shift;

  int64_t batch() const { return static_cast<int64_t>(splits.size()) - 1; }
  int64_t num_rows() const { return splits.back(); }
  std::string ToString() const {
    return "(" + std::to_string(num_rows()) + " rows, " +
           std::to_string(batch()) + " sequences, dim " + std::to_string(dim) +
           ", shift " + std::to_string(shift) + ")";
  }
};

inline std::vector<Shape> Shapes(Random* random) {
  std::vector<Shape> shapes;
  for (const auto& lengths : Batches(random)) {
    const auto add = [&](int64_t dim, int64_t shift) {
      const Shape shape{SplitsOf(lengths), dim, shift};
      if (few && shape.num_rows() * dim > 70000) return;
      shapes.push_back(shape);
    };
    for (const int64_t dim : kDims) add(dim, 0);
    add(32, 1);
  }
  return shapes;
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CUDA_SEQUENCE_CHECKS_H_
