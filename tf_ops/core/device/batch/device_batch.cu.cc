#include "tf_ops/core/device/batch/device_batch.h"

#include <algorithm>

#include "tf_ops/core/device/device_index.h"
#include "tf_ops/core/device/device_launch.h"
#include "tf_ops/core/device/device_rows.h"
#include "tf_ops/core/device/device_sort.h"
#include "tf_ops/core/device/row_transfer.h"

namespace lodestar {
namespace {

constexpr uint32_t kNone = 0xffffffffu;

// State of a deduplication. A cell of `owners` holds the index of one of
// several equal ids: at the end the smallest or the largest.
struct UniqueCall {
  DeviceStore::Ids ids;
  bool last;
  bool has_padding;
  int64_t padding_id;
  const bool* padded;
  uint32_t mask;
  uint64_t hash_key;
  uint32_t* owners;   // [mask + 1]
  uint32_t* cells;    // [N], kNone for padding
  uint32_t* numbers;  // [N], 1 for owners, then their prefix sums
  int64_t* unique;
  int64_t* occurrences;
  int64_t* positions;
  int64_t* count;

  // Reverses indices if the largest one is wanted.
  __device__ uint32_t Number(int64_t i) const {
    return static_cast<uint32_t>(last ? ids.size - 1 - i : i);
  }
};

__global__ void ClaimKernel(UniqueCall call) {
  const int64_t i = ThreadNumber();
  const bool mine = i < SizeOf(call.ids);
  const int64_t id = mine ? call.ids.data[i] : 0;
  const bool padding = mine && ((call.has_padding && id == call.padding_id) ||
                                (call.padded != nullptr && call.padded[i]));
  if (call.has_padding || call.padded != nullptr) {
    CountBlock(padding, reinterpret_cast<unsigned long long*>(call.count + 1));
  }
  if (padding) call.cells[i] = kNone;
  if (!mine || padding) return;
  const uint32_t number = call.Number(i);
  uint32_t cell = static_cast<uint32_t>(
                      KeyedHash(static_cast<uint64_t>(id), call.hash_key)) &
                  call.mask;
  while (true) {
    volatile uint32_t* const at = call.owners + cell;
    uint32_t owner = *at;
    if (owner == kNone) owner = atomicCAS(call.owners + cell, kNone, number);
    if (owner == kNone) break;
    // Equal numbers mean equal ids, whichever index this is.
    if (call.ids.data[call.Number(owner)] == id) {
      if (number < owner) atomicMin(call.owners + cell, number);
      break;
    }
    cell = (cell + 1) & call.mask;
  }
  call.cells[i] = cell;
}

__global__ void MarkOwnersKernel(UniqueCall call) {
  const int64_t i = ThreadNumber();
  if (i >= call.ids.size) return;
  const uint32_t cell = i < SizeOf(call.ids) ? call.cells[i] : kNone;
  call.numbers[i] =
      cell != kNone && call.owners[cell] == call.Number(i) ? 1u : 0u;
}

__global__ void WriteOwnersKernel(UniqueCall call) {
  const int64_t i = ThreadNumber();
  if (i >= call.ids.size) return;
  const uint32_t sum = call.numbers[i];
  if (i == call.ids.size - 1) *call.count = sum;
  if (sum == (i == 0 ? 0 : call.numbers[i - 1])) return;
  const uint32_t place = sum - 1;
  call.unique[place] = call.ids.data[i];
  call.occurrences[place] = i;
  call.owners[call.cells[i]] = place;
}

__global__ void WritePositionsKernel(UniqueCall call) {
  const int64_t i = ThreadNumber();
  if (i >= SizeOf(call.ids)) return;
  const uint32_t cell = call.cells[i];
  call.positions[i] =
      cell == kNone ? -1 : static_cast<int64_t>(call.owners[cell]);
}

__global__ void CountPositionsKernel(const int64_t* positions, int64_t count,
                                     uint32_t* occurrences) {
  const int64_t i = ThreadNumber();
  if (i < count && positions[i] >= 0) atomicAdd(occurrences + positions[i], 1u);
}

}  // namespace

Status DeviceBatch::Unique(const DeviceStream& on, const DeviceStore::Ids& ids,
                           const int64_t* padding_id, Which which,
                           const bool* padded) {
  constexpr const char* kFor = "the unique ids of a batch";
  LODESTAR_RETURN_IF_ERROR(CheckBatchSize("ids", ids.size));
  const int64_t n = ids.size;
  LODESTAR_RETURN_IF_ERROR(unique_.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(occurrences_.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(positions_.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(count_.Allocate(on.memory, 2, kFor));
  LODESTAR_RETURN_IF_ERROR(count_.Fill(on, 0));
  if (n == 0) return Status();
  DeviceArray<uint32_t> owners;
  DeviceArray<uint32_t> cells;
  DeviceArray<uint32_t> numbers;
  LODESTAR_RETURN_IF_ERROR(
      owners.Allocate(on.memory, int64_t{2} << BitsFor(n), kFor));
  LODESTAR_RETURN_IF_ERROR(cells.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(numbers.Allocate(on.memory, n, kFor));
  LODESTAR_RETURN_IF_ERROR(owners.Fill(on, 0xff));
  UniqueCall call = {};
  call.ids = ids;
  call.last = which == Which::kLast;
  call.has_padding = padding_id != nullptr;
  call.padding_id = padding_id != nullptr ? *padding_id : 0;
  call.padded = padded;
  call.mask = static_cast<uint32_t>(owners.size() - 1);
  call.hash_key = ProcessHashKey();
  call.owners = owners.data();
  call.cells = cells.data();
  call.numbers = numbers.data();
  call.unique = unique_.data();
  call.occurrences = occurrences_.data();
  call.positions = positions_.data();
  call.count = count_.data();
  LODESTAR_CUDA_TRY(Launch(ClaimKernel, n, on.stream, call));
  LODESTAR_CUDA_TRY(Launch(MarkOwnersKernel, n, on.stream, call));
  LODESTAR_RETURN_IF_ERROR(InclusiveSum(on, n, numbers.data(), numbers.data()));
  LODESTAR_CUDA_TRY(Launch(WriteOwnersKernel, n, on.stream, call));
  return CudaStatus(Launch(WritePositionsKernel, n, on.stream, call), kFor);
}

Status DeviceBatch::Copy(const DeviceStream& on, int64_t count,
                         int64_t* unique_ids, int64_t* positions) const {
  LODESTAR_RETURN_IF_ERROR(
      CopyOnDevice(on, unique_.data(),
                   count * static_cast<int64_t>(sizeof(int64_t)), unique_ids));
  return CopyOnDevice(on, positions_.data(), positions_.bytes(), positions);
}

Status DeviceBatch::CountOccurrences(const DeviceStream& on, int64_t count,
                                     DeviceArray<uint32_t>* occurrences) const {
  constexpr const char* kFor = "the occurrences of ids";
  LODESTAR_RETURN_IF_ERROR(occurrences->Allocate(on.memory, count, kFor));
  LODESTAR_RETURN_IF_ERROR(occurrences->Fill(on, 0));
  return CudaStatus(
      Launch(CountPositionsKernel, positions_.size(), on.stream,
             positions_.data(), positions_.size(), occurrences->data()),
      kFor);
}

Status DeviceBatch::Count(const DeviceStream& on, int64_t* count,
                          int64_t* padding) const {
  int64_t counts[2] = {0, 0};
  LODESTAR_RETURN_IF_ERROR(
      CopyToHost(on, count_.data(), sizeof(counts), counts));
  *count = counts[0];
  if (padding != nullptr) *padding = counts[1];
  return Status();
}

}  // namespace lodestar
