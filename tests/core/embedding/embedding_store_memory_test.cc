// Fails every allocation of every mutating call in turn: the call reports the
// error, and the table and its counters are unchanged.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/core/testing/allocation_failure.h"
#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/stores.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

constexpr int kDim = 3;
using Store = std::unique_ptr<EmbeddingStore>;

std::vector<int64_t> Ids(int64_t begin, int64_t end) {
  std::vector<int64_t> ids;
  for (int64_t id = begin; id < end; ++id) ids.push_back(id * 4096);
  return ids;
}

const std::vector<float> kAdamNumbers = {0.1f, 0.0f, 0.1f, 0.001f, 1e-7f, 0.1f};
const std::vector<float> kNoInits = {0.0f, 0.0f};

SparseOptimizer Adam() { return OptimizerOf("adam", kAdamNumbers); }

// A table of rows [0, count), some of which were removed again.
Store MakeStore(int64_t shards, int64_t count, bool with_optimizer) {
  Store store = StoreOf(kDim, shards);
  const std::vector<int64_t> ids = Ids(0, count);
  FindOrInsert(store.get(), ids);
  if (with_optimizer) {
    const std::vector<float> gradients(ids.size() * kDim, 1.0f);
    const Rule adam = {"adam", kAdamNumbers, kNoInits};
    EXPECT_TRUE(Apply(store.get(), ids, gradients, adam).ok());
  }
  Remove(store.get(), Ids(0, count / 4));
  return store;
}

// Everything observable of a table.
auto ContentOf(const EmbeddingStore& store) {
  const EmbeddingRows rows = Export(store);
  const EmbeddingStats s = store.Stats();
  return std::make_tuple(
      rows.ids, rows.values, rows.slots, rows.frequencies, rows.last_seen,
      rows.optimizer.name, rows.optimizer.slot_inits, rows.step, rows.seed,
      rows.salt, rows.pending_ids, rows.pending_sightings, rows.sketch,
      rows.shared_values, rows.shared_slots, s.count(Event::kEvicted),
      s.count(Event::kRefused), s.rows, s.count(Event::kHits),
      s.count(Event::kMisses), s.count(Event::kInserts),
      s.count(Event::kRemoved), s.count(Event::kGradientsDropped));
}

void FailEachAllocation(const std::function<Store()>& make,
                        const std::function<Status(EmbeddingStore*)>& call,
                        int64_t at_least) {
  const Store sound = make();
  ASSERT_TRUE(call(sound.get()).ok());
  const auto wanted = ContentOf(*sound);
  for (int64_t allocation = 0;; ++allocation) {
    const Store store = make();
    const auto before = ContentOf(*store);
    Status status;
    bool failed;
    {
      FailAllocation fail(allocation);
      status = call(store.get());
      failed = fail.failed();
    }
    if (!failed) {
      EXPECT_TRUE(status.ok());
      EXPECT_GE(allocation, at_least);
      return;
    }
    ASSERT_EQ(status.code(), StatusCode::kResourceExhausted) << allocation;
    ASSERT_NE(status.message().find("out of memory"), std::string::npos);
    ASSERT_TRUE(ContentOf(*store) == before) << allocation;
    // The failed call left no hidden state behind either.
    ASSERT_TRUE(call(store.get()).ok()) << allocation;
    ASSERT_TRUE(ContentOf(*store) == wanted) << allocation;
  }
}

TEST(EmbeddingStoreMemoryTest, FindOrInsert) {
  const std::vector<int64_t> ids = Ids(1000, 3500);
  std::vector<RowRef> refs(ids.size());
  const auto call = [&](EmbeddingStore* store) {
    return store->FindOrInsert(ids, kTraining, refs, nullptr);
  };
  for (bool with_optimizer : {false, true}) {
    FailEachAllocation([&] { return MakeStore(2, 2000, with_optimizer); }, call,
                       10);
  }
}

// Rows are created in both tables or in none, in either order of the tables.
TEST(EmbeddingStoreMemoryTest, FindOrInsertInTwoTables) {
  const std::vector<int64_t> ids = Ids(1000, 3500);
  std::vector<RowRef> refs[2] = {std::vector<RowRef>(ids.size()),
                                 std::vector<RowRef>(ids.size())};
  std::vector<char> resident(ids.size());
  const auto call = [&](const Store& a, const Store& b) {
    const EmbeddingStore::TableIds tables[] = {
        {a.get(), ids, refs[0], resident.data()}, {b.get(), ids, refs[1]}};
    return EmbeddingStore::FindOrInsert({tables, 2}, kTraining, nullptr);
  };
  bool failed = true;
  for (int64_t allocation = 0; failed; ++allocation) {
    const Store stores[2] = {MakeStore(2, 2000, false),
                             MakeStore(3, 1500, true)};
    const auto before = {ContentOf(*stores[0]), ContentOf(*stores[1])};
    Status status;
    {
      FailAllocation fail(allocation);
      status = call(stores[allocation % 2], stores[1 - allocation % 2]);
      failed = fail.failed();
    }
    if (failed) {
      ASSERT_EQ(status.code(), StatusCode::kResourceExhausted) << allocation;
      ASSERT_TRUE(ContentOf(*stores[0]) == before.begin()[0]) << allocation;
      ASSERT_TRUE(ContentOf(*stores[1]) == before.begin()[1]) << allocation;
      continue;
    }
    ASSERT_TRUE(status.ok());
    EXPECT_GE(allocation, 20);
    EXPECT_EQ(stores[0]->size(), 3000);
    EXPECT_EQ(stores[1]->size(), 3125);
    const char* had_row = resident.data();
    const int64_t known = allocation % 2 == 0 ? 1000 : 500;
    EXPECT_EQ(std::count(had_row, had_row + ids.size(), 1), known);
  }
}

// Tables with a cap and with each admission, with pending ids.
TEST(EmbeddingStoreMemoryTest, FindOrInsertUnderPolicies) {
  using Kind = AdmissionPolicy::Kind;
  for (Kind kind : {Kind::kAll, Kind::kMinCount, Kind::kCountingBloom}) {
    TablePolicies policies;
    policies.admission = {kind, kind == Kind::kAll ? 1 : 2, 5000, 3};
    policies.eviction.max_rows = 1500;
    const std::vector<int64_t> ids = Ids(0, 3000);
    std::vector<RowRef> refs(ids.size());
    const auto see = [&](EmbeddingStore* store, int64_t count) {
      return store->FindOrInsert({ids.data(), count}, kTraining,
                                 {refs.data(), count}, nullptr);
    };
    const auto make_empty = [&] {
      return StoreOf(kDim, 3, InitializerOf(), policies);
    };
    // The first call also allocates the sketch.
    FailEachAllocation(
        make_empty, [&](EmbeddingStore* store) { return see(store, 3000); },
        10);
    const auto make = [&] {
      Store store = make_empty();
      for (int64_t step = 0; step < 2; ++step) {
        EXPECT_TRUE(store->SetStep(step).ok());
        EXPECT_TRUE(see(store.get(), 2000).ok());
      }
      EXPECT_TRUE(store->SetStep(2).ok());
      return store;
    };
    FailEachAllocation(
        make, [&](EmbeddingStore* store) { return see(store, 3000); }, 10);
    // Finds room by a scan, which allocates memory.
    EvictionPolicy policy;
    policy.max_age = 5;
    policy.min_norm = 0.5f;
    policy.max_rows = 100;
    int64_t evicted;
    FailEachAllocation(
        make,
        [&](EmbeddingStore* store) {
          return store->Evict(policy, &evicted, nullptr);
        },
        5);
    policy = EvictionPolicy();
    policy.max_age = 1;
    FailEachAllocation(
        make,
        [&](EmbeddingStore* store) {
          return store->Evict(policy, &evicted, nullptr);
        },
        2);
  }
}

// Splits leaves and doubles the directory.
TEST(EmbeddingStoreMemoryTest, FindOrInsertThatSplitsLeaves) {
  const std::vector<int64_t> ids = Ids(50, 33500);
  std::vector<RowRef> refs(ids.size());
  FailEachAllocation([&] { return MakeStore(1, 100, false); },
                     [&](EmbeddingStore* store) {
                       return store->FindOrInsert(ids, kTraining, refs,
                                                  nullptr);
                     },
                     10);
}

// The first call attaches the optimizer: its slots and the new rows are created
// atomically.
TEST(EmbeddingStoreMemoryTest, Apply) {
  const std::vector<int64_t> ids = Ids(1000, 3500);
  const std::vector<float> gradients(ids.size() * kDim, 0.5f);
  const SparseOptimizer adam = Adam();
  const auto call = [&](EmbeddingStore* store) {
    return store->Apply(ids, gradients.data(), "adam", adam, kNoInits, true, -1,
                        nullptr);
  };
  for (bool with_optimizer : {false, true}) {
    FailEachAllocation([&] { return MakeStore(2, 3000, with_optimizer); }, call,
                       10);
  }
}

// Rows gathered for an update and assigned; the caller owns their memory.
TEST(EmbeddingStoreMemoryTest, GatherForUpdateAndAssignIfUnchanged) {
  constexpr int64_t kCount = 500;
  const std::vector<int64_t> ids = Ids(0, kCount);
  const std::vector<float> gradients(kCount * kDim, 0.5f);
  const std::unique_ptr<bool[]> shared(new bool[kCount]());
  const std::unique_ptr<bool[]> changed(new bool[kCount]);
  std::vector<int64_t> row_ids(kCount);
  const std::unique_ptr<bool[]> row_shared(new bool[kCount]);
  std::vector<float> row_gradients(kCount * kDim);
  std::vector<float> values(kCount * kDim);
  std::vector<float> slots(2 * kCount * kDim);
  std::vector<int64_t> versions(kCount);
  AttachedOptimizer optimizer;
  optimizer.name = "replay:one that is too long to lie in the string";
  optimizer.slot_names = {"m", "v"};
  optimizer.slot_inits = {0.5f, 0.0f};
  int64_t rows = 0;
  const EmbeddingStore::AllocateUpdate allocate = [&](int64_t count,
                                                      RowsForUpdate* out) {
    rows = count;
    *out = {row_ids.data(), row_shared.get(), row_gradients.data(),
            values.data(),  slots.data(),     versions.data()};
    return Status();
  };
  TableUpdate update;
  update.ids = ids;
  update.gradients = gradients.data();
  const auto gather = [&](EmbeddingStore* store) {
    return store->GatherForUpdate(update, {shared.get(), kCount}, optimizer,
                                  allocate, nullptr);
  };
  const auto make = [](int64_t shared_rows) {
    TablePolicies policies;
    policies.shared_rows = shared_rows;
    Store store = StoreOf(kDim, 3, InitializerOf(), policies);
    const std::vector<int64_t> half = Ids(0, kCount / 2);
    const std::vector<float> ones(half.size() * kDim, 1.0f);
    EXPECT_TRUE(store->InsertOrAssign(half, ones.data(), nullptr).ok());
    return store;
  };
  for (int64_t shared_rows : {0, 7}) {
    FailEachAllocation([&] { return make(shared_rows); }, gather, 8);
    FailEachAllocation(
        [&] {
          Store store = make(shared_rows);
          EXPECT_TRUE(gather(store.get()).ok());
          EXPECT_EQ(rows, kCount / 2 + shared_rows);
          std::fill(values.begin(), values.end(), 2.0f);
          return store;
        },
        [&](EmbeddingStore* store) {
          UpdatedRows updated;
          updated.ids = {row_ids.data(), rows};
          updated.shared = {row_shared.get(), rows};
          updated.versions = {versions.data(), rows};
          updated.values = values.data();
          updated.slots = slots.data();
          return store->AssignIfUnchanged(updated, optimizer, 5, changed.get(),
                                          nullptr);
        },
        1);
  }
}

// A failed attempt to attach an optimizer leaves no trace for another one.
TEST(EmbeddingStoreMemoryTest, ApplyToSharedRows) {
  TablePolicies policies;
  policies.shared_rows = 7;
  const std::vector<int64_t> ids = Ids(0, 100);
  const std::vector<float> gradients(ids.size() * kDim, 0.5f);
  const SparseOptimizer adam = Adam();
  FailEachAllocation(
      [&] { return StoreOf(kDim, 3, InitializerOf(), policies); },
      [&](EmbeddingStore* store) {
        return store->Apply(ids, gradients.data(), "adam", adam, kNoInits,
                            false, -1, nullptr);
      },
      5);
}

TEST(EmbeddingStoreMemoryTest, AFailedApplyLeavesTheTableToAnyOptimizer) {
  const std::vector<int64_t> ids = Ids(0, 3000);
  const std::vector<float> gradients(ids.size() * kDim, 0.5f);
  const std::vector<float> ftrl_inits = {0.1f, 0.0f};
  const SparseOptimizer ftrl =
      OptimizerOf("ftrl", {0.1f, 0, -0.5f, 0, 0, 0, 0});
  const SparseOptimizer adam = Adam();
  const auto apply_adam = [&](EmbeddingStore* store) {
    return store->Apply(ids, gradients.data(), "adam", adam, kNoInits, true, -1,
                        nullptr);
  };
  const Store sound = MakeStore(2, 3000, false);
  ASSERT_TRUE(apply_adam(sound.get()).ok());
  for (int64_t allocation = 0;; ++allocation) {
    const Store store = MakeStore(2, 3000, false);
    {
      FailAllocation fail(allocation);
      const Status status = store->Apply(ids, gradients.data(), "ftrl", ftrl,
                                         ftrl_inits, true, -1, nullptr);
      if (!fail.failed()) break;
      ASSERT_EQ(status.code(), StatusCode::kResourceExhausted);
    }
    ASSERT_TRUE(apply_adam(store.get()).ok());
    ASSERT_TRUE(ContentOf(*store) == ContentOf(*sound)) << allocation;
  }
}

TEST(EmbeddingStoreMemoryTest, InsertOrAssign) {
  const std::vector<int64_t> ids = Ids(1000, 3500);
  const std::vector<float> rows(ids.size() * kDim, 0.5f);
  for (bool with_optimizer : {false, true}) {
    FailEachAllocation([&] { return MakeStore(2, 3000, with_optimizer); },
                       [&](EmbeddingStore* store) {
                         return store->InsertOrAssign(ids, rows.data(),
                                                      nullptr);
                       },
                       10);
  }
}

TEST(EmbeddingStoreMemoryTest, RemoveAndClear) {
  const std::vector<int64_t> ids = Ids(0, 2900);
  FailEachAllocation([&] { return MakeStore(2, 3000, true); },
                     [&](EmbeddingStore* store) {
                       int64_t removed;
                       return store->Remove(ids, &removed, {});
                     },
                     2);
  FailEachAllocation([&] { return MakeStore(2, 3000, true); },
                     [&](EmbeddingStore* store) { return store->Clear({}); },
                     1);
}

TEST(EmbeddingStoreMemoryTest, Compact) {
  FailEachAllocation(
      [&] {
        Store store = MakeStore(2, 30000, true);
        Remove(store.get(), Ids(9000, 29000));
        return store;
      },
      [&](EmbeddingStore* store) {
        int64_t returned;
        return store->Compact(&returned, {});
      },
      8);
}

// A compacted table grows again, or reports that it cannot.
TEST(EmbeddingStoreMemoryTest, FindOrInsertAfterCompact) {
  const std::vector<int64_t> ids = Ids(1000, 9000);
  std::vector<RowRef> refs(ids.size());
  FailEachAllocation(
      [&] {
        Store store = MakeStore(2, 9000, true);
        int64_t count;
        EXPECT_TRUE(store->Remove(Ids(500, 8500), &count, {}).ok());
        EXPECT_TRUE(store->Compact(&count, {}).ok());
        EXPECT_GT(count, 0);
        return store;
      },
      [&](EmbeddingStore* store) {
        return store->FindOrInsert(ids, kTraining, refs, nullptr);
      },
      10);
}

TEST(EmbeddingStoreMemoryTest, Export) {
  EmbeddingRows rows;
  FailEachAllocation([&] { return MakeStore(2, 3000, true); },
                     [&](EmbeddingStore* store) {
                       return store->Export(true, &rows, nullptr);
                     },
                     7);
}

TEST(EmbeddingStoreMemoryTest, Import) {
  const Store from = MakeStore(2, 5000, true);
  const EmbeddingRows rows = Export(*from);
  EmbeddingRowsView view = View(rows);
  view.step = 17;
  view.seed = 18;
  view.salt = 19;
  for (bool with_optimizer : {false, true}) {
    FailEachAllocation(
        [&] { return MakeStore(2, 3000, with_optimizer); },
        [&](EmbeddingStore* store) { return store->Import(view, nullptr); },
        10);
    const Store like = MakeStore(2, 3000, with_optimizer);
    for (int64_t allocation = 0;; ++allocation) {
      Store store;
      FailAllocation fail(allocation);
      const Status status =
          EmbeddingStore::CreateFrom(view, *like, nullptr, &store);
      if (!fail.failed()) {
        EXPECT_TRUE(status.ok());
        EXPECT_GE(allocation, 10);
        break;
      }
      ASSERT_EQ(status.code(), StatusCode::kResourceExhausted) << allocation;
      ASSERT_NE(status.message().find("out of memory"), std::string::npos);
      ASSERT_EQ(store, nullptr);
    }
  }
}

TEST(EmbeddingStoreMemoryTest, Create) {
  const RowInitializer initializer = InitializerOf();
  for (int64_t allocation = 0;; ++allocation) {
    Store store;
    FailAllocation fail(allocation);
    const Status status = EmbeddingStore::Create(kDim, 16, initializer, &store);
    if (!fail.failed()) {
      EXPECT_TRUE(status.ok());
      break;
    }
    ASSERT_EQ(status.code(), StatusCode::kResourceExhausted);
    ASSERT_EQ(store, nullptr);
  }
}

}  // namespace
}  // namespace lodestar
