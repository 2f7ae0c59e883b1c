#include "tf_ops/core/memory/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace lodestar {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kSmallest = int64_t{64} << 10;
constexpr int64_t kLargest = int64_t{64} << 20;

int64_t RoundUp(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Arena::~Arena() {
  for (const Mapping& m : mappings_) munmap(m.address, m.bytes);
}

void* Arena::Allocate(int64_t bytes) {
  const int64_t unit = bytes < kPage ? 64 : kPage;
  bytes = RoundUp(bytes, 64);
  MutexLock lock(&mutex_);
  const int64_t skipped =
      std::min(left_, -reinterpret_cast<intptr_t>(next_) & (unit - 1));
  next_ += skipped;
  left_ -= skipped;
  if (bytes > left_) {
    // An eighth of the mapped size keeps both the unused tail and the number of
    // mappings small.
    int64_t size = std::clamp(mapped_ / 8, kSmallest, kLargest);
    size = RoundUp(std::max(size, bytes), kSmallest);
    if (size >= kHugePage) size = RoundUp(size, kHugePage);
    try {
      mappings_.reserve(mappings_.size() + 1);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    if (size >= kHugePage) madvise(address, size, MADV_HUGEPAGE);
    mappings_.push_back({address, size});
    mapped_ += size;
    next_ = static_cast<char*>(address);
    left_ = size;
  }
  void* memory = next_;
  next_ += bytes;
  left_ -= bytes;
  return memory;
}

bool Arena::Release(void* memory, int64_t bytes) {
  const intptr_t begin = reinterpret_cast<intptr_t>(memory);
  const intptr_t first = RoundUp(begin, kPage);
  const intptr_t end = (begin + bytes) / kPage * kPage;
  return end <= first || madvise(reinterpret_cast<void*>(first), end - first,
                                 MADV_DONTNEED) == 0;
}

}  // namespace lodestar
