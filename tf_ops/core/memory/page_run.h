// PageRun: memory that goes back to the system, page by page, when it is freed.
//
// A heap keeps what is freed for what asks for the same size; the leaves of an
// index grow, and never come back to a size that they had.

#ifndef LODESTAR_TF_OPS_CORE_MEMORY_PAGE_RUN_H_
#define LODESTAR_TF_OPS_CORE_MEMORY_PAGE_RUN_H_

#include <cstddef>

namespace lodestar {

struct PageRun {
  void* address = nullptr;
  size_t bytes = 0;
};

// At least `bytes` bytes, to the end of the last page where they take some
// pages; null address: out of memory.
PageRun AllocatePages(size_t bytes);
void FreePages(const PageRun& pages);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_MEMORY_PAGE_RUN_H_
