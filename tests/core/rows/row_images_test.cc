#include "tf_ops/core/rows/row_images.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "tf_ops/core/rows/step_gate.h"

namespace lodestar {
namespace {

const SnapshotRowFormat kFormat{
    SnapshotRowLayout(2, RowType::kFloat32, 0), {}, 0};

int64_t Count(const RowImages::Chunk* chunks) {
  int64_t count = 0;
  for (; chunks != nullptr; chunks = chunks->next) count += chunks->count;
  return count;
}

TEST(RowImagesTest, FullChunksAreTakenFirstAndTheRestAtTheEnd) {
  ImageBudget::Global().RaiseLimit(1 << 20);
  RowImages images;
  {
    MutexLock lock(&images.mutex());
    images.Start(kFormat, 4 * kFormat.layout.bytes());
    for (char i = 0; i < 10; ++i) {
      char* const record = images.Add();
      ASSERT_NE(record, nullptr);
      std::memset(record, i, kFormat.layout.bytes());
    }
  }
  EXPECT_GT(ImageBudget::Global().bytes(), 0);
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
  EXPECT_EQ(ImageBudget::Global().bytes(), 0);
  ImageBudget::Global().LowerLimit(1 << 20);
}

TEST(RowImagesTest, ChunksNotTakenAreFreed) {
  ImageBudget::Global().RaiseLimit(1 << 20);
  {
    RowImages images;
    MutexLock lock(&images.mutex());
    images.Start(kFormat, 1);
    ASSERT_NE(images.Add(), nullptr);
  }
  EXPECT_EQ(ImageBudget::Global().bytes(), 0);
  ImageBudget::Global().LowerLimit(1 << 20);
}

TEST(ImageBudgetTest, StepsWaitAboveTheLimitUntilHalfOfIt) {
  ImageBudget budget;
  StepGate& gate = StepGate::Global();
  budget.RaiseLimit(100);
  budget.Add(100);
  ASSERT_TRUE(gate.TryEnter());
  gate.Exit();
  EXPECT_TRUE(budget.tight());
  budget.Add(1);
  EXPECT_FALSE(gate.TryEnter());
  budget.Subtract(50);
  EXPECT_FALSE(gate.TryEnter());
  bool entered = false;
  ASSERT_TRUE(
      gate.Run([](auto call) { call(); }, [&] { entered = true; }, [] {}).ok());
  EXPECT_FALSE(entered);
  budget.Subtract(1);
  EXPECT_TRUE(entered);
  gate.Exit();
  EXPECT_FALSE(budget.tight());
  budget.Subtract(50);
  EXPECT_EQ(budget.TakePeak(), 101);
  EXPECT_EQ(budget.TakePeak(), 0);
  budget.LowerLimit(100);
}

TEST(ImageBudgetTest, WaitsForAWriter) {
  ImageBudget budget;
  budget.RaiseLimit(10);
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
  budget.Subtract(5);
  budget.LowerLimit(10);
}

}  // namespace
}  // namespace lodestar
