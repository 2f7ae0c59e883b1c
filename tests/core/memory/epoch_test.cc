#include "tf_ops/core/memory/epoch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <vector>

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
