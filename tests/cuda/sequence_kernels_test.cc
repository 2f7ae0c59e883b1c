// Compares the CUDA kernels of the sequence ops with the CPU core on random
// input. Needs neither Bazel nor TensorFlow (see docs/internals/kernels.md).
// Skipped without a device.

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/sequence_checks.h"
#include "tests/cuda/sequence_data.h"
#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/sequence/sequence_expand.h"
#include "tf_ops/core/sequence/sequence_pad.h"
#include "tf_ops/core/sequence/sequence_pool.h"
#include "tf_ops/core/sequence/sequence_softmax.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"

namespace lodestar {
namespace {

constexpr Combiner kCombiners[] = {Combiner::kSum,   Combiner::kMean,
                                   Combiner::kSqrtn, Combiner::kMax,
                                   Combiner::kFirst, Combiner::kLast};

template <typename T>
void LaunchPool(Combiner combiner, const DeviceBuffer<T>& values, int64_t dim,
                const DeviceSplits& splits, T pad_value,
                const DeviceBuffer<T>& pooled,
                const DeviceBuffer<int64_t>& index) {
  const DeviceBuffer<char> scratch(
      SequencePoolScratchBytes(combiner, NumberOf<T>(), splits.num_rows, dim));
  REQUIRE_CUDA(LaunchSequencePool(kStream, combiner, NumberOf<T>(),
                                  values.data(), dim, splits, &pad_value,
                                  scratch.data(), pooled.data(), index.data()));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  ExpectIntact("the scratch memory of pool", scratch);
}

template <typename T>
void TestPool(Random* random, const char* name) {
  for (const Shape& shape : Shapes(random)) {
    std::vector<T> numbers =
        ExactNumbers<T>(random, shape.num_rows() * shape.dim);
    const DeviceBuffer<int64_t> offsets(shape.splits);
    const DeviceSplits splits{offsets.data(), shape.batch(), shape.num_rows()};
    const int64_t size = shape.batch() * shape.dim;
    for (const Combiner combiner : kCombiners) {
      const std::string what = std::string("pool ") + name + " combiner " +
                               std::to_string(static_cast<int>(combiner)) +
                               shape.ToString();
      if constexpr (!std::is_integral_v<T>) {
        // These sums would depend on the order.
        if (combiner == Combiner::kMax) {
          for (int i = 0; i < 20 && !numbers.empty(); ++i) {
            const float special[] = {NAN, INFINITY, -INFINITY};
            numbers[Draw(random, 0, numbers.size() - 1)] =
                static_cast<T>(special[i % 3]);
          }
        }
      }
      const T pad_value = static_cast<T>(7.0f);
      std::vector<T> pooled(size);
      std::vector<int64_t> index(combiner == Combiner::kMax ? size : 0);
      SequencePool<T>(combiner, numbers.data(), shape.dim, shape.splits,
                      pad_value, pooled.data(), index.data(), nullptr);
      const DeviceBuffer<T> values(numbers, shape.shift);
      const DeviceBuffer<T> out(size, shape.shift);
      const DeviceBuffer<int64_t> out_index(index.size());
      LaunchPool<T>(combiner, values, shape.dim, splits, pad_value, out,
                    out_index);
      ExpectNear(what, out, pooled);
      ExpectNear(what + " index", out_index, index);
      if constexpr (!std::is_integral_v<T>) {
        const std::vector<T> upstream = ExactNumbers<T>(random, size);
        std::vector<T> gradient(numbers.size());
        const Status status = SequencePoolGradient<T>(
            combiner, upstream.data(), shape.dim, shape.splits, index.data(),
            gradient.data(), nullptr);
        Expect(status.ok(), what + ": " + status.message());
        const DeviceBuffer<T> in(upstream, shape.shift);
        const DeviceBuffer<T> out_gradient(numbers.size(), shape.shift);
        REQUIRE_CUDA(LaunchSequencePoolGradient(
            kStream, combiner, NumberOf<T>(), in.data(), shape.dim, splits,
            out_index.data(), out_gradient.data()));
        ExpectNear(what + " gradient", out_gradient, gradient);
      }
    }
  }
}

template <typename T>
void TestSoftmax(Random* random, const char* name) {
  for (const Shape& shape : Shapes(random)) {
    const std::string what =
        std::string("softmax ") + name + " " + shape.ToString();
    std::vector<T> numbers =
        ExactNumbers<T>(random, shape.num_rows() * shape.dim);
    // Large differences: exp of the value itself would overflow.
    for (size_t i = 0; i < numbers.size(); i += 7) {
      numbers[i] = static_cast<T>(static_cast<float>(numbers[i]) * 1000);
    }
    if (numbers.size() > 1000) {
      numbers[17] = static_cast<T>(NAN);
      numbers[500] = static_cast<T>(INFINITY);
      for (size_t i = 600; i < 610; ++i) numbers[i] = static_cast<T>(-INFINITY);
    }
    std::vector<T> wanted(numbers.size());
    SequenceSoftmax<T>(numbers.data(), shape.dim, shape.splits, wanted.data(),
                       nullptr);
    const DeviceBuffer<int64_t> offsets(shape.splits);
    const DeviceSplits splits{offsets.data(), shape.batch(), shape.num_rows()};
    const DeviceBuffer<T> values(numbers, shape.shift);
    const DeviceBuffer<T> out(numbers.size(), shape.shift);
    const DeviceBuffer<char> scratch(
        SequenceSoftmaxScratchBytes(NumberOf<T>(), shape.dim, splits));
    REQUIRE_CUDA(LaunchSequenceSoftmax(kStream, NumberOf<T>(), values.data(),
                                       shape.dim, splits, scratch.data(),
                                       out.data()));
    ExpectNear(what, out, wanted, Tolerance<T>());

    std::vector<T> probabilities(numbers.size());
    for (T& p : probabilities) {
      p = static_cast<T>(static_cast<float>(Draw(random, 0, 8)) / 8);
    }
    const std::vector<T> upstream = ExactNumbers<T>(random, numbers.size());
    SequenceSoftmaxGradient<T>(probabilities.data(), upstream.data(), shape.dim,
                               shape.splits, wanted.data(), nullptr);
    const DeviceBuffer<T> in(probabilities, shape.shift);
    const DeviceBuffer<T> gradient(upstream, shape.shift);
    const DeviceBuffer<T> out_gradient(numbers.size(), shape.shift);
    REQUIRE_CUDA(LaunchSequenceSoftmaxGradient(
        kStream, NumberOf<T>(), in.data(), gradient.data(), shape.dim, splits,
        scratch.data(), out_gradient.data()));
    ExpectNear(what + " gradient", out_gradient, wanted, Tolerance<T>());
    ExpectIntact(what + " scratch", scratch);
  }
}

template <typename T>
void TestCopies(Random* random, const char* name) {
  for (const Shape& shape : Shapes(random)) {
    const auto what = [&](const char* op) {
      return std::string(op) + " " + name + " " + shape.ToString();
    };
    const int64_t row_bytes = shape.dim * static_cast<int64_t>(sizeof(T));
    const std::vector<T> numbers =
        ExactNumbers<T>(random, shape.num_rows() * shape.dim);
    const DeviceBuffer<int64_t> offsets(shape.splits);
    const DeviceSplits splits{offsets.data(), shape.batch(), shape.num_rows()};
    const DeviceBuffer<T> values(numbers, shape.shift);
    int64_t longest = 0;
    Expect(PaddedSteps(shape.splits, -1, &longest).ok(), what("padded steps"));
    const std::vector<T> step = ExactNumbers<T>(random, shape.dim);
    const DeviceBuffer<T> device_step(step, shape.shift);
    for (const bool one_number : {false, true}) {
      const int64_t steps = longest + (one_number ? 0 : 2);
      if (shape.batch() * steps * shape.dim > 4000000) continue;
      const std::vector<T> pad_row =
          one_number ? std::vector<T>(shape.dim, step[0]) : step;
      std::vector<T> wanted(shape.batch() * steps * shape.dim);
      SequencePad<T>(numbers.data(), shape.dim, shape.splits, pad_row.data(),
                     steps, wanted.data(), nullptr);
      const DeviceBuffer<T> out(wanted.size(), shape.shift);
      REQUIRE_CUDA(LaunchSequencePad(kStream, values.data(), row_bytes, splits,
                                     steps,
                                     one_number ? nullptr : device_step.data(),
                                     &step[0], sizeof(T), out.data()));
      ExpectNear(what("pad"), out, wanted);
      const DeviceBuffer<T> back(numbers.size(), shape.shift);
      REQUIRE_CUDA(LaunchSequenceUnpad(kStream, out.data(), steps, row_bytes,
                                       splits, back.data()));
      ExpectNear(what("unpad"), back, numbers);
    }
    {
      const std::vector<T> rows =
          ExactNumbers<T>(random, shape.batch() * shape.dim);
      std::vector<T> wanted(numbers.size());
      SequenceExpandAs<T>(rows.data(), shape.dim, shape.splits, wanted.data(),
                          nullptr);
      const DeviceBuffer<T> in(rows, shape.shift);
      const DeviceBuffer<T> out(wanted.size(), shape.shift);
      REQUIRE_CUDA(LaunchSequenceExpandAs(kStream, in.data(), row_bytes, splits,
                                          out.data()));
      ExpectNear(what("expand_as"), out, wanted);
    }
  }
}

template <typename T>
void TestExpand(Random* random, const char* name) {
  // Many repeats of few rows, few of many, and none.
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>
      cases = {{{}, {}},
               {{2, 2}, {2, 3}},
               {{1, 0, 3}, {0, 4, 2}},
               {{1, 2, 1}, {1000, 129, 128}},
               {{300, 5}, {3, 500}},
               {RandomLengths(random, 100, 4), RandomLengths(random, 100, 3)}};
  for (const auto& [lengths, counts] : cases) {
    for (const int64_t dim : kDims) {
      for (const int64_t shift : {0, 1}) {
        const Shape shape{SplitsOf(lengths), dim, shift};
        const std::string what =
            std::string("expand ") + name + " " + shape.ToString();
        const std::vector<int64_t> ref_splits = SplitsOf(counts);
        std::vector<int64_t> starts(shape.splits.size());
        Expect(ExpandedStarts(shape.splits, ref_splits, starts).ok(), what);
        const int64_t expanded_rows = starts.back();
        const std::vector<T> numbers =
            ExactNumbers<T>(random, shape.num_rows() * dim);
        std::vector<T> wanted(expanded_rows * dim);
        SequenceExpand<T>(numbers.data(), dim, shape.splits, starts,
                          wanted.data(), nullptr);
        const DeviceBuffer<int64_t> device_splits(shape.splits);
        const DeviceBuffer<int64_t> device_starts(starts);
        const DeviceExpansion expansion{
            {device_splits.data(), shape.batch(), shape.num_rows()},
            {device_starts.data(), shape.batch(), expanded_rows}};
        const DeviceBuffer<T> values(numbers, shift);
        const DeviceBuffer<T> out(wanted.size(), shift);
        REQUIRE_CUDA(LaunchSequenceExpand(kStream, values.data(),
                                          dim * static_cast<int64_t>(sizeof(T)),
                                          expansion, out.data()));
        ExpectNear(what, out, wanted);
        if constexpr (!std::is_integral_v<T>) {
          const std::vector<T> upstream =
              ExactNumbers<T>(random, wanted.size());
          std::vector<T> gradient(numbers.size());
          SequenceExpandGradient<T>(upstream.data(), dim, shape.splits,
                                    ref_splits, starts, gradient.data(),
                                    nullptr);
          const DeviceBuffer<T> in(upstream, shift);
          const DeviceBuffer<T> out_gradient(gradient.size(), shift);
          const DeviceBuffer<char> scratch(SequenceExpandGradientScratchBytes(
              NumberOf<T>(), expanded_rows, dim));
          REQUIRE_CUDA(LaunchSequenceExpandGradient(
              kStream, NumberOf<T>(), in.data(), dim, expansion, scratch.data(),
              out_gradient.data()));
          ExpectNear(what + " gradient", out_gradient, gradient);
          ExpectIntact(what + " scratch", scratch);
        }
      }
    }
  }
}

// Arbitrary offsets: the result of pooling is documented, and no kernel may
// write outside of its buffer.
template <typename T>
void TestBadSplits(Random* random, const char* name) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (int round = 0; round < 30; ++round) {
    const int64_t dim = kDims[round % 4];
    const int64_t num_rows = Draw(random, 0, 900);
    const int64_t batch = Draw(random, 1, 40);
    std::vector<int64_t> offsets(batch + 1);
    for (int64_t& offset : offsets) {
      const int64_t any[] = {-1, 0, num_rows, num_rows + 1, kLeast, kMost};
      offset = round % 3 == 0 ? any[Draw(random, 0, 5)]
                              : Draw(random, -99, num_rows + 99);
    }
    const std::string what =
        std::string("bad splits ") + name + " round " + std::to_string(round);
    const std::vector<T> numbers = ExactNumbers<T>(random, num_rows * dim);
    const DeviceBuffer<T> values(numbers);
    const DeviceBuffer<int64_t> device_offsets(offsets);
    const DeviceSplits splits{device_offsets.data(), batch, num_rows};
    const DeviceBuffer<T> pooled(batch * dim);
    const DeviceBuffer<int64_t> index(batch * dim);
    for (const Combiner combiner : kCombiners) {
      const T pad_value = static_cast<T>(7.0f);
      LaunchPool<T>(combiner, values, dim, splits, pad_value, pooled, index);
      std::vector<T> wanted(batch * dim);
      std::vector<int64_t> unused(dim);
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t first = std::clamp<int64_t>(offsets[b], 0, num_rows);
        const int64_t last = std::clamp(offsets[b + 1], first, num_rows);
        const std::vector<int64_t> alone = {0, last - first};
        SequencePool<T>(combiner, numbers.data() + first * dim, dim, alone,
                        pad_value, wanted.data() + b * dim, unused.data(),
                        nullptr);
      }
      ExpectNear(what + " pool", pooled, wanted);
      ExpectIntact(what + " index", index);
      if constexpr (!std::is_integral_v<T>) {
        const DeviceBuffer<T> gradient(num_rows * dim);
        REQUIRE_CUDA(LaunchSequencePoolGradient(
            kStream, combiner, NumberOf<T>(), pooled.data(), dim, splits,
            index.data(), gradient.data()));
        ExpectIntact(what + " gradient", gradient);
      }
    }
    if constexpr (!std::is_integral_v<T>) {
      const DeviceBuffer<T> out(num_rows * dim);
      const DeviceBuffer<char> scratch(
          SequenceSoftmaxScratchBytes(NumberOf<T>(), dim, splits));
      REQUIRE_CUDA(LaunchSequenceSoftmax(kStream, NumberOf<T>(), values.data(),
                                         dim, splits, scratch.data(),
                                         out.data()));
      ExpectIntact(what + " softmax", out);
      REQUIRE_CUDA(LaunchSequenceSoftmaxGradient(
          kStream, NumberOf<T>(), values.data(), values.data(), dim, splits,
          scratch.data(), out.data()));
      ExpectIntact(what + " softmax gradient", out);
      ExpectIntact(what + " softmax scratch", scratch);
    }
  }
}

// Enough rows for a block to look up several tiles, and enough sequences for it
// to handle several. The sums are rounded; runs twice to compare the bits.
void TestLargeBatch(Random* random) {
  std::vector<int64_t> lengths = RandomLengths(random, 100000, 4);
  for (const int64_t b : {0, 1, 700, 701, 50000, 99999}) lengths[b] = 30000;
  const std::vector<int64_t> offsets = SplitsOf(lengths);
  const int64_t num_rows = offsets.back();
  const int64_t batch = offsets.size() - 1;
  std::vector<float> numbers(num_rows);
  for (float& x : numbers) {
    x = std::uniform_real_distribution<float>(0, 1)(*random);
  }
  const DeviceBuffer<float> values(numbers);
  const DeviceBuffer<int64_t> device_offsets(offsets);
  const DeviceSplits splits{device_offsets.data(), batch, num_rows};
  const DeviceBuffer<float> pooled(batch);
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMax}) {
    const DeviceBuffer<int64_t> index(combiner == Combiner::kMax ? batch : 0);
    std::vector<double> in(numbers.begin(), numbers.end());
    std::vector<double> sums(batch);
    std::vector<int64_t> rows(combiner == Combiner::kMax ? batch : 0);
    SequencePool<double>(combiner, in.data(), 1, offsets, 0, sums.data(),
                         rows.data(), nullptr);
    LaunchPool<float>(combiner, values, 1, splits, 0, pooled, index);
    ExpectNear("large batch", pooled,
               std::vector<float>(sums.begin(), sums.end()), 2e-6);
    ExpectNear("large batch index", index, rows);
    const std::vector<float> first = pooled.Download();
    LaunchPool<float>(combiner, values, 1, splits, 0, pooled, index);
    ExpectNear("large batch again", pooled, first);
  }
}

template <typename T>
void TestNumber(Random* random, const char* name) {
  TestPool<T>(random, name);
  TestCopies<T>(random, name);
  TestExpand<T>(random, name);
  TestBadSplits<T>(random, name);
  if constexpr (!std::is_integral_v<T>) TestSoftmax<T>(random, name);
}

void Run(Random* random) {
  TestNumber<Half>(random, "float16");
  TestNumber<BHalf>(random, "bfloat16");
  TestNumber<float>(random, "float32");
  TestNumber<double>(random, "float64");
  TestNumber<int32_t>(random, "int32");
  TestNumber<int64_t>(random, "int64");
  TestCopies<uint8_t>(random, "uint8");
  TestLargeBatch(random);
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  return lodestar::RunTests(argc, argv, {{"numbers", lodestar::Run}});
}
