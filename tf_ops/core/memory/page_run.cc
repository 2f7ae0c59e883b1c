#include "tf_ops/core/memory/page_run.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "tf_ops/core/memory/page_pool.h"

namespace lodestar {
namespace {

constexpr size_t kPage = PagePool::kPage;
// From this size on, the unused rest of a page and the system call are cheap.
constexpr size_t kSmallestMapping = 2 * kPage;
// Runs of medium size are pooled once this process has mapped more than the TLB
// covers in small pages. Before that, a partly used huge page would be a large
// part of a table's memory.
constexpr size_t kSmallestPooled = 16 * kPage;
constexpr size_t kPooledFrom = size_t{16} << 20;

// The bytes of all runs that are not on the heap.
std::atomic<size_t> mapped_bytes{0};

size_t RoundUp(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

PageRun MapPages(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return PageRun();
  mapped_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return {memory, bytes};
}

}  // namespace

PageRun AllocatePages(size_t bytes) {
  if (bytes < kSmallestMapping) {
    void* memory = std::malloc(bytes);
    return {memory, memory == nullptr ? 0 : bytes};
  }
  bytes = RoundUp(bytes);
  if (bytes < kSmallestPooled || bytes > PagePool::kMostPages * kPage ||
      mapped_bytes.load(std::memory_order_relaxed) < kPooledFrom) {
    return MapPages(bytes);
  }
  void* memory = PagePool::OfProcess()->Allocate(bytes / kPage);
  if (memory == nullptr) return PageRun();
  mapped_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return {memory, bytes, /*pooled=*/true};
}

PageRun AllocateZeroedPages(size_t bytes) {
  return MapPages(RoundUp(std::max(bytes, kSmallestMapping)));
}

void FreePages(const PageRun& pages) {
  if (pages.bytes < kSmallestMapping) {
    std::free(pages.address);
    return;
  }
  mapped_bytes.fetch_sub(pages.bytes, std::memory_order_relaxed);
  if (pages.pooled) {
    PagePool::OfProcess()->Free(pages.address, pages.bytes / kPage);
  } else {
    munmap(pages.address, pages.bytes);
  }
}

}  // namespace lodestar
