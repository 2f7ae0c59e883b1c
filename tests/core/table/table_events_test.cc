#include "tf_ops/core/table/table_events.h"

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

}  // namespace
}  // namespace lodestar
