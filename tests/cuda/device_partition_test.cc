// Compares the partitioning of ids and rows in GPU memory with IdParts on
// random input. Needs neither Bazel nor TensorFlow (see
// docs/internals/kernels.md). Skipped without a device.

#include "tf_ops/core/device/batch/device_partition.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/device_tables.h"
#include "tests/cuda/run_tests.h"
#include "tf_ops/core/base/id_parts.h"

namespace lodestar {
namespace {

void TestPartition(Random* random) {
  cudaStream_t stream;
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  StreamAllocator memory(stream);
  const DeviceStream on = {stream, &memory};
  for (int round = 0; round < 20; ++round) {
    const int num_parts = static_cast<int>(Draw(random, 1, 5));
    const int64_t row_bytes = 2 * Draw(random, 1, 20);
    const Ids ids =
        round == 0 ? Ids()
                   : SomeIds(random, Draw(random, 1, few ? 3000 : 300000), 500);
    const int64_t count = static_cast<int64_t>(ids.size());
    std::vector<char> rows(count * row_bytes);
    for (char& byte : rows) byte = static_cast<char>(Draw(random, -128, 127));
    Ids places(ids.size());
    const IdParts wanted(ids, num_parts, places, nullptr);
    const DeviceBuffer<int64_t> device_ids(ids);
    const DeviceBuffer<int64_t> device_places(count);
    const DeviceBuffer<char> device_rows(rows);
    DevicePartition got;
    ExpectOk(got.Init(on, {device_ids.data(), count}, num_parts,
                      device_places.data()),
             "partition");
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    Expect(device_places.Download() == places, "partition: places");
    std::vector<std::vector<char>> wanted_rows;
    std::vector<std::unique_ptr<DeviceBuffer<char>>> got_rows;
    std::vector<char*> wanted_data;
    std::vector<void*> got_data;
    for (int p = 0; p < num_parts; ++p) {
      Expect(got.size(p) == wanted.size(p), "partition: sizes");
      wanted_rows.emplace_back(wanted.size(p) * row_bytes);
      got_rows.push_back(
          std::make_unique<DeviceBuffer<char>>(wanted.size(p) * row_bytes));
      got_data.push_back(got_rows[p]->data());
    }
    for (std::vector<char>& part : wanted_rows) {
      wanted_data.push_back(part.data());
    }
    wanted.SplitRows(rows.data(), row_bytes, wanted_data, nullptr);
    ExpectOk(got.SplitRows(on, device_rows.data(), row_bytes, got_data),
             "partition: rows");
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    for (int p = 0; p < num_parts; ++p) {
      Expect(got_rows[p]->Download() == wanted_rows[p], "partition: rows");
      Expect(got_rows[p]->ZonesAreIntact(), "partition: outside");
    }
  }
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  using namespace lodestar;
  return RunTests(argc, argv, {{"partition", TestPartition}});
}
