// Compact returns memory and has no other effect.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/core/embedding/embedding_policies.h"
#include "tests/core/embedding/resident_bytes.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

using Store = std::unique_ptr<EmbeddingStore>;

int64_t Compact(EmbeddingStore* store) {
  int64_t returned;
  EXPECT_TRUE(store->Compact(&returned, {}).ok());
  return returned;
}

int64_t BytesOf(const EmbeddingStore& store) {
  const EmbeddingStats s = store.Stats();
  return s.index_bytes + s.row_bytes + s.slot_bytes + s.policy_bytes;
}

auto ContentOf(const EmbeddingStore& store) {
  EmbeddingRows rows = Export(store);
  return std::make_tuple(rows.ids, rows.values, rows.slots, rows.frequencies,
                         rows.last_seen, rows.step, rows.pending_ids,
                         rows.pending_sightings, rows.pending_last_seen);
}

TEST(EmbeddingStoreCompactTest, MemoryOfRemovedRowsIsReturned) {
  constexpr int64_t kRows = 1000000;
  // Otherwise ids are in insertion order.
  for (bool at_random : {false, true}) {
    const Store store = MakeStore(TablePolicies(), 16);
    for (int64_t first = 0; first < kRows; first += 50000) {
      Lookup(store.get(), Range(first, first + 50000));
    }
    Advance(store.get(), Range(0, 1000));
    const int64_t bytes = BytesOf(*store);
    std::vector<int64_t> gone;
    for (int64_t id = 0; id < kRows; ++id) {
      const bool stays =
          at_random ? Mixed(id + kRows) % 10 == 0 : id >= kRows / 10 * 9;
      if (!stays) gone.push_back(id);
    }
    ASSERT_EQ(Remove(store.get(), gone), gone.size());
    EXPECT_EQ(BytesOf(*store), bytes);
    const auto before = ContentOf(*store);
    const int64_t resident = ResidentBytes();
    const int64_t returned = Compact(store.get());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_GT(resident - ResidentBytes(), returned * 8 / 10);
#endif
    EXPECT_TRUE(ContentOf(*store) == before);
    EXPECT_EQ(BytesOf(*store), bytes - returned);
    EXPECT_GT(returned, bytes * 8 / 10);
    EXPECT_EQ(Compact(store.get()), 0);
    // The table grows again.
    Lookup(store.get(), Range(kRows, 2 * kRows));
    EXPECT_EQ(store->size(),
              kRows + static_cast<int64_t>(std::get<0>(before).size()));
    ASSERT_TRUE(store->Clear({}).ok());
    EXPECT_GT(Compact(store.get()), bytes / 2);
    EXPECT_LT(BytesOf(*store), 100000);
  }
}

TEST(EmbeddingStoreCompactTest, AnEmptyTableReturnsNothing) {
  const Store store = MakeStore(TablePolicies());
  EXPECT_EQ(Compact(store.get()), 0);
  Lookup(store.get(), {1});
  EXPECT_EQ(Compact(store.get()), 0);
}

// Compacts one of two tables with the same history now and then: they agree in
// everything, including which rows are evicted.
TEST(EmbeddingStoreCompactTest, CompactHasNoOtherEffect) {
  for (Order order : {Order::kLru, Order::kLfu}) {
    for (bool sketch : {false, true}) {
      TablePolicies policies = sketch ? CountingBloom(2, 50000) : MinCount(2);
      policies.eviction = MaxRows(3000, order).eviction;
      policies.eviction.max_age = 50;
      const Store plain = MakeStore(policies, 3);
      const Store compacted = MakeStore(policies, 5);
      std::mt19937_64 rng(1);
      int64_t returned = 0;
      for (int round = 0; round < 300; ++round) {
        std::vector<int64_t> ids;
        for (uint64_t i = rng() % 400; i > 0; --i) ids.push_back(rng() % 20000);
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        for (EmbeddingStore* store : {plain.get(), compacted.get()}) {
          Lookup(store, ids);
          Lookup(store, {ids.begin(), ids.begin() + ids.size() / 2}, false);
          Advance(store, ids);
          int64_t count;
          if (round % 40 == 20) {
            EvictionPolicy policy;
            policy.max_rows = 500;
            ASSERT_TRUE(store->Evict(policy, &count, nullptr).ok());
          }
          if (round % 90 == 89) {
            ASSERT_TRUE(store->Evict(store->eviction(), &count, nullptr).ok());
          }
        }
        if (round % 7 == 0) returned += Compact(compacted.get());
        ASSERT_EQ(plain->size(), compacted->size());
      }
      EXPECT_GT(returned, 0);
      EXPECT_TRUE(ContentOf(*plain) == ContentOf(*compacted));
      EXPECT_EQ(plain->Stats().count(Event::kEvicted),
                compacted->Stats().count(Event::kEvicted));
      EXPECT_EQ(plain->Stats().count(Event::kRefused),
                compacted->Stats().count(Event::kRefused));
      EXPECT_EQ(plain->Stats().pending, compacted->Stats().pending);
    }
  }
}

// Rows are moved repeatedly while threads look them up, update, assign and
// count them: no call misses a row.
TEST(EmbeddingStoreCompactTest, AMovedRowIsNeverMissed) {
  for (bool in_order : {false, true}) {
    TablePolicies policies;
    if (in_order) policies.eviction.max_age = 1000;
    for (int round = 0; round < 10; ++round) {
      const Store store = MakeStore(policies, 2);
      constexpr int64_t kStay = 600;
      constexpr int64_t kGo = 12000;
      // The remaining rows are inserted last, so they are moved first.
      Lookup(store.get(), Range(kStay, kGo));
      const std::vector<int64_t> ids = Range(0, kStay);
      Lookup(store.get(), ids);
      std::vector<float> zeros(ids.size() * kDim, 0.0f);
      ASSERT_TRUE(store->InsertOrAssign(ids, zeros.data(), nullptr).ok());
      std::atomic<bool> stop{false};
      std::atomic<int64_t> wrong{0};
      std::atomic<int64_t> steps{0};
      const auto until_stopped = [&](const std::function<void()>& body) {
        return std::thread([&stop, body] {
          do {
            body();
          } while (!stop);
        });
      };
      std::vector<std::thread> threads;
      threads.push_back(until_stopped([&] {
        std::vector<float> rows(ids.size() * kDim);
        const auto found = std::make_unique<bool[]>(ids.size());
        store->Find(ids, nullptr, Missing(), rows.data(), found.get(), nullptr);
        std::vector<RowRef> refs(ids.size());
        store->FindAll(ids, refs, nullptr);
        std::vector<int64_t> frequencies(ids.size());
        EXPECT_TRUE(store->Frequency(ids, frequencies, nullptr).ok());
        const EmbeddingStore::TableIds table = {store.get(), ids, refs,
                                                nullptr,     {},  rows.data()};
        if (!EmbeddingStore::FindOrInsert({&table, 1}, {}, nullptr).ok()) {
          ++wrong;
        }
        for (size_t i = 0; i < ids.size(); ++i) {
          if (!found[i] || !refs[i].found() || frequencies[i] < 1) ++wrong;
          const float* row = &rows[i * kDim];
          if (row[0] != row[1] || row[0] > 0.0f) ++wrong;
        }
      }));
      threads.push_back(until_stopped([&] {
        Advance(store.get(), ids);
        EXPECT_TRUE(store->SetStep(++steps).ok());
        // Counted exactly once, whether moved before, during or after the call.
        std::vector<bool> there = Lookup(store.get(), ids, false);
        for (bool found : there) {
          if (!found) ++wrong;
        }
      }));
      for (int64_t first = kStay; first < kGo; first += 300) {
        ASSERT_EQ(Remove(store.get(), Range(first, first + 300)), 300);
        EXPECT_GE(Compact(store.get()), 0);
        // Forces steps between the moves, however threads are scheduled.
        while (steps < first / 1000) std::this_thread::yield();
      }
      stop = true;
      for (std::thread& thread : threads) thread.join();
      ASSERT_EQ(wrong, 0);
      EXPECT_EQ(store->size(), kStay);
      const EmbeddingRows rows = Export(*store);
      for (size_t i = 0; i < ids.size(); ++i) {
        ASSERT_EQ(rows.frequencies[i], 1 + steps) << i;
        ASSERT_EQ(rows.values.as<float>()[i * kDim], -0.5f * steps) << i;
      }
      EXPECT_EQ(store->Stats().count(Event::kGradientsDropped), 0);
    }
  }
}

}  // namespace
}  // namespace lodestar
