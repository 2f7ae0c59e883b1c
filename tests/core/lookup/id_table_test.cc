// IdTable: imports, updates, and concurrent readers and writers.

#include "tf_ops/core/lookup/id_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/testing/errors.h"

namespace lodestar {
namespace {

template <typename Map, typename T>
Status Import(IdTable<Map>* table, const std::vector<T>& keys,
              const std::vector<int64_t>& values) {
  return table->Import(
      keys.size(), [&](int64_t i) { return typename Map::Key(keys[i]); },
      [&](int64_t i) { return values[i]; });
}

Status InsertRange(IdTable<IntegerMap>* table, int64_t begin, int64_t end) {
  return table->Insert(
      end - begin, [=](int64_t i) { return begin + i; },
      [=](int64_t i) { return begin + i; });
}

TEST(IdTableTest, IsNotInitializedBeforeAnImport) {
  IdTable<IntegerMap> table(/*is_mutable=*/false);
  IdTable<IntegerMap>::View view;
  ExpectError(table.Read(&view), StatusCode::kFailedPrecondition,
              {"is not initialized"});
  EXPECT_EQ(table.size(), 0);
  ASSERT_TRUE((Import<IntegerMap, int64_t>(&table, {}, {}).ok()));
  EXPECT_TRUE(table.Read(&view).ok());
}

TEST(IdTableTest, AKeyWithTwoValuesChangesNothing) {
  IdTable<StringMap> table(/*is_mutable=*/false);
  ASSERT_TRUE(
      (Import<StringMap, std::string>(&table, {"a", "b"}, {0, 1}).ok()));
  const Status status =
      Import<StringMap, std::string>(&table, {"x", "y", "x"}, {4, 5, 6});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "key 'x' has two values: 4 and 6.");
  IdTable<StringMap>::View view;
  ASSERT_TRUE(table.Read(&view).ok());
  EXPECT_EQ(view.map().size(), 2);
  EXPECT_EQ(view.map().Find("b"), 1);
}

TEST(IdTableTest, LongKeysAreTruncatedInMessages) {
  EXPECT_EQ(KeyText(std::string_view("ab")), "'ab'");
  EXPECT_EQ(KeyText(std::string(1000, 'k')),
            "'" + std::string(100, 'k') + "...' (1000 bytes)");
}

TEST(IdTableTest, IsChangedOnlyIfMutable) {
  IdTable<IntegerMap> table(/*is_mutable=*/false);
  EXPECT_NE(InsertRange(&table, 0, 1)
                .message()
                .find("cannot insert into an id table that is not mutable"),
            std::string::npos);
  EXPECT_NE(table.Remove(1, [](int64_t i) { return i; })
                .message()
                .find("cannot remove from an id table"),
            std::string::npos);
}

TEST(IdTableTest, EntriesAreSortedByValue) {
  IdTable<IntegerMap> table(/*is_mutable=*/false);
  ASSERT_TRUE(
      (Import<IntegerMap, int64_t>(&table, {9, 0, -4}, {2, 1, 1}).ok()));
  IdTable<IntegerMap>::View view;
  ASSERT_TRUE(table.Read(&view).ok());
  const std::vector<std::pair<int64_t, int64_t>> wanted = {
      {1, -4}, {1, 0}, {2, 9}};
  EXPECT_EQ(SortedEntries(view.map()), wanted);
}

// Keys that are never removed are always found with their own values, while
// other keys are inserted and removed and the table grows or is imported again.
TEST(IdTableTest, ConcurrentReadersAndWriters) {
  constexpr int64_t kFixed = 2000;
  IdTable<IntegerMap> table(/*is_mutable=*/true);
  ASSERT_TRUE(InsertRange(&table, 0, kFixed).ok());
  std::atomic<int> writers{3};
  std::atomic<int64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      do {
        IdTable<IntegerMap>::View view;
        if (!table.Read(&view).ok()) ++wrong;
        view.map().FindBatch(
            kFixed, [](int64_t i) { return i; },
            [&](int64_t i, uint64_t, const int64_t* value) {
              if (value == nullptr || *value != i) ++wrong;
            });
      } while (writers > 0);
    });
  }
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t round = 0; round < 50; ++round) {
        if (t == 2 && round % 10 == 0) {
          // Removes the keys of the other writers and keeps the fixed ones.
          if (!table
                   .Import(
                       kFixed, [](int64_t i) { return i; },
                       [](int64_t i) { return i; })
                   .ok()) {
            ++wrong;
          }
        } else if (t == 1 && round % 2 == 1) {
          const Status status = table.Remove(
              200, [=](int64_t i) { return kFixed + round * 50 + i; });
          if (!status.ok()) ++wrong;
        } else {
          const int64_t begin = kFixed + t * 1000000 + round * 100;
          if (!InsertRange(&table, begin, begin + 100).ok()) ++wrong;
        }
      }
      --writers;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(table.size(), kFixed);
}

}  // namespace
}  // namespace lodestar
