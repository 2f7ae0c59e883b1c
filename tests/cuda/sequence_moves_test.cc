// Compares the CUDA kernels of sequence ops that move rows between sequences
// with the CPU core, as sequence_kernels_test.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/sequence_checks.h"
#include "tests/cuda/sequence_data.h"
#include "tf_ops/core/sequence/sequence_concat.h"
#include "tf_ops/core/sequence/sequence_context.h"
#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"

namespace lodestar {
namespace {

// Row splits in device memory.
class Splits {
 public:
  explicit Splits(const std::vector<int64_t>& splits)
      : buffer_(splits),
        splits_{buffer_.data(), static_cast<int64_t>(splits.size()) - 1,
                splits.back()} {}
  const DeviceSplits& get() const { return splits_; }

 private:
  DeviceBuffer<int64_t> buffer_;
  DeviceSplits splits_;
};

template <typename T>
int64_t RowBytes(const Shape& shape) {
  return shape.dim * static_cast<int64_t>(sizeof(T));
}

template <typename T>
void TestConcat(Random* random, const Shape& shape, const std::string& what) {
  const std::vector<std::vector<int64_t>> splits = {
      shape.splits, SplitsOf(RandomLengths(random, shape.batch(), 3)),
      SplitsOf(std::vector<int64_t>(shape.batch())),
      SplitsOf(RandomLengths(random, shape.batch(), 1))};
  LodLevels levels;
  std::vector<LodLevels> lods;
  std::vector<int64_t> num_rows;
  std::vector<std::vector<T>> numbers;
  for (const std::vector<int64_t>& one : splits) {
    levels.push_back(one);
    lods.push_back({levels.back()});
    num_rows.push_back(one.back());
    numbers.push_back(ExactNumbers<T>(random, one.back() * shape.dim));
  }
  std::vector<int64_t> joined;
  ExpectOk(SequenceConcatSplits(lods, num_rows, &joined), what);
  const int64_t dim = shape.dim;
  std::vector<T> wanted(joined.back() * dim);
  SequenceConcatRuns(
      levels, joined, dim,
      [&](size_t k, int64_t row, int64_t joined_row, int64_t count) {
        std::copy_n(numbers[k].data() + row * dim, count * dim,
                    wanted.data() + joined_row * dim);
      },
      nullptr);
  const DeviceBuffer<T> out(wanted.size(), shape.shift);
  const DeviceBuffer<T> gradient(wanted, shape.shift);
  std::vector<int64_t> places(joined.begin(), joined.end() - 1);
  for (size_t k = 0; k < splits.size(); ++k) {
    const Splits rows(splits[k]);
    const DeviceBuffer<int64_t> device_places(places);
    const DeviceRuns runs{rows.get(), device_places.data()};
    const DeviceBuffer<T> values(numbers[k], shape.shift);
    REQUIRE_CUDA(LaunchScatterRuns(kStream, values.data(), RowBytes<T>(shape),
                                   runs, out.data()));
    const DeviceBuffer<T> part(numbers[k].size(), shape.shift);
    REQUIRE_CUDA(LaunchGatherRuns(kStream, gradient.data(), RowBytes<T>(shape),
                                  runs, part.data()));
    ExpectNear("concat gradient " + what, part, numbers[k]);
    for (size_t b = 0; b < places.size(); ++b) {
      places[b] += splits[k][b + 1] - splits[k][b];
    }
  }
  ExpectNear("concat " + what, out, wanted);
}

template <typename T>
void TestContext(Random* random, const Shape& shape, const std::string& name) {
  const std::vector<T> numbers =
      ExactNumbers<T>(random, shape.num_rows() * shape.dim);
  const DeviceBuffer<T> values(numbers, shape.shift);
  const Splits splits(shape.splits);
  const T pad_value = static_cast<T>(7.0f);
  struct Window {
    int64_t start;
    int64_t size;
  };
  for (const auto& [start, size] :
       {Window{0, 1}, Window{-1, 3}, Window{-3, 2}, Window{2, 3},
        Window{-kMaxContextStart, 2}, Window{kMaxContextStart, 1}}) {
    const std::string what = name + " start " + std::to_string(start);
    std::vector<T> wanted(numbers.size() * size);
    SequenceContext<T>(numbers.data(), shape.dim, shape.splits, start, size,
                       pad_value, wanted.data(), nullptr);
    const DeviceBuffer<T> out(wanted.size(), shape.shift);
    REQUIRE_CUDA(LaunchSequenceContext(
        kStream, values.data(), RowBytes<T>(shape), splits.get(), start, size,
        &pad_value, sizeof(T), out.data()));
    ExpectNear("context " + what, out, wanted);
    if constexpr (!std::is_integral_v<T>) {
      // Sums whose bits depend on their order.
      std::vector<T> upstream(wanted.size());
      for (T& x : upstream) {
        x = static_cast<T>(std::uniform_real_distribution<float>()(*random));
      }
      std::vector<T> gradient(numbers.size());
      SequenceContextGradient<T>(upstream.data(), shape.dim, shape.splits,
                                 start, size, gradient.data(), nullptr);
      const DeviceBuffer<T> in(upstream, shape.shift);
      const DeviceBuffer<T> out_gradient(gradient.size(), shape.shift);
      REQUIRE_CUDA(LaunchSequenceContextGradient(
          kStream, NumberOf<T>(), in.data(), shape.dim, splits.get(), start,
          size, out_gradient.data()));
      ExpectNear("context gradient " + what, out_gradient, gradient);
    }
  }
}

// Arbitrary offsets: no kernel may write outside of its buffer.
template <typename T>
void TestBadSplits(Random* random, const char* name) {
  for (int round = 0; round < 20; ++round) {
    const int64_t dim = kDims[round % 4];
    const int64_t num_rows = Draw(random, 0, 500);
    std::vector<int64_t> offsets(Draw(random, 1, 40));
    for (int64_t& offset : offsets) offset = Draw(random, -99, num_rows + 99);
    const DeviceBuffer<int64_t> device_offsets(offsets);
    const DeviceSplits splits{device_offsets.data(),
                              static_cast<int64_t>(offsets.size()) - 1,
                              num_rows};
    const std::string what =
        std::string("bad splits ") + name + " round " + std::to_string(round);
    const DeviceBuffer<T> values(ExactNumbers<T>(random, num_rows * dim));
    const T pad_value = static_cast<T>(7.0f);
    const DeviceBuffer<T> windows(num_rows * 3 * dim);
    REQUIRE_CUDA(LaunchSequenceContext(
        kStream, values.data(), dim * static_cast<int64_t>(sizeof(T)), splits,
        -1, 3, &pad_value, sizeof(T), windows.data()));
    ExpectIntact(what + " context", windows);
    if constexpr (!std::is_integral_v<T>) {
      const DeviceBuffer<T> gradient(num_rows * dim);
      REQUIRE_CUDA(LaunchSequenceContextGradient(kStream, NumberOf<T>(),
                                                 windows.data(), dim, splits,
                                                 -1, 3, gradient.data()));
      ExpectIntact(what + " context gradient", gradient);
    }
  }
}

template <typename T>
void TestNumber(Random* random, const char* name) {
  for (const Shape& shape : Shapes(random)) {
    const std::string what = name + shape.ToString();
    TestConcat<T>(random, shape, what);
    if constexpr (sizeof(T) > 1) TestContext<T>(random, shape, what);
  }
  if constexpr (sizeof(T) > 1) TestBadSplits<T>(random, name);
}

void Run(Random* random) {
  TestNumber<Half>(random, "float16");
  TestNumber<BHalf>(random, "bfloat16");
  TestNumber<float>(random, "float32");
  TestNumber<double>(random, "float64");
  TestNumber<int32_t>(random, "int32");
  TestNumber<int64_t>(random, "int64");
  TestNumber<uint8_t>(random, "uint8");
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  return lodestar::RunTests(argc, argv, {{"numbers", lodestar::Run}});
}
