#include "tf_ops/core/base/mutex.h"

#include <gtest/gtest.h>

#include <shared_mutex>
#include <thread>
#include <vector>

namespace lodestar {
namespace {

static_assert(sizeof(Mutex) == sizeof(std::mutex));
static_assert(sizeof(SharedMutex) == sizeof(std::shared_mutex));

TEST(MutexTest, ExcludesOtherThreads) {
  Mutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        MutexLock lock(&mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
}

TEST(MutexTest, IsReleasedAtTheEndOfTheScope) {
  Mutex mutex;
  const auto is_free = [&] {
    if (!mutex.try_lock()) return false;
    mutex.unlock();
    return true;
  };
  {
    MutexLock lock(&mutex);
    std::thread([&] { EXPECT_FALSE(is_free()); }).join();
  }
  EXPECT_TRUE(is_free());
}

TEST(SharedMutexTest, ReadersShareIt) {
  SharedMutex mutex;
  std::shared_lock<SharedMutex> first(mutex);
  std::thread([&] { std::shared_lock<SharedMutex> second(mutex); }).join();
  first.unlock();
  WriterLock alone(&mutex);
}

TEST(ConditionVariableTest, NotifyWakesWaiters) {
  Mutex mutex;
  ConditionVariable changed;
  bool ready = false;
  std::thread waiting([&] {
    MutexLock lock(&mutex);
    while (!ready) changed.Wait(&mutex);
  });
  {
    MutexLock lock(&mutex);
    ready = true;
    changed.NotifyAll();
  }
  waiting.join();
  EXPECT_TRUE(ready);
}

TEST(ConditionVariableTest, WaitUntilTimesOut) {
  Mutex mutex;
  ConditionVariable changed;
  MutexLock lock(&mutex);
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (changed.WaitUntil(&mutex, deadline)) {
  }
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
}

}  // namespace
}  // namespace lodestar
