#include "tf_ops/core/memory/page_run.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace lodestar {
namespace {

constexpr size_t kPage = 4096;
// From this size on, the unused rest of a page and the system call are cheap.
constexpr size_t kSmallestMapping = 2 * kPage;

}  // namespace

PageRun AllocatePages(size_t bytes) {
  if (bytes < kSmallestMapping) {
    void* memory = std::malloc(bytes);
    return {memory, memory == nullptr ? 0 : bytes};
  }
  bytes = (bytes + kPage - 1) / kPage * kPage;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return PageRun();
  return {memory, bytes};
}

PageRun AllocateZeroedPages(size_t bytes) {
  return AllocatePages(std::max(bytes, kSmallestMapping));
}

void FreePages(const PageRun& pages) {
  if (pages.bytes < kSmallestMapping) {
    std::free(pages.address);
  } else {
    munmap(pages.address, pages.bytes);
  }
}

}  // namespace lodestar
