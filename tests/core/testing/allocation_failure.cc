#include "tests/core/testing/allocation_failure.h"

#include <malloc.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Number of allocations before the one that fails; negative afterwards.
std::atomic<int64_t> left{kNever};

std::atomic<size_t> largest{0};

bool Fails(size_t size) {
  if (size > largest.load(std::memory_order_relaxed)) largest.store(size);
  if (left.load(std::memory_order_relaxed) == kNever) return false;
  return left.fetch_sub(1, std::memory_order_relaxed) == 0;
}

}  // namespace

// The linker's --wrap redirects core's calls here.
extern "C" {
void* __real_malloc(size_t size);
void __real_free(void* memory);
void* __real_mmap(void* address, size_t size, int protection, int flags, int fd,
                  off_t offset);

void* __wrap_malloc(size_t size) {
  return Fails(size) ? nullptr : __real_malloc(size);
}

void __wrap_free(void* memory) {
  if (memory != nullptr) std::memset(memory, 0xff, malloc_usable_size(memory));
  __real_free(memory);
}

void* __wrap_mmap(void* address, size_t size, int protection, int flags, int fd,
                  off_t offset) {
  if (Fails(size)) return MAP_FAILED;
  return __real_mmap(address, size, protection, flags, fd, offset);
}
}

void* operator new(size_t size) {
  void* memory = Fails(size) ? nullptr : __real_malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// The standard library's version calls the operator above, but the
// versions of sanitizers do not.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Fails(size) ? nullptr : __real_malloc(size == 0 ? 1 : size);
}
void* operator new(size_t size, std::align_val_t alignment,
                   const std::nothrow_t&) noexcept {
  const size_t unit = static_cast<size_t>(alignment);
  return Fails(size) ? nullptr
                     : aligned_alloc(unit, (size + unit - 1) / unit * unit);
}
void* operator new(size_t size, std::align_val_t alignment) {
  void* memory = operator new(size, alignment, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new[](size_t size, const std::nothrow_t& none) noexcept {
  return operator new(size, none);
}
void operator delete(void* memory) noexcept { __real_free(memory); }
void operator delete(void* memory, size_t) noexcept { __real_free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  __real_free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  __real_free(memory);
}
void operator delete[](void* memory) noexcept { __real_free(memory); }
void operator delete[](void* memory, size_t) noexcept { __real_free(memory); }

namespace lodestar {

FailAllocation::FailAllocation(int64_t count) { left.store(count); }
FailAllocation::~FailAllocation() { left.store(kNever); }
bool FailAllocation::failed() const { return left.load() < 0; }

LargestAllocation::LargestAllocation() { largest.store(0); }
int64_t LargestAllocation::bytes() const { return largest.load(); }

}  // namespace lodestar
