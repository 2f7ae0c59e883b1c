// Blocks: memory that goes back to the system, page by page, when it is freed.
//
// A heap keeps what is freed for blocks of the same size; the leaves of an
// index grow, and never come back to a size that they had.

#ifndef LODESTAR_TF_OPS_CORE_MEMORY_BLOCK_H_
#define LODESTAR_TF_OPS_CORE_MEMORY_BLOCK_H_

#include <cstddef>

namespace lodestar {

struct Block {
  void* address = nullptr;
  size_t bytes = 0;
};

// At least `bytes` bytes, up to the end of the last page of a block of some
// pages; null address: out of memory.
Block AllocateBlock(size_t bytes);
void FreeBlock(const Block& block);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_MEMORY_BLOCK_H_
