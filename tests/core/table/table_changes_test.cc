#include "tf_ops/core/table/table_changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace lodestar {
namespace {

TEST(RemovedIdsTest, AreRecordedFromTheFirstTakeOn) {
  RemovedIds ids;
  EXPECT_TRUE(ids.Add(1, 0));
  EXPECT_EQ(ids.Take(), std::vector<int64_t>());
  EXPECT_TRUE(ids.Add(2, 0));
  EXPECT_TRUE(ids.Add(3, 0));
  EXPECT_EQ(ids.Take(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(ids.Take(), std::vector<int64_t>());
}

TEST(RemovedIdsTest, TooManyAreForgottenAtOnce) {
  RemovedIds ids;
  ids.Take();
  for (int64_t id = 0; id < 1024; ++id) ASSERT_TRUE(ids.Add(id, 10));
  EXPECT_FALSE(ids.Add(1024, 10));
  EXPECT_TRUE(ids.Add(1025, 10));  // reported once only
  EXPECT_EQ(ids.Take(), std::vector<int64_t>());
  // Removing half of the rows is not too many.
  for (int64_t id = 0; id < 2000; ++id) ASSERT_TRUE(ids.Add(id, 4000));
  EXPECT_FALSE(ids.Add(2000, 4000));
}

TEST(RemovedIdsTest, AFailedSnapshotRestoresThem) {
  RemovedIds ids;
  ids.Take();
  ids.Add(1, 0);
  std::vector<int64_t> taken = ids.Take();
  ids.Add(2, 0);
  EXPECT_TRUE(ids.Restore(std::move(taken)));
  std::vector<int64_t> all = ids.Take();
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector<int64_t>{1, 2}));
  // Unless ids were forgotten in between.
  ids.Forget();
  EXPECT_TRUE(ids.Restore({1}));
  EXPECT_EQ(ids.Take(), std::vector<int64_t>());
}

TEST(TableChangesTest, ASnapshotThatSucceedsIsTheNextBase) {
  TableChanges changes;
  EXPECT_EQ(changes.base(), "");
  changes.SetBase("first");
  changes.BeginSnapshot(std::make_shared<ImageBudget>(StepGates(), 0));
  EXPECT_TRUE(changes.running());
  EXPECT_EQ(changes.base(), "first");
  EXPECT_TRUE(changes.HasBaseAfter(nullptr));
  changes.EndSnapshot(nullptr);
  EXPECT_FALSE(changes.running());
  EXPECT_EQ(changes.base(), "first");
  changes.BeginSnapshot(std::make_shared<ImageBudget>(StepGates(), 0));
  std::string second = "second";
  EXPECT_TRUE(changes.HasBaseAfter(&second));
  changes.EndSnapshot(&second);
  EXPECT_EQ(changes.base(), "second");
}

TEST(TableChangesTest, ALostChangePreventsABase) {
  TableChanges changes;
  changes.SetBase("first");
  changes.BeginSnapshot(std::make_shared<ImageBudget>(StepGates(), 0));
  changes.ForgetBase();
  std::string second = "second";
  EXPECT_FALSE(changes.HasBaseAfter(&second));
  changes.EndSnapshot(&second);
  EXPECT_EQ(changes.base(), "");
  changes.BeginSnapshot(std::make_shared<ImageBudget>(StepGates(), 0));
  EXPECT_FALSE(changes.HasBaseAfter(nullptr));
  EXPECT_TRUE(changes.HasBaseAfter(&second));
  changes.EndSnapshot(&second);
  EXPECT_EQ(changes.base(), "second");
}

TEST(TableChangesTest, WaitsForTheEndOfASnapshot) {
  TableChanges changes;
  changes.WaitForEnd();  // no snapshot is running
  changes.BeginSnapshot(std::make_shared<ImageBudget>(StepGates(), 0));
  std::atomic<bool> ended{false};
  std::thread waiting([&] {
    changes.WaitForEnd();
    EXPECT_TRUE(ended);
  });
  ended = true;
  changes.EndSnapshot(nullptr);
  waiting.join();
}

}  // namespace
}  // namespace lodestar
