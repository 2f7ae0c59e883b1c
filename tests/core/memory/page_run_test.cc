#include "tf_ops/core/memory/page_run.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tf_ops/core/memory/page_pool.h"

namespace lodestar {
namespace {

TEST(PageRunTest, RoundsLargeSizesUpToPages) {
  for (const size_t bytes :
       {size_t{1}, size_t{8191}, size_t{8192}, size_t{8193}, size_t{1} << 20}) {
    const PageRun pages = AllocatePages(bytes);
    ASSERT_NE(pages.address, nullptr);
    EXPECT_EQ(pages.bytes, bytes < 8192 ? bytes : (bytes + 4095) / 4096 * 4096);
    std::memset(pages.address, 1, pages.bytes);
    FreePages(pages);
  }
}

// From 16 MiB on.
TEST(PageRunTest, MediumRunsOfLargeIndicesSharePages) {
  const size_t before = PagePool::OfProcess()->size();
  const PageRun large = AllocatePages(size_t{15} << 20);
  const PageRun small = AllocatePages(size_t{100} << 10);
  EXPECT_FALSE(large.pooled || small.pooled);
  const PageRun larger = AllocatePages(size_t{1} << 20);
  EXPECT_FALSE(larger.pooled);
  std::vector<PageRun> runs;
  for (const size_t kib : {8, 60, 64, 100, 512, 516}) {
    runs.push_back(AllocatePages(kib << 10));
    EXPECT_EQ(runs.back().pooled, kib >= 64 && kib <= 512) << kib;
    std::memset(runs.back().address, 1, runs.back().bytes);
  }
  EXPECT_EQ(PagePool::OfProcess()->size(), before + 1);
  const PageRun zeroed = AllocateZeroedPages(size_t{100} << 10);
  EXPECT_FALSE(zeroed.pooled);
  for (const PageRun& run : runs) FreePages(run);
  EXPECT_EQ(PagePool::OfProcess()->size(), before);
  for (const PageRun& run : {large, small, larger, zeroed}) FreePages(run);
  const PageRun again = AllocatePages(size_t{100} << 10);
  EXPECT_FALSE(again.pooled);
  FreePages(again);
}

TEST(PageRunTest, ZeroedPagesAreZero) {
  for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{1} << 20}) {
    for (int i = 0; i < 3; ++i) {
      const PageRun pages = AllocateZeroedPages(bytes);
      ASSERT_NE(pages.address, nullptr);
      ASSERT_GE(pages.bytes, bytes);
      const std::vector<char> zeros(pages.bytes);
      EXPECT_EQ(std::memcmp(pages.address, zeros.data(), pages.bytes), 0);
      std::memset(pages.address, 1, pages.bytes);
      FreePages(pages);
    }
  }
}

TEST(PageRunTest, FreesAnEmptyRun) { FreePages(PageRun()); }

TEST(PageRunTest, FailedAllocationHasNoAddress) {
  // Larger than any address space, but small enough not to overflow when
  // rounded.
  const PageRun pages = AllocatePages(size_t{1} << 62);
  EXPECT_EQ(pages.address, nullptr);
  EXPECT_EQ(pages.bytes, 0u);
}

}  // namespace
}  // namespace lodestar
