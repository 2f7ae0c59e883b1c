#include "tf_ops/core/memory/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <new>

namespace lodestar {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPages = kHugePage / PagePool::kPage;

}  // namespace

// A huge page. Its first page holds this header.
struct PagePool::Chunk {
  Chunk* previous;
  Chunk* next;
  size_t longest;  // no free run has more pages
  std::bitset<kPages> used;

  static Chunk* Of(void* run) {
    return reinterpret_cast<Chunk*>(reinterpret_cast<uintptr_t>(run) &
                                    ~(kHugePage - 1));
  }
  size_t PageOf(void* run) const {
    return (static_cast<char*>(run) - reinterpret_cast<const char*>(this)) /
           kPage;
  }
  void* Address(size_t page) {
    return reinterpret_cast<char*>(this) + page * kPage;
  }
  // Returns the first page of the shortest free run of at least `pages` pages,
  // or 0, which is the header. Sets `longest`.
  size_t FindFree(size_t pages) {
    size_t best = 0;
    size_t best_length = kPages;
    longest = 0;
    for (size_t begin = 1, end = 1; begin < kPages; begin = end + 1) {
      for (end = begin; end < kPages && !used[end];) ++end;
      const size_t length = end - begin;
      longest = std::max(longest, length);
      if (length >= pages && length < best_length) {
        best = begin;
        best_length = length;
      }
    }
    return best;
  }
  void Mark(size_t page, size_t pages, bool as_used) {
    for (size_t i = page; i < page + pages; ++i) used[i] = as_used;
  }
};

PagePool* PagePool::OfProcess() {
  // Never destroyed: tables may outlive static objects.
  static PagePool* const pool = new PagePool();
  return pool;
}

PagePool::Chunk* PagePool::MapChunk() {
  // Twice the size contains an aligned huge page.
  void* const mapped = mmap(nullptr, 2 * kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(mapped);
  char* const chunk = reinterpret_cast<char*>(Chunk::Of(begin + kHugePage - 1));
  const size_t before = chunk - begin;
  if (before > 0) munmap(begin, before);
  if (before < kHugePage) munmap(chunk + kHugePage, kHugePage - before);
  madvise(chunk, kHugePage, MADV_HUGEPAGE);
  Chunk* const added = new (chunk) Chunk();
  added->longest = kPages - 1;
  added->used[0] = true;
  added->previous = last_;
  (last_ == nullptr ? first_ : last_->next) = added;
  last_ = added;
  ++size_;
  return added;
}

void PagePool::UnmapChunk(Chunk* chunk) {
  (chunk == first_ ? first_ : chunk->previous->next) = chunk->next;
  (chunk == last_ ? last_ : chunk->next->previous) = chunk->previous;
  --size_;
  munmap(chunk, kHugePage);
}

void* PagePool::Allocate(size_t pages) {
  MutexLock lock(&mutex_);
  Chunk* chunk = first_;
  size_t page = 0;
  for (; chunk != nullptr; chunk = chunk->next) {
    if (chunk->longest >= pages && (page = chunk->FindFree(pages)) > 0) break;
  }
  if (chunk == nullptr) {
    chunk = MapChunk();
    if (chunk == nullptr) return nullptr;
    page = 1;
  }
  chunk->Mark(page, pages, true);
  return chunk->Address(page);
}

void PagePool::Free(void* run, size_t pages) {
  Chunk* const chunk = Chunk::Of(run);
  MutexLock lock(&mutex_);
  chunk->Mark(chunk->PageOf(run), pages, false);
  chunk->longest = kPages - 1;
  if (chunk->used.count() == 1) UnmapChunk(chunk);
}

}  // namespace lodestar
