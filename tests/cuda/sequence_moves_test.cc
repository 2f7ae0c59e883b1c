// Compares the CUDA kernels of sequence ops that move rows between sequences
// with the CPU core, as sequence_kernels_test.

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/sequence_checks.h"
#include "tests/cuda/sequence_data.h"
#include "tf_ops/core/sequence/sequence_concat.h"
#include "tf_ops/core/sequence/sequence_context.h"
#include "tf_ops/core/sequence/sequence_erase.h"
#include "tf_ops/core/sequence/sequence_scatter.h"
#include "tf_ops/core/sequence/sequence_slice.h"
#include "tf_ops/core/sequence/sequence_topk.h"
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
void TestSlice(Random* random, const Shape& shape, const std::string& what) {
  std::vector<int64_t> offset(shape.batch());
  std::vector<int64_t> length(shape.batch());
  std::vector<int64_t> places(shape.batch());
  for (int64_t b = 0; b < shape.batch(); ++b) {
    const int64_t rows = shape.splits[b + 1] - shape.splits[b];
    offset[b] = Draw(random, 0, rows);
    length[b] = Draw(random, 0, rows - offset[b]);
    places[b] = shape.splits[b] + offset[b];
  }
  std::vector<int64_t> sliced(shape.splits.size());
  ExpectOk(SequenceSliceSplits(shape.splits, offset, length, sliced), what);
  const Splits rows(sliced);
  const DeviceBuffer<int64_t> device_places(places);
  const DeviceRuns runs{rows.get(), device_places.data()};
  const std::vector<T> numbers =
      ExactNumbers<T>(random, shape.num_rows() * shape.dim);
  const DeviceBuffer<T> values(numbers, shape.shift);
  std::vector<T> wanted(sliced.back() * shape.dim);
  SequenceSlice<T>(numbers.data(), shape.dim, shape.splits, offset, sliced,
                   wanted.data(), nullptr);
  const DeviceBuffer<T> out(wanted.size(), shape.shift);
  REQUIRE_CUDA(LaunchGatherRuns(kStream, values.data(), RowBytes<T>(shape),
                                runs, out.data()));
  ExpectNear("slice " + what, out, wanted);

  std::vector<T> gradient(numbers.size());
  SequenceSliceGradient<T>(wanted.data(), shape.dim, shape.splits, offset,
                           sliced, gradient.data(), nullptr);
  const DeviceBuffer<T> out_gradient(std::vector<T>(numbers.size(), T(0)),
                                     shape.shift);
  REQUIRE_CUDA(LaunchScatterRuns(kStream, out.data(), RowBytes<T>(shape), runs,
                                 out_gradient.data()));
  ExpectNear("slice gradient " + what, out_gradient, gradient);
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
void TestErase(Random* random, const std::vector<int64_t>& lengths,
               int64_t num_tokens) {
  const std::vector<int64_t> splits = SplitsOf(lengths);
  const int64_t num_rows = splits.back();
  const std::string what = "erase " + std::to_string(num_tokens) +
                           " tokens from " + std::to_string(num_rows);
  const std::vector<T> ids = ExactNumbers<T>(random, num_rows);
  std::vector<T> tokens = ExactNumbers<T>(random, num_tokens);
  std::sort(tokens.begin(), tokens.end());
  const std::unique_ptr<bool[]> kept(new bool[num_rows]);
  std::vector<int64_t> kept_splits(splits.size());
  SequenceErase<T>(Span<const T>(ids), splits, Span<const T>(tokens),
                   Span<bool>(kept.get(), num_rows), kept_splits);
  std::vector<T> wanted;
  for (int64_t i = 0; i < num_rows; ++i) {
    if (kept[i]) wanted.push_back(ids[i]);
  }
  const Splits device_splits(splits);
  const DeviceBuffer<T> device_ids(ids);
  const DeviceBuffer<T> device_tokens(tokens);
  const DeviceBuffer<char> scratch(SequenceEraseScratchBytes(num_rows));
  const DeviceBuffer<int64_t> out_splits(splits.size());
  REQUIRE_CUDA(LaunchSequenceEraseSplits(
      kStream, NumberOf<T>(), device_ids.data(), device_splits.get(),
      device_tokens.data(), num_tokens, scratch.data(), out_splits.data()));
  ExpectNear(what + " splits", out_splits, kept_splits);
  const DeviceBuffer<T> out(wanted.size());
  REQUIRE_CUDA(LaunchSequenceErase(kStream, NumberOf<T>(), device_ids.data(),
                                   num_rows, scratch.data(), out.data()));
  ExpectNear(what, out, wanted);
  ExpectIntact(what + " scratch", scratch);
}

void TestScatter(Random* random, const std::vector<int64_t>& lengths) {
  const std::vector<int64_t> splits = SplitsOf(lengths);
  const int64_t num_rows = splits.back();
  const int64_t width = Draw(random, 1, 9);
  const std::string what = "scatter " + std::to_string(num_rows);
  std::vector<int64_t> index(num_rows);
  for (int64_t& column : index) column = Draw(random, 0, width - 1);
  const Splits device_splits(splits);
  const DeviceBuffer<int64_t> places(num_rows);
  const DeviceBuffer<int32_t> wrong(1);
  const auto launch = [&] {
    const DeviceBuffer<int64_t> device_index(index);
    REQUIRE_CUDA(LaunchSequenceScatterPlaces(kStream, device_index.data(),
                                             device_splits.get(), width,
                                             places.data(), wrong.data()));
    return wrong.Download()[0];
  };
  Expect(launch() == 0, what + ": finds a wrong index");
  std::vector<int64_t> wanted(num_rows);
  ExpectOk(SequenceScatterPlaces(index, splits, width, wanted), what);
  ExpectNear(what, places, wanted);
  ExpectIntact(what, wrong);
  if (num_rows == 0) return;
  for (const int64_t bad : {int64_t{-1}, width}) {
    const int64_t p = Draw(random, 0, num_rows - 1);
    const int64_t before = index[p];
    index[p] = bad;
    Expect(launch() == 1, what + ": misses a wrong index");
    wanted[p] = -1;
    ExpectNear(what + " with a wrong index", places, wanted);
    index[p] = before;
    ExpectOk(SequenceScatterPlaces(index, splits, width, wanted), what);
  }
}

template <typename T>
void TestTopk(Random* random, const char* name) {
  for (const int64_t mean : {0, 1, 4, 20}) {
    for (const int64_t channels : {1, 3}) {
      const int64_t batch = 9;
      const std::vector<int64_t> rows = RandomLengths(random, batch, mean);
      std::vector<int64_t> columns = RandomLengths(random, batch, mean);
      columns[3] = 5 * mean;  // more than a warp
      std::vector<int64_t> lengths(batch);
      for (int64_t b = 0; b < batch; ++b) {
        lengths[b] = channels * rows[b] * columns[b];
      }
      const std::vector<int64_t> x_splits = SplitsOf(lengths);
      const std::vector<int64_t> row_splits = SplitsOf(rows);
      const std::vector<int64_t> col_splits = SplitsOf(columns);
      std::vector<T> numbers = ExactNumbers<T>(random, x_splits.back());
      for (size_t i = 0; i < numbers.size(); i += 5) {
        numbers[i] = static_cast<T>(i % 2 == 0 ? NAN : -INFINITY);
      }
      const Splits values(x_splits);
      const Splits device_rows(row_splits);
      const Splits device_columns(col_splits);
      const DeviceBuffer<T> x(numbers);
      for (const int64_t k : {1, 5, 50}) {
        std::vector<int64_t> wanted(row_splits.back() * channels * k);
        SequenceTopk<T>(numbers.data(), x_splits, row_splits, col_splits,
                        channels, k, wanted.data(), nullptr);
        const DeviceBuffer<int64_t> index(wanted.size());
        REQUIRE_CUDA(LaunchSequenceTopk(
            kStream, NumberOf<T>(), x.data(),
            {values.get(), device_rows.get(), device_columns.get(), channels},
            k, index.data()));
        ExpectNear(std::string("topk ") + name + " mean " +
                       std::to_string(mean) + " k " + std::to_string(k),
                   index, wanted);
      }
    }
  }
}

template <typename T>
void TestNumber(Random* random, const char* name) {
  for (const Shape& shape : Shapes(random)) {
    const std::string what = name + shape.ToString();
    TestSlice<T>(random, shape, what);
    TestConcat<T>(random, shape, what);
    if constexpr (sizeof(T) > 1) TestContext<T>(random, shape, what);
  }
  if constexpr (sizeof(T) > 1) TestBadSplits<T>(random, name);
  if constexpr (!std::is_integral_v<T>) TestTopk<T>(random, name);
}

void Run(Random* random) {
  TestNumber<Half>(random, "float16");
  TestNumber<BHalf>(random, "bfloat16");
  TestNumber<float>(random, "float32");
  TestNumber<double>(random, "float64");
  TestNumber<int32_t>(random, "int32");
  TestNumber<int64_t>(random, "int64");
  TestNumber<uint8_t>(random, "uint8");
  for (const std::vector<int64_t>& lengths : Batches(random)) {
    TestScatter(random, lengths);
    for (const int64_t num_tokens : {0, 1, 20}) {
      TestErase<int32_t>(random, lengths, num_tokens);
      TestErase<int64_t>(random, lengths, num_tokens);
    }
  }
  // More than twice as many tiles as a block has threads.
  TestErase<int32_t>(random, {140000, 3}, 9);
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  return lodestar::RunChecks(argc, argv, lodestar::Run);
}
