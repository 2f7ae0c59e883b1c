// Pooled lookups of wide rows on threads with small stacks, and out of memory.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tests/core/testing/allocation_failure.h"
#include "tests/core/testing/small_stack.h"
#include "tests/core/testing/stores.h"
#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/core/embedding/embedding_pool.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

// The widest on the stack; the narrowest and the widest on the heap.
constexpr int kDims[] = {16384, 16385, 65536};

class RowRoomTest : public testing::TestWithParam<RowType> {
 protected:
  // Rows of ids 0, 1, 2 contain 1s, 2s, 3s.
  std::unique_ptr<EmbeddingStore> MakeStore(int dim) {
    auto store = StoreOf(dim, 1, RowInitializer(), {}, GetParam());
    VisitRowType(GetParam(), [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> rows;
      for (int i = 0; i < 3; ++i) {
        rows.resize(rows.size() + dim, RoundTo<T>(static_cast<float>(i + 1)));
      }
      EXPECT_TRUE(store->InsertOrAssign(ids_, rows.data(), nullptr).ok());
    });
    return store;
  }
  Bags MakeBags() const {
    Bags bags;
    bags.ids = ids_;
    bags.row_splits = splits_;
    return bags;
  }
  // Expects {1s, 5s}.
  void ExpectPooled(const std::vector<float>& pooled, int dim) {
    VisitRowType(GetParam(), [&](auto zero) {
      using T = decltype(zero);
      const T* rows = reinterpret_cast<const T*>(pooled.data());
      for (int c = 0; c < 2 * dim; ++c) {
        ASSERT_EQ(ToCompute(rows[c]), c < dim ? 1 : 5);
      }
    });
  }

  const std::vector<int64_t> ids_ = {0, 1, 2};
  const std::vector<int64_t> splits_ = {0, 1, 3};
};

TEST_P(RowRoomTest, WideRowsArePooledOnSmallStacks) {
  for (const int dim : kDims) {
    const auto store = MakeStore(dim);
    std::vector<float> pooled(2 * dim);
    OnSmallStack([&] {
      PoolFind({store.get(), Missing()}, MakeBags(), pooled.data(), nullptr);
    });
    ExpectPooled(pooled, dim);
  }
}

// A lookup that has created rows must not fail any more.
TEST_P(RowRoomTest, WideRowsArePooledOutOfMemory) {
  const int dim = kDims[2];
  const auto store = MakeStore(dim);
  for (int repeat = 0; repeat < 2; ++repeat) {
    std::vector<float> pooled(2 * dim);
    {
      FailAllocation fail(0);
      PoolFind({store.get(), Missing()}, MakeBags(), pooled.data(), nullptr);
      EXPECT_TRUE(fail.failed());
    }
    ExpectPooled(pooled, dim);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RowRoomTest,
                         testing::Values(RowType::kFloat32,
                                         RowType::kBFloat16));

TEST(WideRowRoomTest, ThreadsTakeTurnsInTheStaticBuffer) {
  constexpr int64_t kBytes = 8 * 65536;
  std::unique_ptr<WideRowRoom> first;
  char* shared = nullptr;
  {
    FailAllocation fail(1);  // after the allocation of the object itself
    first = std::make_unique<WideRowRoom>(kBytes);
    EXPECT_TRUE(fail.failed());
    shared = first->data();
  }
  WideRowRoom own(kBytes);
  EXPECT_NE(own.data(), shared);
  int64_t seen = 0;
  std::thread other([&] {
    FailAllocation fail(0);
    const WideRowRoom second(kBytes);
    EXPECT_EQ(second.data(), shared);
    seen = second.data()[kBytes - 1];
  });
  first->data()[kBytes - 1] = 42;
  first.reset();
  other.join();
  EXPECT_EQ(seen, 42);
}

}  // namespace
}  // namespace lodestar
