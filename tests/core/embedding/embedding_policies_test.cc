// Admission and eviction of a table in host memory.

#include "tests/core/embedding/embedding_policies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/testing/errors.h"
#include "tests/core/testing/rows_view.h"
#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/admission.h"

namespace lodestar {
namespace {

using Admit = EmbeddingStore::LookupOptions::Admit;

// Looks up a batch of ids that may repeat.
void LookupBatch(EmbeddingStore* store, const std::vector<int64_t>& batch,
                 Admit admit = Admit::kByPolicy, bool count = true,
                 const ParallelFor* parallel = nullptr) {
  std::vector<int64_t> unique;
  std::vector<int64_t> positions(batch.size());
  BatchUnique(batch, nullptr, &unique, positions);
  std::vector<uint32_t> occurrences;
  if (store->counts_occurrences()) {
    occurrences = CountOccurrences(positions, unique.size());
  }
  const EmbeddingStore::LookupOptions options = {/*insert=*/true, count, admit};
  std::vector<RowRef> refs(unique.size());
  ASSERT_TRUE(
      store->FindOrInsert(unique, options, refs, parallel, nullptr, occurrences)
          .ok());
}

TEST(EmbeddingPoliciesTest, OccurrencesCountIfTheyAreTheUnit) {
  for (const EvictionPolicy& eviction :
       {EvictionPolicy(), MaxRows(1000).eviction,
        MaxRows(1000, Order::kLfu).eviction}) {
    for (int64_t shards : {1, 7}) {
      for (int threads : {1, 8}) {
        TablePolicies policies = MinCount(10);
        policies.admission.count_occurrences = true;
        policies.eviction = eviction;
        auto store = MakeStore(policies, shards);
        const ParallelFor parallel = Threads(threads);
        std::map<int64_t, int64_t> counts;
        std::mt19937_64 rng(5);
        for (int i = 0; i < 60; ++i) {
          std::vector<int64_t> batch;
          for (int k = 0; k < 30; ++k)
            batch.push_back(rng() % 40 * (rng() % 3));
          for (int64_t id : batch) ++counts[id];
          LookupBatch(store.get(), batch, Admit::kByPolicy, true, &parallel);
          if (i % 3 == 2) Advance(store.get());
          const EmbeddingRows rows = Export(*store);
          std::map<int64_t, int64_t> found;
          for (size_t r = 0; r < rows.ids.size(); ++r) {
            EXPECT_GE(rows.frequencies[r], 10);
            found[rows.ids[r]] = rows.frequencies[r];
          }
          for (size_t r = 0; r < rows.pending_ids.size(); ++r) {
            EXPECT_LT(rows.pending_sightings[r], 10);
            found[rows.pending_ids[r]] = rows.pending_sightings[r];
          }
          ASSERT_EQ(found, counts);
        }
      }
    }
  }
}

TEST(EmbeddingPoliciesTest, FrequenciesByOccurrenceSaturate) {
  auto store = MakeStore(TablePolicies());
  const std::vector<int64_t> ids = {1};
  const EmbeddingStore::LookupOptions options = {/*insert=*/true,
                                                 /*count_frequency=*/true};
  for (const uint32_t occurrences : {0xfffffff0u, 0xeu, 0xfu}) {
    std::vector<RowRef> refs(1);
    ASSERT_TRUE(store
                    ->FindOrInsert(ids, options, refs, nullptr, nullptr,
                                   std::vector<uint32_t>{occurrences})
                    .ok());
  }
  EXPECT_EQ(Export(*store).frequencies, (std::vector<int64_t>{0xffffffff}));
}

TEST(EmbeddingPoliciesTest, ALookupMayAdmitAllOrNone) {
  for (const TablePolicies& policies : {MinCount(2), CountingBloom(2, 5000)}) {
    auto store = MakeStore(policies);
    LookupBatch(store.get(), {7, 7}, Admit::kNone);
    Advance(store.get());
    LookupBatch(store.get(), {7}, Admit::kNone);
    EXPECT_EQ(store->size(), 0);  // though it occurred often enough
    LookupBatch(store.get(), {8}, Admit::kAll);
    LookupBatch(store.get(), {7}, Admit::kByPolicy, false);
    const EmbeddingRows rows = Export(*store);
    EXPECT_EQ(rows.ids, (std::vector<int64_t>{7, 8}));
    EXPECT_EQ(rows.frequencies, (std::vector<int64_t>{2, 1}));
    EXPECT_TRUE(rows.pending_ids.empty());
  }
  auto open = MakeStore(TablePolicies());
  LookupBatch(open.get(), {7}, Admit::kNone);
  EXPECT_EQ(open->size(), 0);
  LookupBatch(open.get(), {7}, Admit::kAll);
  EXPECT_EQ(open->size(), 1);
}

TEST(EmbeddingPoliciesTest, ASketchIsNeverLateAndSeldomEarly) {
  auto store = MakeStore(CountingBloom(3, 100000));
  std::vector<int64_t> early;
  for (int step = 0; step < 3; ++step) {
    for (int twice = 0; twice < 2; ++twice) {
      const std::vector<bool> found = Lookup(store.get(), Range(0, 10000));
      for (int64_t id = 0; id < 10000; ++id) {
        if (step == 2) {
          EXPECT_TRUE(found[id]);
        } else if (twice == 1 && found[id]) {
          early.push_back(id);
        }
      }
    }
    Advance(store.get());
  }
  EXPECT_LE(early.size(), 400u);
  EXPECT_EQ(store->size(), 10000);
  // Bounded memory, except for the ids of one step.
  EXPECT_EQ(Export(*store).sketch.size(), 100000u);
  ASSERT_TRUE(store->Clear({}).ok());
  EXPECT_FALSE(Lookup(store.get(), {5})[0]);
}

TEST(EmbeddingPoliciesTest, AdmissionIsSavedAndRestored) {
  for (const TablePolicies& policies : {MinCount(2), CountingBloom(2, 5000)}) {
    auto from = MakeStore(policies);
    Lookup(from.get(), {1, 2});
    Advance(from.get());
    Lookup(from.get(), {2, 3});
    auto to = MakeStore(policies, 7);
    Lookup(to.get(), {4});
    const EmbeddingRows rows = Export(*from);
    ASSERT_TRUE(ImportInPlaceOf(&to, View(rows)).ok());
    // 3 was counted in this step already; `from` never counted 4.
    EXPECT_EQ(Lookup(to.get(), {1, 2, 3, 4}),
              (std::vector<bool>{true, true, false, false}));
    Advance(to.get());
    EXPECT_EQ(Lookup(to.get(), {3, 4}), (std::vector<bool>{true, true}));
  }
}

TEST(EmbeddingPoliciesTest, AnImportKeepsTheCountsOfItsStep) {
  auto from = MakeStore(TablePolicies(), 1);
  Lookup(from.get(), {8});
  const EmbeddingRows rows = Export(*from);
  for (const TablePolicies& policies : {MinCount(2), CountingBloom(2, 5000)}) {
    auto store = MakeStore(policies, 1);
    Advance(store.get());
    EXPECT_FALSE(Lookup(store.get(), {7})[0]);
    ASSERT_TRUE(store->Import(View(rows), nullptr).ok());
    EXPECT_FALSE(Lookup(store.get(), {7})[0]);  // still the first of two steps
    Advance(store.get());
    EXPECT_TRUE(Lookup(store.get(), {7})[0]);
  }
}

TEST(EmbeddingPoliciesTest, AnImportOfAnotherAdmissionIsRefused) {
  auto exact = MakeStore(MinCount(2));
  auto sketch = MakeStore(CountingBloom(2, 5000));
  auto other = MakeStore(CountingBloom(2, 6000));
  for (auto* store : {exact.get(), sketch.get(), other.get()}) {
    Lookup(store, {1});
    Advance(store);
    Lookup(store, {1, 2});
  }
  using Store = std::unique_ptr<EmbeddingStore>;
  auto refused = [](Store& to, const EmbeddingRows& rows,
                    const std::string& text) {
    const EmbeddingRows before = Export(*to);
    ExpectError(ImportInPlaceOf(&to, View(rows)), StatusCode::kInvalidArgument,
                {text});
    EXPECT_EQ(Export(*to).pending_ids, before.pending_ids);
    EXPECT_EQ(Export(*to).sketch, before.sketch);
  };
  refused(other, Export(*sketch), "has 5000 counters");
  refused(exact, Export(*sketch), "has 5000 counters");
  refused(sketch, Export(*exact), "with exact counts");
  EmbeddingRows bad = Export(*exact);
  bad.pending_ids[0] = bad.ids[0];
  refused(exact, bad, "and `ids` both contain");
  bad = Export(*exact);
  bad.pending_sightings[0] = -1;
  refused(exact, bad,
          "`pending_sightings[0]` must be in [0, 2^32 - 1], got -1");
  bad.pending_sightings.clear();
  refused(exact, bad, "`pending_sightings` must have 1 elements, got 0");
  auto plain = MakeStore(TablePolicies());
  EXPECT_TRUE(ImportInPlaceOf(&plain, View(Export(*exact))).ok());
}

TEST(EmbeddingPoliciesTest, ACallDoesNotEvictItsOwnIds) {
  auto store = MakeStore(MaxRows(2));
  Lookup(store.get(), {1, 2});
  Advance(store.get());
  EXPECT_EQ(Lookup(store.get(), {1, 3}, true, false),
            (std::vector<bool>{true, true}));
  Advance(store.get());
  const std::vector<int64_t> ids = {1, 4};
  const std::vector<float> rows(2 * kDim, 9.0f);
  ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
  EXPECT_EQ(Export(*store).ids, ids);
  EXPECT_EQ(Floats(Export(*store).values), rows);
}

TEST(EmbeddingPoliciesTest, ImportsObeyTheCapOrChangeNothing) {
  auto from = MakeStore(TablePolicies());
  Lookup(from.get(), Range(0, 5));
  auto to = MakeStore(MaxRows(4));
  Lookup(to.get(), {9});
  for (bool replace : {true, false}) {
    const EmbeddingRows rows = Export(*from);
    ExpectError(replace ? ImportInPlaceOf(&to, View(rows))
                        : to->Import(View(rows), nullptr),
                StatusCode::kFailedPrecondition,
                {"`max_rows` of the table is 4"});
    EXPECT_EQ(Export(*to).ids, (std::vector<int64_t>{9}));
  }
}

TEST(EmbeddingPoliciesTest, EvictByAgeAndNorm) {
  for (bool in_order : {false, true}) {
    TablePolicies policies;
    if (in_order) policies = MaxRows(1000);
    auto store = MakeStore(policies);
    for (int step = 0; step < 6; ++step) {
      Lookup(store.get(), {step, 100});
      Advance(store.get());
    }
    EvictionPolicy age;
    age.max_age = 2;
    int64_t evicted = 0;
    ASSERT_TRUE(store->Evict(age, &evicted, nullptr).ok());
    EXPECT_EQ(evicted, 4);  // now step 6: last seen at 0 to 3
    EXPECT_EQ(Export(*store).ids, (std::vector<int64_t>{4, 5, 100}));
    const std::vector<int64_t> ids = {4, 100};
    const std::vector<float> rows = {0.3f, 0.4f, 0.3f, 0.41f};
    ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
    Lookup(store.get(), {5});
    EvictionPolicy norm;
    norm.min_norm = 0.505f;
    ASSERT_TRUE(store->Evict(norm, &evicted, nullptr).ok());
    EXPECT_EQ(Export(*store).ids, (std::vector<int64_t>{5, 100}));
    EXPECT_EQ(evicted, 1);
    norm.min_norm = 1e9f;  // 5 was seen in this step
    ASSERT_TRUE(store->Evict(norm, &evicted, nullptr).ok());
    EXPECT_EQ(Export(*store).ids, (std::vector<int64_t>{5}));
    EXPECT_EQ(store->Stats().count(Event::kEvicted), 6);
  }
}

TEST(EmbeddingPoliciesTest, EvictDownToANumberOfRows) {
  auto store = MakeStore(TablePolicies());
  // The most frequent ids are not the latest.
  for (const auto& ids : {Range(0, 5), Range(0, 5), Range(5, 20)}) {
    Lookup(store.get(), ids);
    Advance(store.get());
  }
  EvictionPolicy policy;
  policy.max_rows = 8;
  policy.order = Order::kLfu;
  int64_t evicted = 0;
  ASSERT_TRUE(store->Evict(policy, &evicted, nullptr).ok());
  std::vector<int64_t> wanted = ByMix(Range(5, 20));
  wanted.erase(wanted.begin(), wanted.begin() + 12);
  for (int64_t id = 0; id < 5; ++id) wanted.push_back(id);
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(Export(*store).ids, wanted);
  EXPECT_EQ(evicted, 12);
}

TEST(EmbeddingPoliciesTest, TheCapHoldsAtEveryInstantUnderEightCallers) {
  constexpr int64_t kCap = 300;
  for (Order order : {Order::kLru, Order::kLfu}) {
    TablePolicies policies = MaxRows(kCap, order);
    policies.admission = MinCount(2).admission;
    auto store = MakeStore(policies);
    std::atomic<bool> stop{false};
    std::thread watcher([&] {
      while (!stop) ASSERT_LE(store->size(), kCap);
    });
    std::vector<std::thread> callers;
    for (int t = 0; t < 8; ++t) {
      callers.emplace_back([&, t] {
        std::mt19937_64 rng(t);
        for (int round = 0; round < 200; ++round) {
          std::set<int64_t> ids;
          for (int i = 0; i < 40; ++i) ids.insert(rng() % 1000);
          const std::vector<int64_t> batch(ids.begin(), ids.end());
          Lookup(store.get(), batch);
          if (round % 3 == 0) Advance(store.get(), batch);
          if (round % 50 == t) {
            Remove(store.get(), batch);
          }
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    stop = true;
    watcher.join();
    EXPECT_EQ(store->size(), static_cast<int64_t>(Export(*store).ids.size()));
  }
}

}  // namespace
}  // namespace lodestar
