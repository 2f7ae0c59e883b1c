// IntegerMap and StringMap against std::map.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tf_ops/core/integer_map.h"
#include "tf_ops/core/string_map.h"

namespace lodestar {
namespace {

template <typename Map, typename Model>
void ExpectSame(const Map& map, const Model& model) {
  ASSERT_EQ(map.size(), static_cast<int64_t>(model.size()));
  int64_t visited = 0;
  map.ForEach([&](const auto& key, int64_t value) {
    const auto it = model.find(typename Model::key_type(key));
    ASSERT_NE(it, model.end());
    ASSERT_EQ(it->second, value);
    ++visited;
  });
  ASSERT_EQ(visited, map.size());
  for (const auto& [key, value] : model) {
    const auto found = map.Find(key);
    ASSERT_TRUE(found);
    ASSERT_EQ(*found, value);
  }
}

TEST(IntegerMapTest, AgreesWithAModel) {
  std::mt19937_64 rng(3);
  IntegerMap map;
  std::map<int64_t, int64_t> model;
  EXPECT_EQ(map.Find(1), nullptr);
  EXPECT_FALSE(map.Remove(1));
  const int64_t edges[] = {std::numeric_limits<int64_t>::min(), -1, 0,
                           std::numeric_limits<int64_t>::max()};
  for (int i = 0; i < 40000; ++i) {
    const int64_t key = i % 9 == 0 ? edges[rng() % 4]
                                   : static_cast<int64_t>(rng() % 3000) << 40;
    if (rng() % 3 == 0) {
      ASSERT_EQ(map.Remove(key), model.erase(key) == 1);
    } else {
      map.Assign(key, i);
      model[key] = i;
    }
    if (i % 4000 == 0) ExpectSame(map, model);
  }
  ExpectSame(map, model);
}

TEST(IntegerMapTest, BatchesVisitEveryKeyInOrder) {
  IntegerMap map;
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < 100; ++i) {
    keys.push_back(i * 1000);
    if (i % 2 == 0) map.Assign(i * 1000, -i);
  }
  int64_t next = 0;
  map.FindBatch(
      100, [&](int64_t i) { return keys[i]; },
      [&](int64_t i, const int64_t* value) {
        ASSERT_EQ(i, next++);
        ASSERT_EQ(value != nullptr, i % 2 == 0);
        if (value != nullptr) {
          ASSERT_EQ(*value, -i);
        }
      });
  EXPECT_EQ(next, 100);
}

TEST(StringMapTest, AgreesWithAModel) {
  std::mt19937_64 rng(4);
  StringMap map;
  std::map<std::string, int64_t> model;
  EXPECT_FALSE(map.Find("a"));
  EXPECT_FALSE(map.Remove("a"));
  for (int i = 0; i < 40000; ++i) {
    const uint64_t word = rng() % 3000;
    // Keys of every small length, with NULs, and the empty key.
    std::string key(reinterpret_cast<const char*>(&word), word % 8);
    key += std::string(word % 40, static_cast<char>(word));
    if (word == 77) key.clear();
    if (rng() % 3 == 0) {
      ASSERT_EQ(map.Remove(key), model.erase(key) == 1);
    } else {
      const int64_t value = static_cast<int64_t>(rng()) >> (rng() % 64);
      map.Assign(key, value);
      model[key] = value;
    }
    if (i % 4000 == 0) ExpectSame(map, model);
  }
  ExpectSame(map, model);
}

TEST(StringMapTest, KeysLargerThanAChunk) {
  StringMap map;
  std::map<std::string, int64_t> model;
  for (int i = 0; i < 6; ++i) {
    const std::string large(1000000 + i * 30000, static_cast<char>('a' + i));
    for (const std::string& key : {large, "small" + std::to_string(i)}) {
      map.Assign(key, i);
      model[key] = i;
    }
  }
  ExpectSame(map, model);
}

TEST(StringMapTest, BytesOfAMillionShortKeys) {
  StringMap map;
  int64_t key_bytes = 0;
  constexpr int kKeys = 1000000;
  map.Reserve(kKeys);
  for (int i = 0; i < kKeys; ++i) {
    const std::string key = "item_" + std::to_string(i * 7919LL);
    key_bytes += key.size();
    map.Assign(key, i);
  }
  EXPECT_LE(map.bytes(), key_bytes * 13 / 10 + 16LL * kKeys);
}

}  // namespace
}  // namespace lodestar
