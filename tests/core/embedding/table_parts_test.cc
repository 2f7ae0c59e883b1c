#include "tf_ops/core/embedding/table_parts.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lodestar {
namespace {

TEST(TableEventsTest, EventsAreCountedSeparately) {
  TableEvents events;
  for (int e = 0; e < kNumEvents; ++e) events.Add(static_cast<Event>(e), e);
  events.Add(Event::kInserts, -2);
  TableEvents copy;
  copy.Add(Event::kIds, 100);
  copy.Share(events);
  for (int e = 0; e < kNumEvents; ++e) {
    const Event event = static_cast<Event>(e);
    EXPECT_EQ(copy.count(event), event == Event::kInserts ? e - 2 : e);
  }
}

TEST(TableEventsTest, ReadsOfAllThreadsAreSummed) {
  TableEvents events;
  constexpr int kReaders = 20;  // more than there are cache lines
  std::vector<std::thread> readers;
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) events.AddReads({2, 3});
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(events.count(Event::kReadHits), kReaders * 2000);
  EXPECT_EQ(events.count(Event::kReadMisses), kReaders * 3000);
  EXPECT_EQ(events.count(Event::kHits), 0);
  events.Add(Event::kReadMisses, -kReaders * 3000);
  EXPECT_EQ(events.count(Event::kReadMisses), 0);
}

TEST(TableEventsTest, AReplacementMissesNoRead) {
  TableEvents successor;
  {
    TableEvents events;
    events.AddReads({2, 3});
    successor.Share(events);
    events.AddReads({4, 5});  // a call that uses the old table
    events.Add(Event::kInserts, 1);
  }
  successor.AddReads({1, 1});
  EXPECT_EQ(successor.count(Event::kReadHits), 7);
  EXPECT_EQ(successor.count(Event::kReadMisses), 9);
  EXPECT_EQ(successor.count(Event::kInserts), 1);
}

TEST(TablePartsTest, ANewRowHasItsInitialValueAndFreshSlots) {
  RowInitializer initializer;
  ASSERT_TRUE(
      RowInitializer::Create("uniform", -1, 1, 3, 4, &initializer).ok());
  TableParts table(3, 1, initializer, TablePolicies(), RowType::kFloat32);
  AttachedOptimizer optimizer;
  optimizer.name = "adagrad";
  optimizer.slot_names = {"accumulator"};
  optimizer.slot_inits = {0.5f};
  ASSERT_TRUE(table.optimizer.Reserve(optimizer).ok());
  table.optimizer.Bind(optimizer);
  RowStore& store = table.rows.shard(0).rows;
  ASSERT_TRUE(store.Reserve(1).ok());
  const RowRef ref = table.rows.RefTo(0, store.Allocate());
  table.FillNewRow(42, ref);
  store.Publish(ref.row, 42, 0, 0);
  std::vector<float> wanted(3);
  table.rows.Draw(initializer, 42, wanted.data());
  std::vector<float> found(3);
  ASSERT_TRUE(store.Read(ref.row, 42, found.data()));
  EXPECT_EQ(found, wanted);
  const float* const slot = static_cast<const float*>(store.slot(ref.row, 0));
  EXPECT_EQ(std::vector<float>(slot, slot + 3), std::vector<float>(3, 0.5f));
}

}  // namespace
}  // namespace lodestar
