// Eviction by frequency, copies of evicted rows, and tables that are full.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "tests/core/embedding/embedding_policies.h"
#include "tests/core/testing/threads.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

// Host memory for evicted rows of kDim floats.
struct Copies {
  std::vector<int64_t> ids;
  std::vector<float> rows;

  Table::AllocateEvicted Allocate() {
    return [this](int64_t count, Table::EvictedRows* out) {
      ids.resize(count);
      rows.resize(count * kDim);
      *out = {ids.data(), reinterpret_cast<char*>(rows.data())};
      return Status();
    };
  }
  std::map<int64_t, std::vector<float>> ById() const {
    std::map<int64_t, std::vector<float>> by_id;
    for (size_t i = 0; i < ids.size(); ++i) {
      by_id[ids[i]] = {rows.begin() + i * kDim, rows.begin() + (i + 1) * kDim};
    }
    return by_id;
  }
};

TEST(EmbeddingEvictTest, LimitsThatScanActAtMultiplesOfTheirPeriod) {
  TablePolicies policies;
  policies.eviction.min_frequency = 2;
  policies.eviction.min_frequency_every = 5;
  policies.eviction.min_norm = 0.505f;
  policies.eviction.min_norm_every = 3;
  auto store = MakeStore(policies, 4);
  const std::vector<int64_t> ids = {1, 2};
  const std::vector<float> rows = {0.3f, 0.4f, 0.3f, 0.41f};
  ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
  for (int step = 0; step < 2; ++step) {
    Lookup(store.get(), {2});
    Advance(store.get());
  }
  EXPECT_EQ(Export(*store).ids, ids);
  Advance(store.get());  // to step 3
  EXPECT_EQ(Export(*store).ids, (std::vector<int64_t>{2}));
  EXPECT_TRUE(store->SetStep(4).ok());
  const std::vector<int64_t> more = {3};
  ASSERT_TRUE(store->InsertOrAssign(more, rows.data() + 2, nullptr).ok());
  EXPECT_TRUE(store->SetStep(14, {}, /*evicts=*/false).ok());
  EXPECT_TRUE(store->SetStep(4).ok());
  EXPECT_EQ(store->size(), 2);
  EXPECT_TRUE(store->SetStep(6).ok());  // passes 5, and reaches 6
  EXPECT_EQ(Export(*store).ids, (std::vector<int64_t>{2}));
  EXPECT_EQ(store->Stats().count(Event::kEvicted), 2);
}

TEST(EmbeddingEvictTest, ATableThatOnlyServesKeepsItsRows) {
  TablePolicies policies;
  policies.eviction.max_age = 1;
  policies.storage = RowStorage::kFloat16;
  auto store = MakeStore(policies);
  const std::vector<float> row = {1, 2};
  const std::vector<int64_t> ids = {1};
  ASSERT_TRUE(store->InsertOrAssign(ids, row.data(), nullptr).ok());
  EXPECT_TRUE(store->SetStep(9).ok());
  EXPECT_EQ(store->size(), 1);
}

TEST(EmbeddingEvictTest, MinFrequencyAndMaxRowsApplyTogether) {
  auto store = MakeStore(TablePolicies());
  Lookup(store.get(), Range(0, 20));
  Advance(store.get());
  Lookup(store.get(), Range(5, 20));
  Advance(store.get());
  EvictionPolicy policy;
  policy.min_frequency = 2;
  policy.max_rows = 12;
  int64_t evicted = 0;
  ASSERT_TRUE(store->Evict(policy, &evicted, nullptr).ok());
  EXPECT_EQ(evicted, 8);
  EXPECT_EQ(store->size(), 12);
  for (int64_t id : Export(*store).ids) EXPECT_GE(id, 5);
}

TEST(EmbeddingEvictTest, EvictedRowsAreCopied) {
  for (int64_t shards : {1, 7}) {
    auto store = MakeStore(TablePolicies(), shards);
    Lookup(store.get(), Range(0, 50));
    Advance(store.get(), Range(0, 50));
    Lookup(store.get(), Range(20, 50));
    Advance(store.get());
    const EmbeddingRows before = Export(*store);
    EvictionPolicy seldom;
    seldom.min_frequency = 2;
    Copies copies;
    int64_t evicted = 0;
    ASSERT_TRUE(
        store->EvictRows(seldom, copies.Allocate(), &evicted, nullptr).ok());
    EXPECT_EQ(evicted, 20);
    const auto by_id = copies.ById();
    ASSERT_EQ(by_id.size(), 20u);
    for (int64_t i = 0; i < 20; ++i) {
      const float* row = before.values.as<float>().data() + i * kDim;
      EXPECT_EQ(by_id.at(i), std::vector<float>(row, row + kDim));
    }
    EXPECT_EQ(Export(*store).ids, Range(20, 50));
    // Nothing is left to evict.
    ASSERT_TRUE(
        store->EvictRows(seldom, copies.Allocate(), &evicted, nullptr).ok());
    EXPECT_EQ(evicted, 0);
    EXPECT_TRUE(copies.ids.empty());
  }
}

TEST(EmbeddingEvictTest, NothingIsEvictedWithoutMemoryForTheCopies) {
  TablePolicies policies = MinCount(1);
  auto store = MakeStore(policies);
  Lookup(store.get(), Range(0, 9));
  Advance(store.get());
  EvictionPolicy all;
  all.max_age = 0;
  int64_t evicted = 0;
  const Status status = store->EvictRows(
      all,
      [](int64_t count, Table::EvictedRows*) {
        EXPECT_EQ(count, 9);
        return ResourceExhausted("no memory");
      },
      &evicted, nullptr);
  EXPECT_EQ(status.message(), "no memory");
  EXPECT_EQ(Export(*store).ids, Range(0, 9));
  EXPECT_EQ(store->Stats().count(Event::kEvicted), 0);
}

TablePolicies Full(int64_t n) {
  TablePolicies policies = MaxRows(n);
  policies.eviction.raise_when_full = true;
  policies.table_name = "user";
  return policies;
}

Status TryLookup(EmbeddingStore* store, const std::vector<int64_t>& ids) {
  std::vector<RowRef> refs(ids.size());
  return store->FindOrInsert(ids, kTraining, refs, nullptr);
}

TEST(EmbeddingEvictTest, AFullTableRaisesAndChangesNothing) {
  for (int64_t min_count : {1, 2}) {
    TablePolicies policies = Full(10);
    policies.admission = MinCount(min_count).admission;
    auto store = MakeStore(policies);
    for (int64_t step = 0; step < min_count; ++step) {
      Lookup(store.get(), Range(0, 8));
      Advance(store.get());
    }
    for (int64_t step = 1; step < min_count; ++step) {
      Lookup(store.get(), Range(8, 11));
      Advance(store.get());
    }
    EXPECT_EQ(store->size(), 8);
    const EmbeddingRows before = Export(*store);
    const auto events = store->Stats().events;
    const Status status = TryLookup(store.get(), Range(5, 11));
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.message(),
              "table 'user' is full: it has 8 of at most 10 rows, and the call "
              "has 3 new ids. Remove rows, raise the limit, or use "
              "MaxRows(when_full='evict'). No row was changed.");
    const EmbeddingRows after = Export(*store);
    EXPECT_EQ(after.ids, before.ids);
    EXPECT_EQ(after.frequencies, before.frequencies);
    EXPECT_EQ(after.last_seen, before.last_seen);
    EXPECT_EQ(after.pending_ids, before.pending_ids);
    EXPECT_EQ(after.pending_sightings, before.pending_sightings);
    EXPECT_EQ(store->Stats().events, events);
    // As many as there is room for, and resident ids.
    EXPECT_TRUE(TryLookup(store.get(), Range(0, 10)).ok());
    EXPECT_TRUE(TryLookup(store.get(), Range(0, 10)).ok());
    EXPECT_EQ(store->size(), 10);
    int64_t removed = 0;
    const std::vector<int64_t> gone = {0};
    ASSERT_TRUE(store->Remove(gone, &removed, nullptr).ok());
    Lookup(store.get(), {10});
    EXPECT_EQ(store->size(), 10);
  }
}

TEST(EmbeddingEvictTest, NoOtherTableChangesIfOneIsFull) {
  auto full = MakeStore(Full(2));
  auto other = MakeStore(TablePolicies());
  const std::vector<int64_t> ids = {1, 2, 3};
  std::vector<RowRef> refs(6);
  const std::vector<EmbeddingStore::TableIds> tables = {
      {other.get(), ids, {refs.data(), 3}, nullptr, {}, nullptr, {}, {}},
      {full.get(), ids, {refs.data() + 3, 3}, nullptr, {}, nullptr, {}, {}}};
  EXPECT_FALSE(EmbeddingStore::FindOrInsert(tables, kTraining, nullptr).ok());
  EXPECT_EQ(other->size(), 0);
  EXPECT_EQ(full->size(), 0);
}

TEST(EmbeddingEvictTest, AFullTableRefusesAssignmentsAndImports) {
  auto store = MakeStore(Full(2));
  const std::vector<int64_t> ids = {1, 2, 3};
  const std::vector<float> rows(3 * kDim, 1.0f);
  EXPECT_EQ(store->InsertOrAssign(ids, rows.data(), nullptr).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(store->size(), 0);
  EXPECT_TRUE(
      store->InsertOrAssign({ids.data(), 2}, rows.data(), nullptr).ok());
  // A table without a name.
  TablePolicies policies = Full(2);
  policies.table_name.clear();
  auto unnamed = MakeStore(policies);
  EXPECT_EQ(
      TryLookup(unnamed.get(), ids).message().rfind("the table is full", 0),
      0u);
  // No eviction order is kept.
  EXPECT_EQ(store->Stats().policy_bytes, 0);
}

TEST(EmbeddingEvictTest, EvictsAllRowsOnSeveralThreads) {
  auto store = MakeStore(TablePolicies());
  const ParallelFor parallel = Threads(4);
  Lookup(store.get(), Range(0, 5000), true, true, &parallel);
  Advance(store.get());
  EvictionPolicy all;
  all.max_age = 0;
  Copies copies;
  int64_t evicted = 0;
  ASSERT_TRUE(
      store->EvictRows(all, copies.Allocate(), &evicted, &parallel).ok());
  EXPECT_EQ(evicted, 5000);
  EXPECT_EQ(copies.ById().size(), 5000u);
}

}  // namespace
}  // namespace lodestar
