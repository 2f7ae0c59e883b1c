// Times the CUDA kernels of the sequence ops: one line per kernel with its
// median time, compared with a device-to-device copy of as many bytes. Counts
// each byte that must be read or written once. docs/internals/kernels.md has
// the command line.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda/device_buffer.h"
#include "tests/cuda/sequence_data.h"
#include "tf_ops/core/base/combiner.h"
#include "tf_ops/kernels/sequence/cuda/number.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"

namespace lodestar {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kOffsetBytes = sizeof(int64_t);

// Median of the microseconds of `launch`.
template <typename Launch>
double Microseconds(cudaStream_t stream, const Launch& launch) {
  cudaEvent_t begin, end;
  REQUIRE_CUDA(cudaEventCreate(&begin));
  REQUIRE_CUDA(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 24; ++i) {
    REQUIRE_CUDA(cudaEventRecord(begin, stream));
    REQUIRE_CUDA(launch());
    REQUIRE_CUDA(cudaEventRecord(end, stream));
    REQUIRE_CUDA(cudaEventSynchronize(end));
    float milliseconds = 0;
    REQUIRE_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 3) times.push_back(milliseconds * 1000);  // warmed up
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(times.begin(), times.begin() + times.size() / 2,
                   times.end());
  return times[times.size() / 2];
}

class Benchmark {
 public:
  Benchmark() { REQUIRE_CUDA(cudaStreamCreate(&stream_)); }
  ~Benchmark() { cudaStreamDestroy(stream_); }

  cudaStream_t stream() const { return stream_; }

  template <typename Launch>
  void Line(const char* name, int64_t bytes, const Launch& launch) {
    const DeviceBuffer<char> from(bytes / 2);
    const DeviceBuffer<char> to(bytes / 2);
    const double copy = Microseconds(stream_, [&] {
      return cudaMemcpyAsync(to.data(), from.data(), bytes / 2,
                             cudaMemcpyDeviceToDevice, stream_);
    });
    const double time = Microseconds(stream_, launch);
    std::printf("  %-26s %10.1f us %9.1f MB %8.1f GB/s   copy %8.1f GB/s\n",
                name, time, bytes / 1e6, bytes / time / 1e3,
                bytes / copy / 1e3);
  }

 private:
  cudaStream_t stream_;
};

// About num_rows rows in sequences of mean length 4, one of them 10,000 long.
void RunShape(Random* random, int64_t num_rows, int64_t dim) {
  Benchmark run;
  std::vector<int64_t> lengths = RandomLengths(random, num_rows / 4, 4);
  lengths[lengths.size() / 2] = 10000;
  const std::vector<int64_t> offsets = SplitsOf(lengths);
  const int64_t batch = offsets.size() - 1;
  num_rows = offsets.back();
  const int64_t steps = 8;
  std::printf("%lld rows of %lld float32, %lld sequences, one of 10000 rows\n",
              static_cast<long long>(num_rows), static_cast<long long>(dim),
              static_cast<long long>(batch));
  const int64_t rows_bytes = num_rows * dim * kFloatBytes;
  const int64_t pooled_bytes = batch * dim * kFloatBytes;
  const int64_t index_bytes = batch * dim * kOffsetBytes;
  const int64_t splits_bytes = (batch + 1) * kOffsetBytes;
  const Number number = Number::kFloat32;
  const DeviceBuffer<int64_t> device_offsets(offsets);
  const DeviceSplits splits{device_offsets.data(), batch, num_rows};
  const DeviceBuffer<float> values(ExactNumbers<float>(random, num_rows * dim));
  const DeviceBuffer<float> rows(num_rows * dim);
  const DeviceBuffer<float> pooled(batch * dim);
  const DeviceBuffer<int64_t> index(batch * dim);
  const float pad_value = 0;

  const auto pool = [&](const char* name, Combiner combiner, int64_t bytes) {
    const DeviceBuffer<char> scratch(
        SequencePoolScratchBytes(combiner, number, num_rows, dim));
    run.Line((std::string("pool ") + name).c_str(), bytes, [&] {
      return LaunchSequencePool(run.stream(), combiner, number, values.data(),
                                dim, splits, &pad_value, scratch.data(),
                                pooled.data(), index.data());
    });
    run.Line((std::string("pool ") + name + " gradient").c_str(), bytes, [&] {
      return LaunchSequencePoolGradient(run.stream(), combiner, number,
                                        pooled.data(), dim, splits,
                                        index.data(), rows.data());
    });
  };
  pool("sum", Combiner::kSum, rows_bytes + pooled_bytes + splits_bytes);
  pool("mean", Combiner::kMean, rows_bytes + pooled_bytes + splits_bytes);
  pool("max", Combiner::kMax,
       rows_bytes + pooled_bytes + splits_bytes + index_bytes);

  {
    const DeviceBuffer<char> scratch(
        SequenceSoftmaxScratchBytes(number, dim, splits));
    run.Line("softmax", 2 * rows_bytes + splits_bytes, [&] {
      return LaunchSequenceSoftmax(run.stream(), number, values.data(), dim,
                                   splits, scratch.data(), rows.data());
    });
    const DeviceBuffer<float> gradient(num_rows * dim);
    run.Line("softmax gradient", 3 * rows_bytes + splits_bytes, [&] {
      return LaunchSequenceSoftmaxGradient(run.stream(), number, rows.data(),
                                           values.data(), dim, splits,
                                           scratch.data(), gradient.data());
    });
  }

  const int64_t row_bytes = dim * kFloatBytes;
  run.Line("expand_as", rows_bytes + pooled_bytes + splits_bytes, [&] {
    return LaunchSequenceExpandAs(run.stream(), pooled.data(), row_bytes,
                                  splits, rows.data());
  });

  // Every row is a sequence; its repeats are the rows of a sequence above.
  std::vector<int64_t> single(batch + 1);
  for (int64_t b = 0; b <= batch; ++b) single[b] = b;
  const DeviceBuffer<int64_t> singles(single);
  const DeviceExpansion expansion{{singles.data(), batch, batch}, splits};
  run.Line("expand", rows_bytes + pooled_bytes + 2 * splits_bytes, [&] {
    return LaunchSequenceExpand(run.stream(), pooled.data(), row_bytes,
                                expansion, rows.data());
  });
  {
    const DeviceBuffer<char> scratch(
        SequenceExpandGradientScratchBytes(number, num_rows, dim));
    run.Line(
        "expand gradient", rows_bytes + pooled_bytes + 2 * splits_bytes, [&] {
          return LaunchSequenceExpandGradient(run.stream(), number,
                                              values.data(), dim, expansion,
                                              scratch.data(), pooled.data());
        });
  }

  // Padded to the longest sequence, the tensor would be mostly padding.
  std::vector<int64_t> short_lengths = lengths;
  for (int64_t& length : short_lengths) length = std::min(length, steps);
  const std::vector<int64_t> short_offsets = SplitsOf(short_lengths);
  const int64_t short_rows = short_offsets.back();
  const DeviceBuffer<int64_t> device_short_offsets(short_offsets);
  const DeviceSplits short_splits{device_short_offsets.data(), batch,
                                  short_rows};
  const DeviceBuffer<float> padded(batch * steps * dim);
  const int64_t padded_bytes = batch * steps * row_bytes;
  run.Line("pad", short_rows * row_bytes + padded_bytes + splits_bytes, [&] {
    return LaunchSequencePad(run.stream(), values.data(), row_bytes,
                             short_splits, steps, nullptr, &pad_value,
                             kFloatBytes, padded.data());
  });
  run.Line("unpad", 2 * short_rows * row_bytes + splits_bytes, [&] {
    return LaunchSequenceUnpad(run.stream(), padded.data(), steps, row_bytes,
                               short_splits, rows.data());
  });
}

int Main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no CUDA device\n");
    return 0;
  }
  cudaDeviceProp device;
  REQUIRE_CUDA(cudaGetDeviceProperties(&device, 0));
  std::printf("%s, compute capability %d.%d\n", device.name, device.major,
              device.minor);
  Random random(std::random_device{}());
  RunShape(&random, 65536, 32);
  RunShape(&random, 4000000, 32);
  RunShape(&random, 4000000, 1);
  return 0;
}

}  // namespace
}  // namespace lodestar

int main() { return lodestar::Main(); }
