// Compares IntegerMap and StringMap with std::map.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/core/testing/chosen_ids.h"
#include "tests/core/testing/cpu_time.h"
#include "tf_ops/core/lookup/integer_map.h"
#include "tf_ops/core/lookup/string_map.h"

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

// Inserts one key.
template <typename Map>
Status Put(Map* map, const typename Map::Key& key, int64_t value) {
  return map->Insert(
      1, [&](int64_t) { return key; }, [&](int64_t) { return value; });
}

TEST(IntegerMapTest, AgreesWithAModel) {
  std::mt19937_64 rng(3);
  IntegerMap map;
  std::map<int64_t, int64_t> model;
  EXPECT_EQ(map.Find(1), nullptr);
  EXPECT_EQ(map.Find(0), nullptr);
  EXPECT_FALSE(map.Remove(1));
  const int64_t edges[] = {std::numeric_limits<int64_t>::min(), -1, 0,
                           std::numeric_limits<int64_t>::max()};
  for (int i = 0; i < 40000; ++i) {
    const int64_t key = i % 9 == 0 ? edges[rng() % 4]
                                   : static_cast<int64_t>(rng() % 3000) << 40;
    if (rng() % 3 == 0) {
      ASSERT_EQ(map.Remove(key), model.erase(key) == 1);
    } else {
      ASSERT_TRUE(Put(&map, key, i).ok());
      model[key] = i;
    }
    if (i % 4000 == 0) ExpectSame(map, model);
  }
  ExpectSame(map, model);
}

// Lines overflow and gaps close across lines, including at the array's end.
TEST(IntegerMapTest, RemovalFromAFullMap) {
  for (uint64_t seed = 1; seed < 40; ++seed) {
    std::mt19937_64 rng(seed);
    IntegerMap map;
    std::map<int64_t, int64_t> model;
    ASSERT_TRUE(map.Reserve(40).ok());
    for (int64_t i = 0; i < 40; ++i) {
      const int64_t key = static_cast<int64_t>(rng());
      ASSERT_TRUE(Put(&map, key, i).ok());
      model[key] = i;
    }
    while (!model.empty()) {
      auto it = model.begin();
      std::advance(it, rng() % model.size());
      ASSERT_TRUE(map.Remove(it->first));
      model.erase(it);
      ExpectSame(map, model);
    }
  }
}

TEST(IntegerMapTest, BatchesVisitEveryKeyInOrder) {
  IntegerMap map;
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < 1000; ++i) {
    keys.push_back(i * 1000);
    if (i % 2 == 0) {
      ASSERT_TRUE(Put(&map, i * 1000, -i).ok());
    }
  }
  int64_t next = 0;
  map.FindBatch(
      1000, [&](int64_t i) { return keys[i]; },
      [&](int64_t i, uint64_t, const int64_t* value) {
        ASSERT_EQ(i, next++);
        ASSERT_EQ(value != nullptr, i % 2 == 0);
        if (value != nullptr) {
          ASSERT_EQ(*value, -i);
        }
      });
  EXPECT_EQ(next, 1000);
}

TEST(IntegerMapTest, FindOrAddBatchAddsZeros) {
  IntegerMap map;
  const int64_t keys[] = {5, 0, 7, 5, 0};
  ASSERT_TRUE(map.Reserve(3).ok());
  std::vector<int64_t> before;
  map.FindOrAddBatch(
      5, [&](int64_t i) { return keys[i]; },
      [&](int64_t i, int64_t* value) {
        ASSERT_EQ(i, static_cast<int64_t>(before.size()));
        before.push_back(*value);
        *value = i + 1;
      });
  EXPECT_EQ(before, (std::vector<int64_t>{0, 0, 0, 1, 2}));
  ExpectSame(map, std::map<int64_t, int64_t>{{5, 4}, {0, 5}, {7, 3}});
}

TEST(IntegerMapTest, BytesOfAMillionKeys) {
  IntegerMap map;
  constexpr int64_t kKeys = 1000000;
  ASSERT_TRUE(map.Reserve(kKeys).ok());
  EXPECT_LE(map.bytes(), 32 * kKeys + 64);
}

TEST(IntegerMapTest, TheLastOfEqualKeysIsInserted) {
  IntegerMap map;
  const int64_t keys[] = {5, 0, 5, 0, 7};
  ASSERT_TRUE(
      map.Insert(
             5, [&](int64_t i) { return keys[i]; }, [](int64_t i) { return i; })
          .ok());
  ExpectSame(map, std::map<int64_t, int64_t>{{5, 2}, {0, 3}, {7, 4}});
}

TEST(IntegerMapTest, AddNewStopsAtAnotherValue) {
  IntegerMap map;
  const int64_t keys[] = {1, 2, 1, 2, 3};
  const int64_t values[] = {10, 20, 10, 21, 30};
  const auto key = [&](int64_t i) { return keys[i]; };
  const auto value = [&](int64_t i) { return values[i]; };
  ASSERT_TRUE(map.ReserveFor(5, key, value).ok());
  EXPECT_EQ(map.AddNew(5, key, value), 3);
  EXPECT_EQ(map.AddNew(3, key, value), -1);
}

TEST(IntegerMapTest, OutOfMemoryChangesNothing) {
  IntegerMap map;
  ASSERT_TRUE(Put(&map, 7, 70).ok());
  for (int64_t count :
       {int64_t{1} << 46, std::numeric_limits<int64_t>::max()}) {
    const Status status = map.Reserve(count);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("out of memory for a table of"),
              std::string::npos);
  }
  ExpectSame(map, std::map<int64_t, int64_t>{{7, 70}});
}

TEST(StringMapTest, AgreesWithAModel) {
  std::mt19937_64 rng(4);
  StringMap map;
  std::map<std::string, int64_t> model;
  EXPECT_FALSE(map.Find("a"));
  EXPECT_FALSE(map.Remove("a"));
  for (int i = 0; i < 40000; ++i) {
    const uint64_t word = rng() % 3000;
    // Keys of every small length, with NUL bytes, and the empty key.
    std::string key(reinterpret_cast<const char*>(&word), word % 8);
    key += std::string(word % 40, static_cast<char>(word));
    if (word == 77) key.clear();
    if (rng() % 3 == 0) {
      ASSERT_EQ(map.Remove(key), model.erase(key) == 1);
    } else {
      const int64_t value = static_cast<int64_t>(rng()) >> (rng() % 64);
      ASSERT_TRUE(Put(&map, key, value).ok());
      model[key] = value;
    }
    if (i % 4000 == 0) ExpectSame(map, model);
  }
  ExpectSame(map, model);
}

TEST(StringMapTest, RemovalFromAFullMap) {
  for (uint64_t seed = 1; seed < 40; ++seed) {
    std::mt19937_64 rng(seed);
    StringMap map;
    std::map<std::string, int64_t> model;
    ASSERT_TRUE(map.Reserve(90, 2000).ok());
    for (int64_t i = 0; i < 90; ++i) {
      const std::string key = std::to_string(rng());
      ASSERT_TRUE(Put(&map, key, i).ok());
      model[key] = i;
    }
    while (!model.empty()) {
      auto it = model.begin();
      std::advance(it, rng() % model.size());
      ASSERT_TRUE(map.Remove(it->first));
      model.erase(it);
      ExpectSame(map, model);
    }
  }
}

TEST(StringMapTest, LargeKeys) {
  StringMap map;
  std::map<std::string, int64_t> model;
  for (int i = 0; i < 6; ++i) {
    const std::string large(1000000 + i * 30000, static_cast<char>('a' + i));
    for (const std::string& key : {large, "small" + std::to_string(i)}) {
      ASSERT_TRUE(Put(&map, key, i).ok());
      model[key] = i;
    }
  }
  ExpectSame(map, model);
}

TEST(StringMapTest, ChangedAndRemovedRecordsFreeTheirMemory) {
  StringMap map;
  const std::string long_key(1000, 'k');
  std::mt19937_64 rng(5);
  for (int i = 0; i < 20000; ++i) {
    const std::string key = long_key + std::to_string(i % 10);
    ASSERT_TRUE(
        Put(&map, key, static_cast<int64_t>(rng()) >> (rng() % 64)).ok());
    if (i % 3 == 0) {
      ASSERT_TRUE(map.Remove(key));
    }
  }
  EXPECT_LE(map.bytes(), 1 << 20);
}

TEST(StringMapTest, AddNewStopsAtAnotherValue) {
  StringMap map;
  const std::string keys[] = {"a", "", "a", "", "c"};
  const int64_t values[] = {10, 20, 10, -1, 30};
  const auto key = [&](int64_t i) { return StringMap::Key(keys[i]); };
  const auto value = [&](int64_t i) { return values[i]; };
  ASSERT_TRUE(map.ReserveFor(5, key, value).ok());
  EXPECT_EQ(map.AddNew(5, key, value), 3);
  EXPECT_EQ(map.AddNew(3, key, value), -1);
}

TEST(StringMapTest, OutOfMemoryChangesNothing) {
  StringMap map;
  ASSERT_TRUE(Put(&map, "a", 1).ok());
  Status status = map.Reserve(int64_t{1} << 46, 0);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("out of memory for a table of"),
            std::string::npos);
  status = map.Reserve(1, int64_t{1} << 60);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("bytes of keys"), std::string::npos);
  ExpectSame(map, std::map<std::string, int64_t>{{"a", 1}});
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // sanitizers change memory use
#else
constexpr bool kSanitized = false;
#endif

int64_t ResidentBytes() {
  int64_t pages = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(StringMapTest, BytesOfTenMillionShortKeys) {
  constexpr int64_t kKeys = kSanitized ? 100000 : 10000000;
  int64_t key_bytes = 0;
  // Keys are generated on demand, so that only the map grows.
  char text[24];
  const auto key = [&](int64_t i) {
    const int n = std::snprintf(text, sizeof(text), "%llx",
                                static_cast<unsigned long long>(i * 7919));
    return StringMap::Key(text, n);
  };
  int64_t record_bytes = 0;
  for (int64_t i = 0; i < kKeys; ++i) {
    key_bytes += key(i).size();
    record_bytes += StringMap::RecordBytes(key(i), i);
  }
  const int64_t before = ResidentBytes();
  StringMap map;
  ASSERT_TRUE(map.Reserve(kKeys, record_bytes).ok());
  std::vector<std::string> batch(1000);
  for (int64_t begin = 0; begin < kKeys; begin += batch.size()) {
    for (size_t i = 0; i < batch.size(); ++i) batch[i] = key(begin + i);
    ASSERT_EQ(
        map.AddNew(
            batch.size(), [&](int64_t i) { return StringMap::Key(batch[i]); },
            [&](int64_t i) { return begin + i; }),
        -1);
  }
  const int64_t bound = key_bytes * 13 / 10 + 16 * kKeys;
  EXPECT_LE(map.bytes(), bound);
  if (!kSanitized) {
    EXPECT_LE(ResidentBytes() - before, bound + (4 << 20));
  }
}

TEST(IntegerMapTest, ChosenKeysTakeNoLonger) {
  constexpr int64_t kKeys = 16000;
  const auto seconds = [](const std::vector<int64_t>& keys) {
    return CpuSecondsOf([&] {
      IntegerMap map;
      const auto key = [&](int64_t i) { return keys[i]; };
      const auto value = [](int64_t i) { return i; };
      ASSERT_TRUE(map.ReserveFor(kKeys, key, value).ok());
      EXPECT_EQ(map.AddNew(kKeys, key, value), -1);
    });
  };
  const double usual = seconds(RandomIds(kKeys));
  EXPECT_LT(seconds(IdsWithEqualHighBits(kKeys)), 10 * usual);
}

TEST(StringMapTest, ChosenKeysTakeNoLonger) {
  constexpr int64_t kKeys = 6000;
  // Without a key, the bits of the hash below the highest 16 selected the line,
  // of 8 keys. Collects keys of one line.
  std::vector<std::string> chosen, usual;
  for (int64_t i = 0; chosen.size() < kKeys; ++i) {
    std::string key = std::to_string(i);
    const uint64_t home = (StringMap::Hash(key) << 16) >> 54;
    if (home == 0) {
      chosen.push_back(std::move(key));
    } else if (usual.size() < kKeys) {
      usual.push_back(std::move(key));
    }
  }
  const auto seconds = [](const std::vector<std::string>& keys) {
    return CpuSecondsOf([&] {
      StringMap map;
      const auto key = [&](int64_t i) { return std::string_view(keys[i]); };
      const auto value = [](int64_t i) { return i; };
      ASSERT_TRUE(map.ReserveFor(kKeys, key, value).ok());
      EXPECT_EQ(map.AddNew(kKeys, key, value), -1);
    });
  };
  EXPECT_LT(seconds(chosen), 5 * seconds(usual));
}

}  // namespace
}  // namespace lodestar
