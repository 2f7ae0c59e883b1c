#include "tf_ops/core/rows/leaf_index.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

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

}  // namespace
}  // namespace lodestar
