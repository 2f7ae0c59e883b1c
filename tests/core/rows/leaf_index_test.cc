#include "tf_ops/core/rows/leaf_index.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tests/core/testing/allocation_failure.h"
#include "tf_ops/core/base/hash.h"

namespace lodestar {
namespace {

uint32_t TagOf(uint64_t row) { return static_cast<uint32_t>(Mix64(row + 1)); }

std::multiset<uint32_t> Rows(const LeafIndex& index, uint32_t tag) {
  std::multiset<uint32_t> rows;
  LeafIndex::Cursor cursor = index.Begin(tag);
  while (true) {
    const uint32_t row = LeafIndex::Next(tag, &cursor);
    if (row == LeafIndex::kNoRow) return rows;
    rows.insert(row);
  }
}

void Add(LeafIndex* index, const std::vector<uint32_t>& tags,
         uint32_t first_row) {
  ASSERT_TRUE(index->Reserve(tags).ok());
  for (size_t i = 0; i < tags.size(); ++i) {
    index->Insert(tags[i], first_row + i);
  }
}

TEST(LeafIndexTest, EmptyIndexFindsNothing) {
  EpochDomain epochs;
  LeafIndex index(&epochs);
  EXPECT_TRUE(Rows(index, 0).empty());
  EXPECT_EQ(index.bytes(), 0);
}

TEST(LeafIndexTest, EqualTagsKeepAllTheirRows) {
  EpochDomain epochs;
  LeafIndex index(&epochs);
  const std::vector<uint32_t> tags(100, 0xffffffff);
  Add(&index, tags, 0);
  EXPECT_EQ(Rows(index, 0xffffffff).size(), 100u);
  index.Remove(0xffffffff, 7);
  EXPECT_EQ(Rows(index, 0xffffffff).count(7), 0u);
  EXPECT_EQ(Rows(index, 0xffffffff).size(), 99u);
}

// Growth, splits and doubling of the directory, in one call and in many.
TEST(LeafIndexTest, HoldsEveryEntryAcrossSplits) {
  for (uint32_t batch : {1u, 1000u, 500000u}) {
    EpochDomain epochs;
    LeafIndex index(&epochs);
    const uint32_t total = batch == 1 ? 100000 : 500000;
    for (uint32_t row = 0; row < total; row += batch) {
      std::vector<uint32_t> tags;
      for (uint32_t i = row; i < std::min(total, row + batch); ++i) {
        tags.push_back(TagOf(i));
      }
      Add(&index, tags, row);
    }
    for (uint32_t row = 0; row < total; ++row) {
      ASSERT_EQ(Rows(index, TagOf(row)).count(row), 1u) << row;
    }
    EXPECT_LE(index.bytes(), static_cast<int64_t>(total) * 14);
  }
}

TEST(LeafIndexTest, ReserveEvenlyAvoidsGrowth) {
  for (uint32_t total : {1u, 1000u, 300000u}) {
    EpochDomain epochs;
    LeafIndex index(&epochs);
    ASSERT_TRUE(index.ReserveEvenly(total).ok());
    const int64_t reserved = index.bytes();
    EXPECT_LE(reserved, total * 14 + 4096);  // whole pages
    for (uint32_t row = 0; row < total; row += 500) {
      std::vector<uint32_t> tags;
      for (uint32_t i = row; i < std::min(total, row + 500); ++i) {
        tags.push_back(TagOf(i));
      }
      Add(&index, tags, row);
    }
    EXPECT_LE(index.bytes(), reserved * 1.05);
    for (uint32_t row = 0; row < total; ++row) {
      ASSERT_EQ(Rows(index, TagOf(row)).count(row), 1u) << row;
    }
  }
}

// No array of all tags: the largest allocation is a leaf.
TEST(LeafIndexTest, ReservingTakesLittleTemporaryMemory) {
  constexpr uint32_t kTotal = 400000;
  constexpr int64_t kLargestLeaf = 16384 * 8 * 8 / 5 + 4096;
  EpochDomain epochs;
  LeafIndex index(&epochs);
  LeafIndex even(&epochs);
  std::vector<uint32_t> tags;
  for (uint32_t row = 0; row < kTotal; ++row) tags.push_back(TagOf(row));
  {
    const LargestAllocation largest;
    ASSERT_TRUE(even.ReserveEvenly(kTotal).ok());
    EXPECT_LE(largest.bytes(), kLargestLeaf);
    ASSERT_TRUE(index.Reserve(tags).ok());
    EXPECT_LE(largest.bytes(), kLargestLeaf);
  }
  EXPECT_LE(index.bytes(), kTotal * 14);
  EXPECT_NEAR(even.bytes(), index.bytes(), index.bytes() * 0.05);
  for (uint32_t row = 0; row < kTotal; ++row) index.Insert(tags[row], row);
  for (uint32_t row = 0; row < kTotal; row += 100) {
    ASSERT_EQ(Rows(index, tags[row]).count(row), 1u) << row;
  }
}

// Leaves split deeper than evenly distributed tags would require.
TEST(LeafIndexTest, TagsMayShareTheirFirstBits) {
  EpochDomain epochs;
  LeafIndex index(&epochs);
  for (uint32_t row = 0; row < 200000; row += 100000) {
    std::vector<uint32_t> tags;
    for (uint32_t i = row; i < row + 100000; ++i) {
      tags.push_back(0xabc00000u | TagOf(i) >> 12);
    }
    Add(&index, tags, row);
    for (size_t i = 0; i < tags.size(); ++i) {
      ASSERT_EQ(Rows(index, tags[i]).count(row + i), 1u) << i;
    }
  }
  EXPECT_LE(index.bytes(), 200000 * 14 + (8 << 20));  // and the directory
  ASSERT_TRUE(index.ReserveEvenly(1000).ok());
}

TEST(LeafIndexTest, RandomInsertsAndRemovesAgreeWithAModel) {
  EpochDomain epochs;
  LeafIndex index(&epochs);
  std::mt19937_64 rng(1);
  std::unordered_map<uint32_t, uint32_t> model;  // row -> tag
  uint32_t next = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<uint32_t> tags(rng() % 2000);
    for (uint32_t& tag : tags) tag = static_cast<uint32_t>(rng()) % 50000 << 15;
    Add(&index, tags, next);
    for (uint32_t tag : tags) model[next++] = tag;
    for (auto it = model.begin(); it != model.end() && model.size() > 20000;) {
      index.Remove(it->second, it->first);
      it = model.erase(it);
    }
  }
  std::unordered_map<uint32_t, std::multiset<uint32_t>> by_tag;
  for (const auto& [row, tag] : model) by_tag[tag].insert(row);
  for (const auto& [tag, rows] : by_tag) ASSERT_EQ(Rows(index, tag), rows);
}

TEST(LeafIndexTest, ReplaceTakesTheFreshEntries) {
  EpochDomain epochs;
  LeafIndex index(&epochs);
  LeafIndex fresh(&epochs);
  Add(&index, {1, 2, 3}, 0);
  Add(&fresh, {2}, 9);
  index.Replace(&fresh);
  EXPECT_TRUE(Rows(index, 1).empty());
  EXPECT_EQ(Rows(index, 2), std::multiset<uint32_t>{9});
  LeafIndex empty(&epochs);
  index.Replace(&empty);
  EXPECT_TRUE(Rows(index, 2).empty());
  Add(&index, {5}, 1);
  EXPECT_EQ(Rows(index, 5).size(), 1u);
}

// A reader never misses an entry that existed when it began, while leaves grow,
// split and are freed.
TEST(LeafIndexTest, ReadersSeePublishedEntriesDuringGrowth) {
  EpochDomain epochs;
  LeafIndex index(&epochs);
  std::atomic<uint32_t> published{0};
  std::atomic<int> wrong{0};
  constexpr uint32_t kTotal = 300000;
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&, t] {
      std::mt19937_64 rng(t);
      uint32_t count = 0;
      while (count < kTotal) {
        count = published.load(std::memory_order_acquire);
        if (count == 0) continue;
        EpochDomain::Guard guard(&epochs);
        for (int i = 0; i < 64; ++i) {
          const uint32_t row = rng() % count;
          LeafIndex::Cursor cursor = index.Begin(TagOf(row));
          uint32_t found;
          do {
            found = LeafIndex::Next(TagOf(row), &cursor);
          } while (found != row && found != LeafIndex::kNoRow);
          if (found != row) ++wrong;
        }
      }
    });
  }
  for (uint32_t row = 0; row < kTotal; row += 500) {
    std::vector<uint32_t> tags;
    for (uint32_t i = row; i < row + 500; ++i) tags.push_back(TagOf(i));
    Add(&index, tags, row);
    published.store(row + 500, std::memory_order_release);
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

// Rows are removed, added and moved, and leaves are compacted and replaced,
// while readers look up rows that stay. A moved row is at one place or the
// other, and a row that a reader finds twice or never is an error.
TEST(LeafIndexTest, ReadersSeeRowsThatMoveDuringCompaction) {
  constexpr uint32_t kTags = 20000;
  EpochDomain epochs;
  LeafIndex index(&epochs);
  std::vector<uint32_t> tags;
  for (uint32_t tag = 0; tag < kTags; ++tag) tags.push_back(TagOf(tag));
  Add(&index, tags, 0);
  // Even ones stay, and their rows are tag or tag + kTags.
  std::atomic<bool> done{false};
  std::atomic<int64_t> wrong{0};
  std::atomic<int64_t> read{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&, t] {
      std::mt19937_64 rng(t);
      while (!done) {
        EpochDomain::Guard guard(&epochs);
        for (int i = 0; i < 64; ++i) {
          const uint32_t k = rng() % kTags;
          LeafIndex::Cursor cursor = index.Begin(tags[k]);
          int found = 0;
          uint32_t row;
          while ((row = LeafIndex::Next(tags[k], &cursor)) !=
                 LeafIndex::kNoRow) {
            found += row % kTags == k;
          }
          if (k % 2 == 0 && found != 1) ++wrong;
        }
        read += 64;
      }
    });
  }
  std::mt19937_64 rng(9);
  std::vector<uint32_t> rows(kTags);
  for (uint32_t k = 0; k < kTags; ++k) rows[k] = k;
  for (int round = 0; round < 20 || read < 20000; ++round) {
    // Removes odd rows, whose cells are reused only by a new leaf.
    for (uint32_t k = 1; k < kTags; k += 2) index.Remove(tags[k], rows[k]);
    for (int moves = 0; moves < 5000; ++moves) {
      const uint32_t k = rng() % kTags & ~1u;
      const uint32_t to = rows[k] < kTags ? k + kTags : k;
      index.Move(tags[k], rows[k], to);
      rows[k] = to;
    }
    uint32_t tag = 0;
    do {
      ASSERT_TRUE(index.CompactLeaf(&tag).ok());
    } while (tag != 0);
    std::vector<uint32_t> again;
    for (uint32_t k = 1; k < kTags; k += 2) again.push_back(tags[k]);
    ASSERT_TRUE(index.Reserve(again).ok());
    for (uint32_t k = 1; k < kTags; k += 2) index.Insert(tags[k], rows[k]);
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
  for (uint32_t k = 0; k < kTags; ++k) {
    EXPECT_EQ(Rows(index, tags[k]).count(rows[k]), 1u) << k;
  }
}

}  // namespace
}  // namespace lodestar
