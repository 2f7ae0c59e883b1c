#include "tf_ops/core/memory/epoch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "tests/core/testing/allocation_failure.h"

namespace lodestar {
namespace {

// A number behind a pointer. The address sanitizer detects a reader of a freed
// object.
struct Object : EpochDomain::Retirable {
  std::atomic<int> number{0};
};

Object* NewObject(int number) {
  Object* const object = new (std::malloc(sizeof(Object))) Object();
  object->number = number;
  return object;
}

TEST(EpochTest, ObjectsOutliveTheGuardsThatSeeThem) {
  EpochDomain domain;
  Object* const object = NewObject(7);
  auto guard = std::make_unique<EpochDomain::Guard>(&domain);
  domain.Retire(object);
  domain.Collect();
  EXPECT_EQ(object->number, 7);
  guard.reset();
  domain.Collect();
}

TEST(EpochTest, GuardsOfOneThreadMayNest) {
  EpochDomain domain;
  Object* const object = NewObject(7);
  auto outer = std::make_unique<EpochDomain::Guard>(&domain);
  {
    const EpochDomain::Guard inner(&domain);
    domain.Retire(object);
  }
  domain.Collect();
  EXPECT_EQ(object->number, 7);
  outer.reset();
}

// More guards than a line, and then all lines together, have places.
TEST(EpochTest, AnyNumberOfGuardsIsAlive) {
  EpochDomain domain;
  constexpr int kObjects = 1000;
  std::deque<EpochDomain::Guard> guards;
  std::vector<Object*> objects;
  for (int i = 0; i < kObjects; ++i) {
    guards.emplace_back(&domain);
    objects.push_back(NewObject(i));
    domain.Retire(objects[i]);
  }
  // The guard at the front sees object i and all later ones.
  for (int i = 0; i < kObjects; ++i) {
    for (int k = i; k < kObjects; k += 97) EXPECT_EQ(objects[k]->number, k);
    guards.pop_front();
    domain.Collect();
  }
}

// Each thread announces itself and waits for all others, so none of them may
// wait for a place.
TEST(EpochTest, AnyNumberOfThreadsReads) {
  EpochDomain domain;
  constexpr int kThreads = 300;
  std::atomic<Object*> shared(NewObject(1));
  std::atomic<int> reading{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const EpochDomain::Guard guard(&domain);
      const Object* const object = shared.load();
      ++reading;
      while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_GT(object->number, 0);
    });
    domain.Retire(shared.exchange(NewObject(t + 2)));
  }
  while (reading < kThreads) std::this_thread::yield();
  domain.Collect();
  done = true;
  for (std::thread& thread : threads) thread.join();
  EpochDomain::Retirable::Free(shared);
}

// Without memory for another line, a reader takes a place in another thread's
// line.
TEST(EpochTest, GuardsHavePlacesWithoutMemory) {
  EpochDomain domain;
  constexpr int kGuards = 100;
  std::optional<EpochDomain::Guard> guards[kGuards];
  bool failed = false;
  int last = -1;
  while (!failed && last + 1 < kGuards) {
    const FailAllocation fail(0);
    guards[++last].emplace(&domain);
    failed = fail.failed();
  }
  ASSERT_TRUE(failed);
  EXPECT_GT(last, 1);
  Object* const object = NewObject(7);
  domain.Retire(object);
  for (int i = 0; i < last; ++i) guards[i].reset();
  domain.Collect();
  EXPECT_EQ(object->number, 7);
}

TEST(EpochTest, ReadersNeverSeeFreedObjects) {
  EpochDomain domain;
  std::atomic<Object*> shared(NewObject(1));
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      while (!done) {
        const EpochDomain::Guard guard(&domain);
        EXPECT_GT(shared.load()->number, 0);
      }
    });
  }
  for (int i = 2; i < 2000; ++i) {
    domain.Retire(shared.exchange(NewObject(i)));
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EpochDomain::Retirable::Free(shared);
}

}  // namespace
}  // namespace lodestar
