// Fibers switch stacks, which a checked longjmp reports as a fault.
#undef _FORTIFY_SOURCE

#include "tests/cuda/emulation/cuda_runtime.h"

#include <setjmp.h>
#include <ucontext.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

struct EmulatedStream {
  // Whether a copy from pageable memory was not waited for.
  std::atomic<bool> reads_pageable{false};
};
struct EmulatedEvent {};

namespace {

// Allocations of page-locked memory.
struct PageLocked {
  std::mutex mutex;
  std::map<const char*, size_t> sizes;
};

PageLocked& PageLockedMemory() {
  static auto* const locked = new PageLocked;
  return *locked;
}

bool IsPageLocked(const void* memory) {
  PageLocked& locked = PageLockedMemory();
  const char* const at = static_cast<const char*>(memory);
  std::lock_guard<std::mutex> lock(locked.mutex);
  const auto after = locked.sizes.upper_bound(at);
  if (after == locked.sizes.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return at < begin + bytes;
}

// The null stream is one, too.
EmulatedStream& StateOf(cudaStream_t stream) {
  static auto* const none = new EmulatedStream;
  return stream == nullptr ? *none : *stream;
}

}  // namespace

namespace lodestar {

__thread ThreadPlace emulated_thread;
__thread ThreadPlace emulated_block;
__thread dim3 emulated_grid;

namespace {

constexpr unsigned kWarpSize = 32;
constexpr size_t kStackBytes = size_t{128} << 10;

// The block running on this host thread.
class Block {
 public:
  void Run(unsigned threads, const std::function<void()>& body) {
    body_ = &body;
    while (fibers_.size() < threads) AddFiber();
    live_ = threads;
    arrived_ = 0;
    for (unsigned t = 0; t < threads; ++t) {
      fibers_[t]->done = false;
      fibers_[t]->turn = 0;
    }
    while (live_ > 0) {
      for (unsigned t = 0; t < threads; ++t) {
        if (!fibers_[t]->done) Resume(t);
      }
    }
  }

  uint64_t Shuffle(uint64_t value, int lane) {
    // A thread that is one turn ahead writes to the other element.
    const unsigned turn = fibers_[running_]->turn++ % 2;
    fibers_[running_]->given[turn] = value;
    const unsigned warp = running_ / kWarpSize * kWarpSize;
    Yield();
    return fibers_[warp + static_cast<unsigned>(lane) % kWarpSize]->given[turn];
  }

  unsigned Ballot(bool value) {
    const unsigned turn = fibers_[running_]->turn++ % 2;
    fibers_[running_]->given[turn] = value;
    const unsigned warp = running_ / kWarpSize * kWarpSize;
    Yield();
    unsigned result = 0;
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      if (fibers_[warp + lane]->given[turn] != 0) result |= 1u << lane;
    }
    return result;
  }

  int SyncCount(bool value) {
    const unsigned round = round_;
    count_[round % 2] += value;
    if (++arrived_ == live_) {
      arrived_ = 0;
      count_[(round + 1) % 2] = 0;
      ++round_;
    }
    while (round_ == round) Yield();
    return count_[round % 2];
  }

 private:
  struct Fiber {
    jmp_buf place;
    std::unique_ptr<char[]> stack{new char[kStackBytes]};
    bool done = false;
    unsigned turn = 0;
    uint64_t given[2] = {};
  };

  void AddFiber() {
    running_ = static_cast<unsigned>(fibers_.size());
    fibers_.push_back(std::make_unique<Fiber>());
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = fibers_.back()->stack.get();
    start.uc_stack.ss_size = kStackBytes;
    makecontext(&start, &Block::RunFiber, 0);
    if (_setjmp(scheduler_) == 0) setcontext(&start);
  }
  // Body of a fiber, which never returns: runs the same thread of every block.
  static void RunFiber();
  // Does not use swapcontext, which makes a system call every time.
  void Resume(unsigned t) {
    running_ = t;
    emulated_thread.x = t;
    if (_setjmp(scheduler_) == 0) _longjmp(fibers_[t]->place, 1);
  }
  void Yield() {
    if (_setjmp(fibers_[running_]->place) == 0) _longjmp(scheduler_, 1);
  }

  const std::function<void()>* body_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  jmp_buf scheduler_;
  unsigned running_ = 0;
  unsigned live_ = 0;
  unsigned arrived_ = 0;
  unsigned round_ = 0;
  int count_[2] = {0, 0};
};

thread_local Block block;

void Block::RunFiber() {
  for (;;) {
    block.Yield();
    (*block.body_)();
    block.fibers_[block.running_]->done = true;
    --block.live_;
  }
}

}  // namespace

void EmulateBlocks(dim3 blocks, unsigned threads,
                   const std::function<void()>& body) {
  emulated_grid = blocks;
  for (unsigned y = 0; y < blocks.y; ++y) {
    for (unsigned x = 0; x < blocks.x; ++x) {
      emulated_block = {x, y};
      block.Run(threads, body);
    }
  }
}

uint64_t EmulateShuffle(uint64_t value, int lane) {
  return block.Shuffle(value, lane);
}

int EmulateSyncCount(bool value) { return block.SyncCount(value); }

void EmulateWork(EmulatedStream* stream) {
  if (!StateOf(stream).reads_pageable) return;
  std::fprintf(stderr, "a copy from pageable memory was not waited for\n");
  std::abort();
}

}  // namespace lodestar

unsigned __ballot_sync(unsigned, bool value) {
  return lodestar::block.Ballot(value);
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory"
         : error == cudaSuccess             ? "no error"
                                            : "invalid argument";
}

cudaError_t cudaGetDeviceCount(int* count) {
  const char* const text = std::getenv("LODESTAR_EMULATED_GPUS");
  *count = text == nullptr ? 1 : std::atoi(text);
  return cudaSuccess;
}

cudaError_t EmulateMalloc(void** memory, size_t bytes) {
  constexpr size_t kAlignment = 256;
  constexpr int kPattern = 0xa5;
  if (posix_memalign(memory, kAlignment, bytes) != 0) {
    return cudaErrorMemoryAllocation;
  }
  std::memset(*memory, kPattern, bytes);
  return cudaSuccess;
}

cudaError_t EmulateFree(void* memory) {
  {
    PageLocked& locked = PageLockedMemory();
    std::lock_guard<std::mutex> lock(locked.mutex);
    locked.sizes.erase(static_cast<char*>(memory));
  }
  std::free(memory);
  return cudaSuccess;
}

cudaError_t EmulateMallocHost(void** memory, size_t bytes) {
  const cudaError_t status = EmulateMalloc(memory, bytes);
  if (status != cudaSuccess) return status;
  PageLocked& locked = PageLockedMemory();
  std::lock_guard<std::mutex> lock(locked.mutex);
  locked.sizes[static_cast<char*>(*memory)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  lodestar::EmulateWork(stream);
  if (kind == cudaMemcpyHostToDevice && bytes > 0 && !IsPageLocked(from)) {
    StateOf(stream).reads_pageable = true;
  }
  return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  StateOf(stream).reads_pageable = false;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  lodestar::EmulateWork(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
