#include "tf_ops/core/memory/page_run.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

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
