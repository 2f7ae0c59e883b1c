#include "tf_ops/core/embedding/sharded_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/core/testing/chosen_ids.h"

namespace lodestar {
namespace {

constexpr int kDim = 2;
constexpr int kShards = 3;

std::vector<int64_t> Range(int64_t end) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < end; ++id) ids.push_back(id);
  return ids;
}

class ShardedRowsTest : public testing::Test {
 protected:
  // id i: [i, -i], seen at step i % 5.
  void Add(Span<const int64_t> ids) {
    for (int64_t id : ids) {
      const ShardedRows::IdHash hash = rows_.HashOf(id);
      RowShard& shard = rows_.shard(hash.shard);
      MutexLock lock(&shard.mutex);
      ASSERT_TRUE(rows_.Reserve(&shard, std::vector<uint32_t>{hash.tag}).ok());
      const uint32_t row = shard.rows.Allocate();
      const float value[kDim] = {static_cast<float>(id),
                                 -static_cast<float>(id)};
      CopyRowIn(value, sizeof(value), shard.rows.values(row));
      rows_.Add(&shard, hash.tag, row, id, id % 5, 1);
    }
    rows_.AddToSize(ids.size());
  }
  void Remove(int64_t id) {
    const ShardedRows::IdHash hash = rows_.HashOf(id);
    RowShard& shard = rows_.shard(hash.shard);
    MutexLock lock(&shard.mutex);
    rows_.Remove(&shard, hash.tag, shard.Find(hash.tag, id));
    rows_.AddToSize(-1);
  }
  std::vector<RowRef> Find(Span<const int64_t> ids) {
    std::vector<RowRef> refs(ids.size());
    rows_.FindAll(ids, refs, nullptr);
    return refs;
  }
  static TablePolicies Policies() {
    TablePolicies policies;
    policies.eviction.max_rows = 1000;
    policies.shared_rows = 1;
    return policies;
  }
  std::vector<bool> Locked() {
    std::vector<bool> locked;
    // std::mutex must not be tried by the thread that holds it.
    std::thread([&] {
      for (size_t s = 0; s < rows_.num_shards(); ++s) {
        std::unique_lock<Mutex> lock(rows_.shard(s).mutex, std::try_to_lock);
        locked.push_back(!lock.owns_lock());
      }
    }).join();
    return locked;
  }

  ShardedRows rows_{kDim, RowType::kFloat32, kShards, Policies()};
};

TEST_F(ShardedRowsTest, IdsAreFoundByTheirHash) {
  const std::vector<int64_t> ids = Range(200);
  Add(ids);
  EXPECT_EQ(rows_.size(), 200);
  std::vector<int64_t> asked = ids;
  asked.push_back(1000);
  const std::vector<RowRef> refs = Find(asked);
  EXPECT_FALSE(refs[200].found());
  for (int64_t id : ids) {
    ASSERT_TRUE(refs[id].found());
    EXPECT_EQ(refs[id].shard, rows_.HashOf(id).shard);
    EXPECT_TRUE(RowStore::Holds(refs[id].meta, id));
    float value[kDim];
    RowStore& store = rows_.shard(refs[id].shard).rows;
    ASSERT_TRUE(store.Read(refs[id].row, id, value));
    EXPECT_EQ(value[1], -static_cast<float>(id));
  }
  const ShardedRows::IndexLists lists = rows_.GroupByShard(ids);
  ASSERT_EQ(lists.size(), kShards);
  size_t total = 0;
  for (size_t s = 0; s < lists.size(); ++s) {
    total += lists[s].size();
    for (size_t k = 0; k < lists[s].size(); ++k) {
      EXPECT_EQ(rows_.HashOf(ids[lists[s][k]]).shard, s);
      if (k > 0) {
        EXPECT_LT(lists[s][k - 1], lists[s][k]);
      }
    }
  }
  EXPECT_EQ(total, ids.size());
}

TEST_F(ShardedRowsTest, LookAgainFindsMovedAndRemovedRows) {
  const std::vector<int64_t> ids = Range(300);
  Add(ids);
  std::vector<RowRef> refs = Find(ids);
  const std::vector<RowRef> before = refs;
  for (int64_t id = 0; id < 150; ++id) Remove(id);
  for (size_t s = 0; s < rows_.num_shards(); ++s) {
    RowShard& shard = rows_.shard(s);
    MutexLock lock(&shard.mutex);
    uint32_t low = 0;
    ASSERT_TRUE(rows_.Compact(&shard, 1000, &low));
    EXPECT_EQ(shard.rows.high_water(), shard.rows.live());
    EXPECT_GT(shard.moves.load(), 0u);
  }
  const ShardLocks locks(rows_);
  rows_.LookAgain(ids, refs);
  int64_t moved = 0;
  for (int64_t id : ids) {
    ASSERT_EQ(refs[id].found(), id >= 150);
    if (id < 150) continue;
    EXPECT_TRUE(RowStore::Holds(refs[id].meta, id));
    moved += refs[id].row != before[id].row;
  }
  EXPECT_GT(moved, 0);
}

TEST_F(ShardedRowsTest, LocksShardsWithACount) {
  EXPECT_EQ(Locked(), std::vector<bool>({false, false, false}));
  {
    const ShardLocks locks(rows_, {2, 0, 1});
    EXPECT_EQ(Locked(), std::vector<bool>({true, false, true}));
  }
  ShardLocks all(rows_, std::defer_lock);
  EXPECT_EQ(Locked(), std::vector<bool>({false, false, false}));
  all.Lock();
  EXPECT_EQ(Locked(), std::vector<bool>({true, true, true}));
  all.Unlock();
  EXPECT_EQ(Locked(), std::vector<bool>({false, false, false}));
}

TEST_F(ShardedRowsTest, RemovedIdsAreListedSinceTheBase) {
  Add(Range(30));
  Remove(1);
  {
    const ShardLocks locks(rows_);
    rows_.SetBase("first");
  }
  EXPECT_EQ(rows_.changes().base(), "first");
  Remove(2);
  Remove(3);
  std::vector<int64_t> removed;
  for (size_t s = 0; s < rows_.num_shards(); ++s) {
    RowShard& shard = rows_.shard(s);
    MutexLock lock(&shard.mutex);
    for (int64_t id : shard.removed.Take()) removed.push_back(id);
  }
  std::sort(removed.begin(), removed.end());
  EXPECT_EQ(removed, (std::vector<int64_t>{2, 3}));
  // Removing all rows is too many to list.
  const ShardLocks locks(rows_);
  EXPECT_EQ(rows_.FreeAll(), 27);
  EXPECT_EQ(rows_.size(), 0);
  EXPECT_EQ(rows_.changes().base(), "");
  EXPECT_FALSE(rows_.shard(0).rows.marking());
}

TEST_F(ShardedRowsTest, ChangesOfAllRowsWaitForTheSnapshot) {
  rows_.changes().BeginSnapshot(std::make_shared<ImageBudget>(StepGates(), 0));
  std::atomic<bool> ended{false};
  std::thread waiting([&] {
    ShardLocks locks(rows_, std::defer_lock);
    rows_.LockBetweenSnapshots(&locks);
    EXPECT_TRUE(ended);
    EXPECT_EQ(Locked(), std::vector<bool>({true, true, true}));
  });
  ended = true;
  rows_.changes().EndSnapshot(nullptr);
  waiting.join();
}

// Independent of how many parts the row is drawn in.
TEST(ShardedRowsOfWideRowsTest, ARowStartsWithTheInitialValueOfItsId) {
  constexpr int kWide = 2 * kPart + 5;
  for (const RowType type : {RowType::kFloat32, RowType::kBFloat16}) {
    ShardedRows rows(kWide, type, 1, TablePolicies());
    RowInitializer initializer;
    ASSERT_TRUE(
        RowInitializer::Create("normal", 0, 1, 3, 4, &initializer).ok());
    RowStore& store = rows.shard(0).rows;
    ASSERT_TRUE(store.Reserve(1).ok());
    const uint32_t row = store.Allocate();
    rows.DrawInto(initializer, 9, &store, row);
    store.Publish(row, 9, 0, 0);
    std::vector<char> wanted(rows.row_bytes());
    rows.Draw(initializer, 9, wanted.data());
    std::vector<char> found(rows.row_bytes());
    ASSERT_TRUE(store.Read(row, 9, found.data()));
    EXPECT_EQ(found, wanted);
  }
}

TEST_F(ShardedRowsTest, ChosenIdsHaveDifferentTags) {
  constexpr int64_t kIds = 16000;
  std::set<uint32_t> tags;
  for (const int64_t id : IdsWithEqualLowBits(kIds)) {
    tags.insert(rows_.HashOf(id).tag);
  }
  EXPECT_GT(tags.size(), kIds - 10u);
}

// Shards are part of what tables promise, so they have no key.
TEST_F(ShardedRowsTest, ShardsAreTheSameInAllProcesses) {
  for (const int64_t id : {0, 1, -7, 12345}) {
    EXPECT_EQ(rows_.HashOf(id).shard,
              FastRange32(static_cast<uint32_t>(Mix64(id) >> 32), kShards));
  }
}

}  // namespace
}  // namespace lodestar
