#include "tf_ops/core/memory/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "tests/core/testing/allocation_failure.h"

namespace lodestar {
namespace {

constexpr size_t kPage = PagePool::kPage;

TEST(PagePoolTest, ReusesAFreedRun) {
  PagePool pool;
  char* const first = static_cast<char*>(pool.Allocate(3));
  void* const second = pool.Allocate(2);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % kPage, 0u);
  pool.Free(first, 3);
  EXPECT_EQ(pool.Allocate(2), first);
  EXPECT_EQ(pool.Allocate(1), first + 2 * kPage);
  EXPECT_EQ(pool.size(), 1u);
  pool.Free(first, 2);
  pool.Free(first + 2 * kPage, 1);
  pool.Free(second, 2);
  EXPECT_EQ(pool.size(), 0u);
}

TEST(PagePoolTest, FreedNeighborsAreOneRun) {
  PagePool pool;
  std::vector<char*> runs;
  // The header and three of the longest runs leave 127 pages.
  for (int i = 0; i < 3; ++i) {
    runs.push_back(static_cast<char*>(pool.Allocate(PagePool::kMostPages)));
  }
  char* const left = static_cast<char*>(pool.Allocate(127));
  EXPECT_EQ(pool.size(), 1u);
  void* const other = pool.Allocate(1);
  EXPECT_EQ(pool.size(), 2u);
  pool.Free(runs[1], PagePool::kMostPages);
  pool.Free(runs[0], PagePool::kMostPages);
  char* const again = static_cast<char*>(pool.Allocate(100));
  EXPECT_EQ(again, runs[0]);
  EXPECT_EQ(pool.Allocate(PagePool::kMostPages), again + 100 * kPage);
  pool.Free(again, 100);
  pool.Free(again + 100 * kPage, PagePool::kMostPages);
  pool.Free(runs[2], PagePool::kMostPages);
  pool.Free(left, 127);
  EXPECT_EQ(pool.size(), 1u);
  pool.Free(other, 1);
  EXPECT_EQ(pool.size(), 0u);
}

TEST(PagePoolTest, TakesTheShortestFreeRunThatIsLongEnough) {
  PagePool pool;
  constexpr size_t kPages[] = {5, 1, 2, 1, 3, 1};
  std::vector<void*> runs;
  for (const size_t pages : kPages) runs.push_back(pool.Allocate(pages));
  for (const int i : {0, 2, 4}) pool.Free(runs[i], kPages[i]);
  EXPECT_EQ(pool.Allocate(2), runs[2]);
  EXPECT_EQ(pool.Allocate(3), runs[4]);
  EXPECT_EQ(pool.Allocate(4), runs[0]);
  pool.Free(runs[0], 4);
  for (int i = 1; i < 6; ++i) pool.Free(runs[i], kPages[i]);
  EXPECT_EQ(pool.size(), 0u);
}

TEST(PagePoolTest, RunsAreDisjointAndKeepTheirContent) {
  PagePool pool;
  std::mt19937_64 rng(1);
  struct Run {
    size_t pages;
    char content;
  };
  std::map<char*, Run> runs;
  size_t used = 0;
  size_t most = 0;
  for (int i = 0; i < 4000; ++i) {
    if (runs.empty() || rng() % 100 < (i / 500 % 2 == 0 ? 70 : 30)) {
      const size_t pages = 1 + rng() % PagePool::kMostPages;
      char* const run = static_cast<char*>(pool.Allocate(pages));
      ASSERT_NE(run, nullptr);
      const auto next = runs.lower_bound(run);
      if (next != runs.end()) {
        ASSERT_LE(run + pages * kPage, next->first);
      }
      if (next != runs.begin()) {
        const auto& [before, of] = *std::prev(next);
        ASSERT_LE(before + of.pages * kPage, run);
      }
      const char content = static_cast<char>(i);
      for (size_t p = 0; p < pages; ++p) run[p * kPage + p] = content;
      runs[run] = {pages, content};
      used += pages;
    } else {
      auto freed = runs.begin();
      std::advance(freed, rng() % runs.size());
      const auto& [run, of] = *freed;
      for (size_t p = 0; p < of.pages; ++p) {
        ASSERT_EQ(run[p * kPage + p], of.content);
      }
      pool.Free(run, of.pages);
      used -= of.pages;
      runs.erase(freed);
    }
    most = std::max(most, used);
    // Holes may be too short for the longest runs.
    ASSERT_LE(pool.size(), 2 + most / (511 / 2));
  }
  for (const auto& [run, of] : runs) pool.Free(run, of.pages);
  EXPECT_EQ(pool.size(), 0u);
}

TEST(PagePoolTest, OutOfMemoryChangesNothing) {
  PagePool pool;
  {
    FailAllocation fail(0);
    EXPECT_EQ(pool.Allocate(1), nullptr);
    EXPECT_TRUE(fail.failed());
  }
  EXPECT_EQ(pool.size(), 0u);
  void* const run = pool.Allocate(1);
  EXPECT_NE(run, nullptr);
  pool.Free(run, 1);
}

TEST(PagePoolTest, ThreadsGetRunsOfTheirOwn) {
  PagePool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      std::mt19937_64 rng(t);
      for (int i = 0; i < 500; ++i) {
        const size_t pages = 1 + rng() % 16;
        char* const run = static_cast<char*>(pool.Allocate(pages));
        std::memset(run, t, pages * kPage);
        for (size_t k = 0; k < pages * kPage; k += 97) ASSERT_EQ(run[k], t);
        pool.Free(run, pages);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.size(), 0u);
}

}  // namespace
}  // namespace lodestar
