#include "tf_ops/core/rows/row_images.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "tf_ops/core/base/step_gate.h"

namespace lodestar {
namespace {

const SnapshotRowFormat kFormat{
    SnapshotRowLayout(2, RowType::kFloat32, {}), {}, 0};

int64_t Count(const RowImages::Chunk* chunks) {
  int64_t count = 0;
  for (; chunks != nullptr; chunks = chunks->next) count += chunks->count;
  return count;
}

TEST(RowImagesTest, FullChunksAreTakenFirstAndTheRestAtTheEnd) {
  ImageBudget budget(StepGates(), 1 << 20);
  RowImages images;
  {
    MutexLock lock(&images.mutex());
    images.Start(kFormat, 4 * kFormat.layout.bytes(), &budget);
    for (char i = 0; i < 10; ++i) {
      char* const record = images.Add();
      ASSERT_NE(record, nullptr);
      std::memset(record, i, kFormat.layout.bytes());
    }
  }
  EXPECT_GT(budget.bytes(), 0);
  RowImages::Chunk* const full = images.Take(/*all=*/false);
  EXPECT_EQ(Count(full), 8);
  EXPECT_EQ(full->records()[0], 4);  // the newest first
  RowImages::Release(full);
  RowImages::Chunk* const rest = images.Take(/*all=*/true);
  EXPECT_EQ(Count(rest), 2);
  EXPECT_EQ(rest->records()[kFormat.layout.bytes()], 9);
  RowImages::Release(rest);
  EXPECT_EQ(images.Take(/*all=*/true), nullptr);
  EXPECT_FALSE(images.failed());
  EXPECT_EQ(budget.bytes(), 0);
}

TEST(RowImagesTest, ChunksNotTakenAreFreed) {
  ImageBudget budget(StepGates(), 1 << 20);
  {
    RowImages images;
    MutexLock lock(&images.mutex());
    images.Start(kFormat, 1, &budget);
    ASSERT_NE(images.Add(), nullptr);
  }
  EXPECT_EQ(budget.bytes(), 0);
}

TEST(ImageBudgetTest, StepsWaitAboveTheLimitUntilHalfOfIt) {
  const auto gate = std::make_shared<StepGate>();
  const StepGates gates({gate, std::make_shared<StepGate>()});
  ImageBudget budget(gates, 100);
  budget.Add(100);
  ASSERT_TRUE(gates.TryEnter());
  gates.Exit();
  EXPECT_TRUE(budget.tight());
  budget.Add(1);
  EXPECT_FALSE(gates.TryEnter());
  budget.Subtract(50);
  EXPECT_FALSE(StepGates({gate}).TryEnter());
  bool entered = false;
  const auto step = [&](StepScope) { entered = true; };
  ASSERT_TRUE(gates.Run([](auto call) { call(); }, step, [] {}).ok());
  EXPECT_FALSE(entered);
  budget.Subtract(1);
  EXPECT_TRUE(entered);
  EXPECT_FALSE(budget.tight());
  budget.Subtract(50);
  EXPECT_EQ(budget.bytes(), 0);
  EXPECT_EQ(budget.peak(), 101);
}

TEST(ImageBudgetTest, WaitsForAWriter) {
  ImageBudget budget(StepGates(), 10);
  budget.Add(20);
  budget.Wait();  // no writer exists to wait for
  auto writer = std::make_unique<ImageBudget::Writer>(&budget);
  std::atomic<bool> waited{false};
  std::thread waiting([&] {
    budget.Wait();
    waited = true;
  });
  EXPECT_FALSE(waited);
  budget.Subtract(15);
  waiting.join();
  EXPECT_TRUE(waited);
}

}  // namespace
}  // namespace lodestar
