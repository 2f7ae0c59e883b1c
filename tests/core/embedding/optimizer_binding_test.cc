#include "tf_ops/core/embedding/optimizer_binding.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/testing/errors.h"

namespace lodestar {
namespace {

constexpr int kDim = 2;
constexpr uint32_t kRow = 0;  // row of id 0

AttachedOptimizer Momentum(const std::string& name = "replay:momentum") {
  AttachedOptimizer optimizer;
  optimizer.name = name;
  optimizer.slot_names = {"velocity", "steps"};
  optimizer.slot_inits = {0.5f, 2.0f};
  return optimizer;
}

TablePolicies OneSharedRow() {
  TablePolicies policies;
  policies.shared_rows = 1;
  return policies;
}

struct Table {
  Table() {
    EXPECT_TRUE(shared()->Reserve(1).ok());
    EXPECT_EQ(shared()->Allocate(), kRow);
    shared()->Publish(kRow, 0, 0, 0);
  }
  RowStore* shared() { return rows.shared(); }
  void Bind(const AttachedOptimizer& optimizer) {
    const ShardLocks locks(rows);
    ASSERT_TRUE(binding.Reserve(optimizer).ok());
    binding.Bind(optimizer);
  }
  std::vector<float> Slot(int s) {
    const auto* numbers = static_cast<const float*>(shared()->slot(kRow, s));
    return {numbers, numbers + kDim};
  }

  ShardedRows rows{kDim, RowType::kFloat32, 2, OneSharedRow()};
  OptimizerBinding binding{&rows};
};

class OptimizerBindingTest : public testing::Test, protected Table {};

TEST_F(OptimizerBindingTest, ExistingRowsGetInitialSlots) {
  EXPECT_FALSE(binding.bound());
  EXPECT_EQ(binding.optimizer().name, "");
  Bind(Momentum());
  EXPECT_TRUE(binding.bound());
  EXPECT_EQ(binding.optimizer().name, "replay:momentum");
  EXPECT_EQ(shared()->slots().count, 2);
  EXPECT_EQ(rows.shard(1).rows.slots().count, 2);
  EXPECT_EQ(Slot(0), std::vector<float>(kDim, 0.5f));
  EXPECT_EQ(Slot(1), std::vector<float>(kDim, 2.0f));
}

TEST_F(OptimizerBindingTest, AnotherOneIsRefusedByName) {
  EXPECT_TRUE(binding.Check(Momentum()).ok());
  EXPECT_FALSE(binding.IsBoundTo(Momentum()));
  Bind(Momentum());
  EXPECT_TRUE(binding.IsBoundTo(Momentum()));
  AttachedOptimizer again = Momentum();
  again.slot_inits = {0, 0};
  EXPECT_TRUE(binding.Check(again).ok());  // the slots of its first call
  ExpectError(binding.Check(Momentum("adam")), StatusCode::kFailedPrecondition,
              {"'replay:momentum', but the update uses 'adam'"});
  AttachedOptimizer fewer = Momentum();
  fewer.slot_names.pop_back();
  ExpectError(binding.Check(fewer), StatusCode::kFailedPrecondition,
              {"[velocity, steps]", "[velocity]"});
}

TEST_F(OptimizerBindingTest, AttachingBindsOnce) {
  const ShardLocks locks(rows);
  EXPECT_TRUE(binding.Attach(Momentum()).ok());
  EXPECT_TRUE(binding.IsBoundTo(Momentum()));
  static_cast<float*>(shared()->slot(kRow, 0))[1] = 7;
  EXPECT_TRUE(binding.Attach(Momentum()).ok());
  EXPECT_EQ(Slot(0), (std::vector<float>{0.5f, 7}));
  EXPECT_EQ(binding.Attach(Momentum("adam")).code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(OptimizerBindingTest, AnotherOneReplacesTheFirst) {
  Bind(Momentum());
  const AttachedOptimizer& first = binding.optimizer();
  static_cast<float*>(shared()->slot(kRow, 0))[1] = 7;
  AttachedOptimizer none;
  none.name = "sgd";
  Bind(none);
  EXPECT_TRUE(binding.IsBoundTo(none));
  EXPECT_EQ(shared()->slots().count, 0);
  EXPECT_EQ(binding.Check(Momentum()).code(), StatusCode::kFailedPrecondition);
  Bind(Momentum("adam"));
  EXPECT_EQ(binding.optimizer().name, "adam");
  EXPECT_EQ(Slot(0), std::vector<float>(kDim, 0.5f));
  EXPECT_EQ(Slot(1), std::vector<float>(kDim, 2.0f));
  // A reader may still use it.
  EXPECT_EQ(first.name, "replay:momentum");
}

// Run it with --config=tsan: a write to a shared row requires the row lock.
TEST(OptimizerBindingThreadsTest, OneMayBeAttachedDuringAReset) {
  for (int round = 0; round < 200; ++round) {
    Table table;
    std::atomic<bool> filled{false};
    std::thread filling([&] {
      do {
        ASSERT_TRUE(table.shared()->Lock(kRow, 0));
        table.binding.FillSlots(table.shared(), kRow);
        table.shared()->Unlock(kRow);
        filled.store(true, std::memory_order_relaxed);
      } while (!table.binding.bound());
    });
    while (!filled.load(std::memory_order_relaxed)) std::this_thread::yield();
    table.Bind(Momentum());
    filling.join();
    ASSERT_EQ(table.Slot(0), std::vector<float>(kDim, 0.5f));
    ASSERT_EQ(table.Slot(1), std::vector<float>(kDim, 2.0f));
  }
}

}  // namespace
}  // namespace lodestar
