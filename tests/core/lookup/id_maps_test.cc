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
#include "tests/core/testing/errors.h"
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

// Keys of each map, as its model has them.
template <typename Map>
struct KeysOf;
template <>
struct KeysOf<IntegerMap> {
  using Key = int64_t;
  static Key Few(std::mt19937_64* rng) {
    constexpr int64_t kEdges[] = {std::numeric_limits<int64_t>::min(), -1, 0,
                                  std::numeric_limits<int64_t>::max()};
    const uint64_t word = (*rng)();
    return word % 9 == 0 ? kEdges[word / 9 % 4]
                         : static_cast<int64_t>(word % 3000) << 40;
  }
  static Key Of(uint64_t word) { return static_cast<int64_t>(word); }
  static Status Reserve(IntegerMap* map, int64_t count) {
    return map->Reserve(count);
  }
};
template <>
struct KeysOf<StringMap> {
  using Key = std::string;
  // Keys of every small length, with NUL bytes, and the empty key.
  static Key Few(std::mt19937_64* rng) {
    const uint64_t word = (*rng)() % 3000;
    if (word == 77) return "";
    const std::string key(reinterpret_cast<const char*>(&word), word % 8);
    return key + std::string(word % 40, static_cast<char>(word));
  }
  static Key Of(uint64_t word) { return std::to_string(word); }
  static Status Reserve(StringMap* map, int64_t count) {
    return map->Reserve(count, 22 * count);
  }
};

template <typename Map>
class IdMapsTest : public testing::Test {
 protected:
  using Keys = KeysOf<Map>;
  using Key = typename Keys::Key;
  Map map_;
  std::map<Key, int64_t> model_;
};
using Maps = testing::Types<IntegerMap, StringMap>;
TYPED_TEST_SUITE(IdMapsTest, Maps);

TYPED_TEST(IdMapsTest, AgreesWithAModel) {
  using Keys = typename TestFixture::Keys;
  std::mt19937_64 rng(3);
  EXPECT_FALSE(this->map_.Find(Keys::Of(1)));
  EXPECT_FALSE(this->map_.Find(Keys::Of(0)));
  EXPECT_FALSE(this->map_.Remove(Keys::Of(1)));
  for (int i = 0; i < 40000; ++i) {
    const auto key = Keys::Few(&rng);
    if (rng() % 3 == 0) {
      ASSERT_EQ(this->map_.Remove(key), this->model_.erase(key) == 1);
    } else {
      // Of any size, because strings are stored with as few bytes as possible.
      const int64_t value = static_cast<int64_t>(rng()) >> (rng() % 64);
      ASSERT_TRUE(Put(&this->map_, key, value).ok());
      this->model_[key] = value;
    }
    if (i % 4000 == 0) ExpectSame(this->map_, this->model_);
  }
  ExpectSame(this->map_, this->model_);
}

// Lines overflow and gaps close across lines, including at the array's end.
TYPED_TEST(IdMapsTest, RemovalFromAFullMap) {
  using Keys = typename TestFixture::Keys;
  for (uint64_t seed = 1; seed < 40; ++seed) {
    std::mt19937_64 rng(seed);
    TypeParam map;
    auto model = this->model_;
    ASSERT_TRUE(Keys::Reserve(&map, 90).ok());
    for (int64_t i = 0; i < 90; ++i) {
      const auto key = Keys::Of(rng());
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

TYPED_TEST(IdMapsTest, AddNewStopsAtAnotherValue) {
  using Key = typename TestFixture::Key;
  std::vector<Key> keys;
  for (const uint64_t word : {1, 2, 1, 2, 3}) {
    keys.push_back(TestFixture::Keys::Of(word));
  }
  const int64_t values[] = {10, 20, 10, -1, 30};
  const auto key = [&](int64_t i) { return typename TypeParam::Key(keys[i]); };
  const auto value = [&](int64_t i) { return values[i]; };
  ASSERT_TRUE(this->map_.ReserveFor(5, key, value).ok());
  EXPECT_EQ(this->map_.AddNew(5, key, value), 3);
  EXPECT_EQ(this->map_.AddNew(3, key, value), -1);
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

TEST(IntegerMapTest, OutOfMemoryChangesNothing) {
  IntegerMap map;
  ASSERT_TRUE(Put(&map, 7, 70).ok());
  for (int64_t count :
       {int64_t{1} << 46, std::numeric_limits<int64_t>::max()}) {
    ExpectError(map.Reserve(count), StatusCode::kResourceExhausted,
                {"out of memory for a table of"});
  }
  ExpectSame(map, std::map<int64_t, int64_t>{{7, 70}});
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
