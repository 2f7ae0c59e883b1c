#include "tf_ops/core/rows/row_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace lodestar {
namespace {

uint32_t Add(RowStore* store, int64_t id, float value, int dim) {
  EXPECT_TRUE(store->Reserve(1).ok());
  const uint32_t row = store->Allocate();
  const std::vector<float> values(dim, value);
  CopyRowIn(values.data(), dim * sizeof(float), store->values(row));
  store->Publish(row, id, 0, 0);
  return row;
}

TEST(RowStoreTest, ReadsOnlyTheIdThatTheRowHolds) {
  for (int dim : {1, 2, 3, 32, 33}) {
    Arena arena;
    RowStore store(dim, &arena);
    const uint32_t row = Add(&store, 7, 1.5f, dim);
    std::vector<float> out(dim);
    EXPECT_TRUE(store.Read(row, 7, out.data()));
    EXPECT_EQ(out, std::vector<float>(dim, 1.5f));
    EXPECT_FALSE(store.Read(row, 8, out.data()));
    EXPECT_FALSE(store.Lock(row, 8));
    store.Free(row);
    EXPECT_FALSE(store.Read(row, 7, out.data()));
    const uint32_t again = Add(&store, 8, 2.5f, dim);
    EXPECT_EQ(again, row);
    EXPECT_FALSE(store.Read(row, 7, out.data()));
    EXPECT_TRUE(store.Read(row, 8, out.data()));
  }
}

TEST(RowStoreTest, RowsStayInPlaceWhenSegmentsAreAdded) {
  Arena arena;
  RowStore store(4, &arena);
  ASSERT_TRUE(store.Reserve(100000).ok());
  std::vector<const void*> places;
  for (int64_t id = 0; id < 100000; ++id) {
    places.push_back(store.values(Add(&store, id, static_cast<float>(id), 4)));
  }
  ASSERT_TRUE(store.Reserve(200000).ok());
  for (uint32_t row = 0; row < 100000; ++row) {
    ASSERT_EQ(store.values(row), places[row]);
    ASSERT_EQ(static_cast<float*>(store.values(row))[3],
              static_cast<float>(row));
  }
}

TEST(RowStoreTest, StoresThatGrowAlikeAddTheirSegmentsInTurn) {
  Arena arena;
  std::vector<std::unique_ptr<RowStore>> stores;
  for (uint32_t number = 0; number < 16; ++number) {
    stores.push_back(std::make_unique<RowStore>(4, &arena, number));
  }
  std::vector<int64_t> capacities(stores.size());
  const auto grow = [&](int64_t rows) {
    int grown = 0;
    for (size_t s = 0; s < stores.size(); ++s) {
      EXPECT_TRUE(stores[s]->ReserveCapacity(rows).ok());
      EXPECT_GE(stores[s]->capacity(), rows);
      grown += stores[s]->capacity() != capacities[s];
      capacities[s] = stores[s]->capacity();
    }
    return grown;
  };
  grow(1100000);
  // Segments of 16,384 rows, starting 1,024 rows apart.
  for (int64_t rows = 1101024; rows < 1133000; rows += 1024) {
    ASSERT_EQ(grow(rows), 1) << rows;
  }
}

TEST(RowStoreTest, SlotsAreAddedToOldAndNewRows) {
  const auto slot = [](RowStore& store, uint32_t row, int s) {
    return static_cast<float*>(store.slot(row, s));
  };
  Arena arena;
  RowStore store(2, &arena);
  const uint32_t old_row = Add(&store, 1, 0.0f, 2);
  const std::vector<float> inits = {0.1f, 0.0f};
  ASSERT_TRUE(store.ReserveSlots({2}).ok());
  store.AttachSlots({2}, inits);
  EXPECT_EQ(store.slots().count, 2);
  EXPECT_EQ(slot(store, old_row, 0)[1], 0.1f);
  EXPECT_EQ(slot(store, old_row, 1)[1], 0.0f);
  ASSERT_TRUE(store.Reserve(5000).ok());
  for (int i = 0; i < 5000; ++i) {
    const uint32_t row = store.Allocate();
    slot(store, row, 0)[0] = 3.0f;
    slot(store, row, 1)[1] = 4.0f;
  }
  EXPECT_EQ(slot(store, old_row, 0)[0], 0.1f);
}

TEST(RowStoreTest, SlotsAreStoredInsideLaterRows) {
  constexpr int kRowDim = 6;
  Arena arena;
  RowStore store(kRowDim, &arena);
  const auto distance = [&](uint32_t row, int s) {
    return static_cast<char*>(store.slot(row, s)) -
           reinterpret_cast<char*>(store.meta(row));
  };
  const auto attach = [&](const SlotShape& slots) {
    ASSERT_TRUE(store.ReserveSlots(slots).ok());
    store.AttachSlots(slots, std::vector<float>(slots.count, 0.5f));
  };
  const auto grow = [&] {
    const uint32_t row = static_cast<uint32_t>(store.capacity());
    EXPECT_TRUE(store.Reserve(store.capacity() + 1).ok());
    return row;
  };
  const int64_t slot_bytes = kRowDim * sizeof(float);
  const int64_t bare = sizeof(RowMeta) + slot_bytes;
  attach({1});
  const uint32_t one = Add(&store, 1, 0.0f, kRowDim);
  const int64_t first = store.capacity();
  EXPECT_EQ(distance(one, 0), bare);
  EXPECT_EQ(store.slot_bytes(), first * slot_bytes);
  attach({2});
  // Rows do not move, but their slots do. Slots of a row are consecutive.
  EXPECT_NE(distance(one, 0), bare);
  EXPECT_EQ(distance(one, 1), distance(one, 0) + slot_bytes);
  const uint32_t two = grow();
  EXPECT_EQ(distance(two, 0), bare);
  EXPECT_EQ(distance(two, 1), bare + slot_bytes);
  EXPECT_EQ(store.row_bytes(), store.capacity() * bare);
  EXPECT_EQ(store.slot_bytes(), store.capacity() * 2 * slot_bytes);
  // A row-wise slot takes four bytes of new rows, and the place of wider slots
  // in existing ones.
  const int64_t before = store.slot_bytes();
  const int64_t old_rows = store.capacity();
  attach({1, /*row_wise=*/true});
  EXPECT_EQ(store.slot_bytes(), before);
  EXPECT_EQ(store.bytes_per_slot(), 4);
  const uint32_t three = grow();
  EXPECT_EQ(distance(three, 0), bare);
  EXPECT_EQ(store.slot_bytes(), before + 4 * (store.capacity() - old_rows));
  EXPECT_EQ(static_cast<float*>(store.slot(one, 0))[0], 0.5f);
  // The wider slots of the last segment need memory again.
  attach({2});
  EXPECT_EQ(distance(two, 0), bare);
  EXPECT_NE(distance(three, 0), bare);
  EXPECT_EQ(store.slot_bytes(), store.capacity() * 2 * slot_bytes);
}

// ReserveSlots alone changes no slot.
TEST(RowStoreTest, ReservedSlotsWaitForAttachSlots) {
  Arena arena;
  RowStore store(2, &arena);
  ASSERT_TRUE(store.ReserveSlots({1}).ok());
  store.AttachSlots({1}, std::vector<float>{0.5f});
  const uint32_t row = Add(&store, 1, 0.0f, 2);
  static_cast<float*>(store.slot(row, 0))[1] = 7.0f;
  ASSERT_TRUE(store.ReserveSlots({3}).ok());
  ASSERT_TRUE(store.Reserve(store.capacity() + 1).ok());
  EXPECT_EQ(static_cast<float*>(store.slot(row, 0))[1], 7.0f);
  EXPECT_EQ(store.slots().count, 1);
  store.AttachSlots({3}, std::vector<float>{0.0f, 0.0f, 2.0f});
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(static_cast<float*>(store.slot(row, s))[1], s == 2 ? 2.0f : 0.0f);
  }
}

// Removes and adds rows at random; the content equals a map's. Slots are
// attached in between, so rows move between segments with slots inside the rows
// and others.
TEST(RowStoreTest, CompactMovesTheLastRowsToFreePlaces) {
  constexpr int kRowDim = 3;
  std::mt19937_64 rng(1);
  Arena arena;
  RowStore store(kRowDim, &arena, 5);
  std::map<int64_t, uint32_t> rows;
  const auto slot = [&](uint32_t row, int s) {
    return static_cast<float*>(store.slot(row, s));
  };
  const auto fill_slots = [&](uint32_t row, int64_t id) {
    for (int s = 0; s < store.slots().count; ++s) {
      std::fill_n(slot(row, s), store.slot_width(),
                  static_cast<float>(-id - s));
    }
  };
  int64_t next_id = 0;
  for (int round = 0; round < 40; ++round) {
    if (round % 6 == 5) {
      const int count = round % 4 + 1;
      const SlotShape slots = {count, /*row_wise=*/round % 12 == 11};
      ASSERT_TRUE(store.ReserveSlots(slots).ok());
      store.AttachSlots(slots, std::vector<float>(count, 0.5f));
      for (const auto& [id, row] : rows) {
        ASSERT_EQ(slot(row, count - 1)[store.slot_width() - 1], 0.5f);
        fill_slots(row, id);
      }
    }
    for (int64_t count = rng() % 6000; count > 0; --count, ++next_id) {
      const uint32_t row =
          Add(&store, next_id, static_cast<float>(next_id), kRowDim);
      fill_slots(row, next_id);
      ASSERT_TRUE(rows.emplace(next_id, row).second);
    }
    const uint64_t share = rng() % 10;
    for (auto it = rows.begin(); it != rows.end();) {
      if (rng() % 10 >= share) {
        ++it;
      } else {
        store.Free(it->second);
        it = rows.erase(it);
      }
    }
    uint32_t low = 0;
    const auto moved = [&](uint32_t from, uint32_t to) {
      const int64_t id = store.meta(to)->id;
      ASSERT_EQ(rows[id], from);
      ASSERT_TRUE(store.Holds(from, id));
      ASSERT_TRUE(store.Holds(to, id));
      ASSERT_NE(store.Version(to), store.Version(from));
      rows[id] = to;
    };
    while (!store.Compact(100, &low, moved)) {
    }
    while (store.ReleaseSegment()) {
    }
    ASSERT_EQ(store.live(), static_cast<int64_t>(rows.size()));
    ASSERT_EQ(store.high_water(), rows.size());
    ASSERT_LT(store.capacity(), store.live() + 1024);
    for (const auto& [id, row] : rows) {
      std::vector<float> values(kRowDim);
      ASSERT_TRUE(store.Read(row, id, values.data()));
      ASSERT_EQ(values, std::vector<float>(kRowDim, static_cast<float>(id)));
      for (int s = 0; s < store.slots().count; ++s) {
        for (int c = 0; c < store.slot_width(); ++c) {
          ASSERT_EQ(slot(row, s)[c], static_cast<float>(-id - s));
        }
      }
    }
  }
}

// However many records are requested at a time.
TEST(RowStoreTest, EachRowOfASnapshotIsSavedOnce) {
  constexpr int64_t kRows = 1000;
  for (const bool whole : {false, true}) {
    for (const int64_t most : {1, 7, 16, 50, 2000}) {
      Arena arena;
      RowStore store(1, &arena);
      ASSERT_TRUE(store.ReserveMarks().ok());
      for (int64_t id = 0; id < kRows; ++id) {
        Add(&store, id, static_cast<float>(id), 1);
      }
      store.StartMarking();
      std::vector<int64_t> wanted;
      for (int64_t id = 0; id < kRows; ++id) {
        const uint32_t row = static_cast<uint32_t>(id);
        const bool changed = id % 3 == 0 || id > 900;
        if (changed) {
          ASSERT_TRUE(store.Lock(row, id));
          store.BeforeWrite(row);
          store.Unlock(row);
        }
        if (id % 5 == 0) {
          store.Free(row);
        } else if (changed || whole) {
          wanted.push_back(id);
        }
      }
      const SnapshotRowFormat format = {
          SnapshotRowLayout(1, RowType::kFloat32, {}), {}, 0};
      ImageBudget budget(StepGates(), 1 << 20);
      store.BeginSnapshot(whole, format, 1 << 16, &budget);
      std::vector<char> records(most * format.layout.bytes());
      std::vector<int64_t> saved;
      for (int64_t next = 0; next < kRows;) {
        const int64_t count =
            store.SaveRows(kRows, format, most, &next, records.data());
        ASSERT_LE(count, most);
        for (int64_t i = 0; i < count; ++i) {
          const char* const record = records.data() + i * format.layout.bytes();
          SnapshotRowHead head;
          float value;
          std::memcpy(&head, record, sizeof(head));
          std::memcpy(&value, record + format.layout.values(), sizeof(value));
          EXPECT_EQ(value, static_cast<float>(head.id));
          saved.push_back(head.id);
        }
      }
      EXPECT_EQ(saved, wanted);
      store.EndImages(kRows);
    }
  }
}

// A reader delayed in the middle of a row compares the word it started with.
// That word must not reappear, even if the row's memory was reused.
TEST(RowStoreTest, WordsOfReleasedRowsAreNeverReused) {
  Arena arena;
  RowStore store(4, &arena);
  std::set<uint32_t> words;
  for (int round = 0; round < 5; ++round) {
    const uint32_t row = Add(&store, 7, 1.0f, 4);
    EXPECT_EQ(row, 0u);
    for (int writes = 0; writes <= round % 3; ++writes) {
      EXPECT_TRUE(words.insert(store.meta(row)->sequence).second) << round;
      ASSERT_TRUE(store.Lock(row, 7));
      store.Unlock(row);
    }
    words.insert(store.meta(row)->sequence);
    store.Free(row);
    uint32_t low = 0;
    ASSERT_TRUE(store.Compact(10, &low, [](uint32_t, uint32_t) {}));
    ASSERT_TRUE(store.ReleaseSegment());
    // Not resident, but still readable.
    EXPECT_EQ(store.meta(row)->sequence, 0u);
    EXPECT_FALSE(store.Lock(row, 7));
    EXPECT_FALSE(store.Holds(row, 0));
    EXPECT_EQ(store.meta(row)->sequence, 0u);
    EXPECT_EQ(store.row_bytes(), 0);
  }
}

}  // namespace
}  // namespace lodestar
