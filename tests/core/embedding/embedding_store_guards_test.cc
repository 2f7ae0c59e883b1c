// One test for each guard of tf_ops/core/base/guards.h. Each test fails
// deterministically if its guard is broken.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tests/core/testing/allocation_failure.h"
#include "tests/core/testing/snapshot_content.h"
#include "tests/core/testing/stores.h"
#include "tests/core/testing/updates_outside.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/leaf_index.h"
#include "tf_ops/core/rows/row_store.h"

namespace lodestar {
namespace {

std::unique_ptr<EmbeddingStore> MakeStore(
    int64_t shards, const TablePolicies& policies = TablePolicies()) {
  return StoreOf(4, shards, InitializerOf(), policies);
}

// The caller owns `refs`, so that only the store allocates.
Status Lookup(EmbeddingStore* store, const std::vector<int64_t>& ids,
              std::vector<RowRef>* refs) {
  refs->resize(ids.size());
  return store->FindOrInsert(ids, kTraining, *refs, nullptr);
}

// A reader that meets a half-written row waits until it is complete.
TEST(EmbeddingStoreGuardsTest, SequenceWord) {
  constexpr int kDim = 8;
  Arena arena;
  RowStore rows(kDim, &arena);
  ASSERT_TRUE(rows.Reserve(1).ok());
  const uint32_t row = rows.Allocate();
  std::vector<float> written(kDim, 0.0f);
  CopyRowIn(written.data(), kDim * sizeof(float), rows.values(row));
  rows.Publish(row, 7, 0, 0);
  // Repeated, because a reader may be delayed by the scheduler.
  for (float round = 1.0f; round <= 20.0f; ++round) {
    ASSERT_TRUE(rows.Lock(row, 7));
    std::fill_n(written.begin(), kDim / 2, round);
    CopyRowIn(written.data(), kDim * sizeof(float), rows.values(row));
    std::atomic<bool> started{false};
    std::vector<float> read(kDim);
    std::thread reader([&] {
      started = true;
      EXPECT_TRUE(rows.Read(row, 7, read.data()));
    });
    while (!started) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::fill(written.begin(), written.end(), round);
    CopyRowIn(written.data(), kDim * sizeof(float), rows.values(row));
    rows.Unlock(row);
    reader.join();
    ASSERT_EQ(read, written);
  }
}

// Whichever allocation fails, a call that creates rows in all shards creates
// all of them or none.
TEST(EmbeddingStoreGuardsTest, ReservePhase) {
  std::vector<int64_t> ids(4000);
  std::vector<RowRef> refs;
  refs.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  for (int64_t allocation = 0;; ++allocation) {
    auto store = MakeStore(4);
    ASSERT_TRUE(Lookup(store.get(), {-1}, &refs).ok());
    Status status;
    bool failed;
    {
      FailAllocation fail(allocation);
      status = Lookup(store.get(), ids, &refs);
      failed = fail.failed();
    }
    const EmbeddingRows rows = Export(*store);
    if (!failed) {
      ASSERT_TRUE(status.ok());
      ASSERT_EQ(rows.ids.size(), ids.size() + 1);
      ASSERT_GT(allocation, 8);  // more than one per shard
      return;
    }
    ASSERT_EQ(status.code(), StatusCode::kResourceExhausted);
    ASSERT_EQ(rows.ids, std::vector<int64_t>{-1});
    ASSERT_EQ(store->size(), 1);
  }
}

void ExpectCountedOncePerStep(const TablePolicies& policies) {
  const auto store = MakeStore(4, policies);
  const std::vector<int64_t> ids = {1, 2, 3};
  std::vector<int64_t> frequencies(ids.size());
  std::vector<RowRef> refs;
  for (int64_t step = 1; step <= 5; ++step) {
    for (int lookup = 0; lookup < 5; ++lookup) {
      ASSERT_TRUE(Lookup(store.get(), ids, &refs).ok());
    }
    const bool admitted = step >= policies.admission.min_count;
    EXPECT_TRUE(store->Frequency(ids, frequencies, nullptr).ok());
    ASSERT_EQ(frequencies,
              std::vector<int64_t>(ids.size(), admitted ? step : 0));
    EXPECT_TRUE(store->SetStep(step).ok());
  }
}

// An id is counted once per step, however many lookups contain it.
TEST(EmbeddingStoreGuardsTest, OncePerStep) {
  ExpectCountedOncePerStep(TablePolicies());
}

TEST(EmbeddingStoreGuardsTest, OncePerStepOfRowsInOrder) {
  TablePolicies policies;
  policies.eviction.max_rows = 100;
  ExpectCountedOncePerStep(policies);
}

TEST(EmbeddingStoreGuardsTest, OncePerStepOfPendingIds) {
  TablePolicies policies;
  policies.admission.kind = AdmissionPolicy::Kind::kMinCount;
  policies.admission.min_count = 3;
  ExpectCountedOncePerStep(policies);
}

// An update computed from a row is not written once the row has changed.
TEST(EmbeddingStoreGuardsTest, RowVersion) {
  const auto store = MakeStore(1);
  std::vector<RowRef> refs;
  ASSERT_TRUE(Lookup(store.get(), {7}, &refs).ok());
  RowsOutside rows(store.get(), Unfused());
  ASSERT_TRUE(rows.Gather({7}, {1, 1, 1, 1}).ok());
  std::vector<float> row = {1, 2, 3, 4};
  const std::vector<int64_t> ids = {7};
  ASSERT_TRUE(store->InsertOrAssign(ids, row.data(), nullptr).ok());
  ASSERT_TRUE(rows.Assign().ok());
  ASSERT_EQ(rows.changed_ids, ids);
  ASSERT_EQ(rows.values, row);
}

// An incremental snapshot contains exactly the rows that were written.
TEST(EmbeddingStoreGuardsTest, ChangeMarks) {
  const std::shared_ptr<EmbeddingStore> store = MakeStore(2);
  std::vector<RowRef> refs;
  ASSERT_TRUE(Lookup(store.get(), {1, 2, 3}, &refs).ok());
  TableContent content;
  auto snapshot = BeginSnapshot(store, "");
  SaveInto(snapshot.get(), &content);
  snapshot->Commit("a");
  const std::vector<float> row = {1, 2, 3, 4};
  const std::vector<int64_t> ids = {2};
  ASSERT_TRUE(store->InsertOrAssign(ids, row.data(), nullptr).ok());
  snapshot = BeginSnapshot(store, "a");
  ASSERT_EQ(SaveInto(snapshot.get(), &content).rows, 1);
  ASSERT_TRUE(content == ContentOf(*store));
}

// Writes after a snapshot has begun are not part of it.
TEST(EmbeddingStoreGuardsTest, CopyOnWrite) {
  const std::shared_ptr<EmbeddingStore> store = MakeStore(2);
  std::vector<RowRef> refs;
  ASSERT_TRUE(Lookup(store.get(), {1, 2, 3}, &refs).ok());
  const TableContent before = ContentOf(*store);
  auto snapshot = BeginSnapshot(store, "");
  const std::vector<float> row = {1, 2, 3, 4};
  const std::vector<int64_t> ids = {2};
  ASSERT_TRUE(store->InsertOrAssign(ids, row.data(), nullptr).ok());
  TableContent content;
  SaveInto(snapshot.get(), &content);
  ASSERT_TRUE(content == before);
}

// A leaf that a reader uses stays valid, however often the index replaces it.
// (Freed memory is overwritten here.)
TEST(EmbeddingStoreGuardsTest, Epochs) {
  EpochDomain epochs;
  LeafIndex index(&epochs);
  const auto add = [&](uint32_t first, uint32_t count) {
    std::vector<uint32_t> tags;
    for (uint32_t row = first; row < first + count; ++row) {
      tags.push_back(static_cast<uint32_t>(Mix64(row)));
    }
    ASSERT_TRUE(index.Reserve(tags).ok());
    for (uint32_t i = 0; i < count; ++i) index.Insert(tags[i], first + i);
  };
  constexpr uint32_t kRow = 40;
  const uint32_t tag = static_cast<uint32_t>(Mix64(kRow));
  add(0, 100);
  {
    EpochDomain::Guard guard(&epochs);
    const LeafIndex::Cursor begin = index.Begin(tag);
    for (uint32_t first = 100; first < 100000; first *= 2) {
      add(first, first);
      LeafIndex::Cursor cursor = begin;
      ASSERT_EQ(LeafIndex::Next(tag, &cursor), kRow);
    }
    LeafIndex empty(&epochs);
    index.Replace(&empty);
    LeafIndex::Cursor cursor = begin;
    ASSERT_EQ(LeafIndex::Next(tag, &cursor), kRow);
  }
}

}  // namespace
}  // namespace lodestar
