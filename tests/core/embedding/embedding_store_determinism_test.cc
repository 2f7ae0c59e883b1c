// The content of a table depends only on the sequence of calls: not on threads,
// shards, the order of new ids, or how the table grew. All comparisons are
// bitwise.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/stores.h"
#include "tests/core/testing/threads.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

constexpr int kDim = 5;
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
using Store = std::unique_ptr<EmbeddingStore>;

RowInitializer Initializer(const std::string& kind, int64_t seed,
                           int64_t salt) {
  RowInitializer initializer;
  const bool uniform = kind == "uniform";
  EXPECT_TRUE(RowInitializer::Create(kind, uniform ? -0.05f : 0.0f, 0.05f, seed,
                                     salt, &initializer)
                  .ok());
  return initializer;
}

Store MakeStore(int64_t shards,
                const TablePolicies& policies = TablePolicies()) {
  return StoreOf(kDim, shards, Initializer("normal", 1, 2), policies);
}

// Ids that differ only in their high bits, only in their low bits, and the
// limits of the range.
std::vector<int64_t> RandomIds(std::mt19937_64* rng, int count) {
  const int64_t ends[] = {kMin, -1, 0, kMax};
  std::vector<int64_t> ids;
  for (int i = 0; i < count; ++i) {
    const int64_t small = static_cast<int64_t>((*rng)() % 4000) - 2000;
    switch ((*rng)() % 4) {
      case 0:
        ids.push_back(ends[(*rng)() % 4]);
        break;
      case 1:
        ids.push_back(static_cast<int64_t>(static_cast<uint64_t>(small) << 51));
        break;
      case 2:
        ids.push_back(small * 4096);
        break;
      default:
        ids.push_back(small);
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

struct Setting {
  int64_t shards;
  int threads;
  uint64_t order;  // permutation of the ids within a call
};

// Runs the same random calls in every setting.
EmbeddingRows RunProgram(const Setting& setting, const Rule& optimizer,
                         const TablePolicies& policies = TablePolicies()) {
  const ParallelFor parallel = Threads(setting.threads);
  Store store = MakeStore(setting.shards, policies);
  std::mt19937_64 rng(7);
  std::mt19937_64 order(setting.order);
  for (int call = 0; call < 120; ++call) {
    std::vector<int64_t> ids = RandomIds(&rng, 150);
    const float scale = static_cast<float>(rng() % 1000) * 0.013f;
    const uint64_t kind = rng() % 10;
    std::shuffle(ids.begin(), ids.end(), order);
    std::vector<float> numbers;  // by id, in any order of ids
    for (int64_t id : ids) {
      for (int c = 0; c < kDim; ++c) {
        const uint64_t word = Mix64(static_cast<uint64_t>(id) + 77 * c);
        numbers.push_back((static_cast<float>(word >> 40) * 0x1p-23f - 1.0f) *
                          scale);
      }
    }
    if (kind < 4) {
      FindOrInsert(store.get(), ids, kTraining, &parallel);
    } else if (kind < 8) {
      EXPECT_TRUE(
          Apply(store.get(), ids, numbers, optimizer, kind == 7, &parallel)
              .ok());
    } else if (kind == 8) {
      EXPECT_TRUE(store->InsertOrAssign(ids, numbers.data(), &parallel).ok());
    } else {
      Remove(store.get(), ids);
      EXPECT_TRUE(store->SetStep(store->step() + 10).ok());
      if (policies.eviction.max_rows > 0) {
        EvictionPolicy policy;
        policy.max_age = 100;
        policy.min_norm = 0.05f;
        int64_t evicted;
        EXPECT_TRUE(store->Evict(policy, &evicted, &parallel).ok());
      }
    }
  }
  EmbeddingRows rows;
  EXPECT_TRUE(store->Export(true, &rows, &parallel).ok());
  EXPECT_GT(rows.ids.size(), 300u);
  EXPECT_TRUE(std::is_sorted(rows.ids.begin(), rows.ids.end()));
  return rows;
}

TEST(EmbeddingStoreDeterminismTest, ContentIsBitwiseTheSameInEverySetting) {
  for (const Rule& o :
       {Rule{"adagrad", {0.1f, 0.01f, 1e-7f}, {0.1f}},
        Rule{"row_wise_adagrad", {0.1f, 0.01f, 1e-7f}, {0.1f}},
        Rule{"adam", {0.1f, 0.0f, 0.1f, 0.001f, 1e-7f, 0.1f}, {0.0f, 0.0f}}}) {
    const EmbeddingRows first = RunProgram({1, 1, 0}, o);
    uint64_t order = 1;
    for (int64_t shards : {1, 3, 16, 64}) {
      for (int threads : {1, 8}) {
        SCOPED_TRACE(
            StrCat(o.name, ", ", shards, " shards, ", threads, " threads"));
        ExpectEqual(RunProgram({shards, threads, order++}, o), first);
      }
    }
  }
}

TEST(EmbeddingStoreDeterminismTest, AdmissionAndEvictionAreDeterministic) {
  using Kind = AdmissionPolicy::Kind;
  using Order = EvictionPolicy::Order;
  for (const auto& [kind, order] : {std::pair{Kind::kAll, Order::kLru},
                                    {Kind::kMinCount, Order::kLfu},
                                    {Kind::kCountingBloom, Order::kLru}}) {
    TablePolicies policies;
    policies.admission.kind = kind;
    policies.admission.min_count = kind == Kind::kAll ? 1 : 2;
    policies.admission.num_counters = 20000;
    policies.admission.num_hashes = 3;
    policies.eviction.max_rows = 700;
    policies.eviction.order = order;
    const auto run = [&](const Setting& setting) {
      return RunProgram(setting, {"sgd", {0.1f, 0.0f}}, policies);
    };
    const EmbeddingRows first = run({1, 1, 0});
    EXPECT_LE(first.ids.size(), 700u);
    EXPECT_TRUE(!first.pending_ids.empty() || kind != Kind::kMinCount);
    EXPECT_EQ(first.sketch.empty(), kind != Kind::kCountingBloom);
    uint64_t order_of_ids = 1;
    for (int64_t shards : {1, 3, 16, 64}) {
      for (int threads : {1, 8}) {
        SCOPED_TRACE(StrCat("admission ", static_cast<int>(first.ids.size()),
                            " rows, ", shards, " shards, ", threads,
                            " threads"));
        ExpectEqual(run({shards, threads, order_of_ids++}), first);
      }
    }
  }
}

// One lookup or many, growth in one call or in thousands, other rows added and
// removed before: the result is the same.
TEST(EmbeddingStoreDeterminismTest, GrowthHistoryDoesNotMatter) {
  std::vector<int64_t> ids(50000);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int64_t>(i) * 4096 - 100000;
  }
  const Store at_once = MakeStore(4);
  FindOrInsert(at_once.get(), ids);
  const Store by_and_by = MakeStore(4);
  std::vector<int64_t> others(70000);
  for (size_t i = 0; i < others.size(); ++i) {
    others[i] = static_cast<int64_t>(i) * 4096 + 1;
  }
  FindOrInsert(by_and_by.get(), others);
  std::shuffle(ids.begin(), ids.end(), std::mt19937_64(1));
  for (size_t i = 0; i < ids.size(); i += 50) {
    FindOrInsert(by_and_by.get(), {ids.begin() + i, ids.begin() + i + 50});
  }
  Remove(by_and_by.get(), others);
  ExpectEqual(Export(*at_once), Export(*by_and_by));
}

std::vector<uint32_t> FirstBits(const std::string& kind, int64_t seed,
                                int64_t salt) {
  const RowInitializer initializer = Initializer(kind, seed, salt);
  std::vector<uint32_t> bits;
  for (int64_t id : {kMin, int64_t{-1}, int64_t{0}, kMax}) {
    float row[2];
    initializer.Draw(id, 2, row);
    for (float value : row) {
      uint32_t word;
      std::memcpy(&word, &value, sizeof(word));
      bits.push_back(word);
    }
  }
  return bits;
}

// A row created by a future version must equal the row created today. Changing
// these values breaks existing tables.
TEST(EmbeddingStoreDeterminismTest, InitialValuesAreFrozen) {
  EXPECT_EQ(
      FirstBits("uniform", 1, 2),
      (std::vector<uint32_t>{0xbd3bcb95, 0x3cc70ee2, 0xbc94ebd4, 0x3d4159b5,
                             0x3c286054, 0xbcfa5e6a, 0xbba97a70, 0x3c37e208}));
  EXPECT_EQ(
      FirstBits("normal", 1, 2),
      (std::vector<uint32_t>{0xbdb17f13, 0x3d05a6b8, 0xbcc19ed3, 0x3dc3c3d3,
                             0x3c556b0c, 0xbd3083d9, 0xbbd50213, 0x3c69971d}));
  EXPECT_EQ(
      FirstBits("truncated_normal", -7, kMin),
      (std::vector<uint32_t>{0xbda25aad, 0xbcc0ed90, 0x3ca118f2, 0xbdb27040,
                             0x3bb51610, 0xbd0bab72, 0x34b37932, 0x3d6316f7}));
}

double Correlation(const RowInitializer& a, const RowInitializer& b) {
  constexpr int kIds = 4000;
  constexpr int kColumns = 8;
  double products = 0.0;
  double squares = 0.0;
  for (int64_t id = 0; id < kIds; ++id) {
    float rows[2][kColumns];
    a.Draw(id, kColumns, rows[0]);
    b.Draw(id, kColumns, rows[1]);
    for (int c = 0; c < kColumns; ++c) {
      products += double{rows[0][c]} * rows[1][c];
      squares += double{rows[0][c]} * rows[0][c];
    }
  }
  return products / squares;
}

// 32,000 values: a correlation of 0.03 is five standard deviations.
TEST(EmbeddingStoreDeterminismTest, SaltsAndSeedsAreUncorrelated) {
  for (const std::string kind : {"uniform", "normal", "truncated_normal"}) {
    const RowInitializer one = Initializer(kind, 1, 2);
    EXPECT_EQ(Correlation(one, Initializer(kind, 1, 2)), 1.0);
    for (int64_t other : {int64_t{0}, int64_t{3}, int64_t{2} << 32, kMin}) {
      EXPECT_LT(std::abs(Correlation(one, Initializer(kind, 1, other))), 0.03);
      EXPECT_LT(std::abs(Correlation(one, Initializer(kind, other, 2))), 0.03);
    }
    // Seed and salt are not interchangeable.
    EXPECT_LT(std::abs(Correlation(one, Initializer(kind, 2, 1))), 0.03);
  }
}

TEST(EmbeddingStoreDeterminismTest, IdsEqualModuloAPowerOfTwoAreDifferent) {
  for (int bits : {1, 12, 20, 32, 48, 52}) {
    const Store store = MakeStore(16);
    std::vector<int64_t> ids;
    for (uint64_t i = 0; i < 4096; ++i) {
      ids.push_back(static_cast<int64_t>(i << bits));
      ids.push_back(static_cast<int64_t>(~(i << bits)));
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    FindOrInsert(store.get(), ids);
    EmbeddingRows rows;
    ASSERT_TRUE(store->Export(false, &rows, nullptr).ok());
    ASSERT_EQ(rows.ids, ids);
    std::vector<float> found(ids.size() * kDim);
    store->Find(ids, nullptr, Missing(), found.data(), nullptr, nullptr);
    ASSERT_EQ(found, Floats(rows.values));
  }
}

// Chi-square over 64 shards has mean 63 and standard deviation 11.2; 130 is six
// standard deviations away.
TEST(EmbeddingStoreDeterminismTest, SkewedIdsAreEvenlySharded) {
  constexpr int kShards = 64;
  constexpr int kIds = 64000;
  for (int64_t stride : {int64_t{1}, int64_t{4096}, int64_t{1} << 32,
                         int64_t{1} << 47, int64_t{-1000003}}) {
    const Store store = MakeStore(kShards);
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < kIds; ++i) {
      ids.push_back(static_cast<int64_t>(static_cast<uint64_t>(i) *
                                         static_cast<uint64_t>(stride)));
    }
    std::vector<double> counts(kShards, 0.0);
    for (const RowRef& ref : FindOrInsert(store.get(), ids)) {
      ++counts[ref.shard];
    }
    const double wanted = double{kIds} / kShards;
    double chi_square = 0.0;
    for (double count : counts) {
      chi_square += (count - wanted) * (count - wanted) / wanted;
    }
    EXPECT_LT(chi_square, 130.0) << "multiples of " << stride;
  }
}

}  // namespace
}  // namespace lodestar
