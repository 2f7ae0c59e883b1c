// PageRun: memory that is returned to the system when it is freed. A heap would
// keep it for requests of the same size, but the leaves of an index only grow
// and never need that size again. Medium runs share huge pages (PagePool).

#ifndef LODESTAR_TF_OPS_CORE_MEMORY_PAGE_RUN_H_
#define LODESTAR_TF_OPS_CORE_MEMORY_PAGE_RUN_H_

#include <cstddef>

namespace lodestar {

struct PageRun {
  void* address = nullptr;
  size_t bytes = 0;
  bool pooled = false;
};

// Allocates at least `bytes` bytes, rounded up to whole pages if they span
// several. A null address means out of memory.
PageRun AllocatePages(size_t bytes);
// Allocates at least `bytes` bytes of zeros, in whole pages. The system makes
// each page at its first write, so a call takes microseconds for any size.
PageRun AllocateZeroedPages(size_t bytes);
void FreePages(const PageRun& pages);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_MEMORY_PAGE_RUN_H_
