// Tables of every row type: values survive a round trip, and results are
// computed in float and rounded once.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/stores.h"
#include "tests/core/testing/threads.h"
#include "tf_ops/core/embedding/embedding_gradient.h"
#include "tf_ops/core/embedding/embedding_pool.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

constexpr int kDims[] = {1, 2, 3, 5, 7, 4096};

template <typename T>
class EmbeddingRowTypesTest : public testing::Test {
 protected:
  using Store = std::unique_ptr<EmbeddingStore>;

  static Store Make(int dim, int64_t shards = 4,
                    const TablePolicies& policies = TablePolicies()) {
    return StoreOf(dim, shards, InitializerOf("normal", 0, 0.05f), policies,
                   RowTypeOf<T>());
  }
  // Values that every type rounds, except float.
  static std::vector<T> Random(int64_t count, uint64_t seed) {
    std::mt19937_64 rng(seed);
    std::normal_distribution<double> normal;
    std::vector<T> numbers(count);
    for (T& x : numbers) x = RoundTo<T>(static_cast<float>(normal(rng)));
    return numbers;
  }
  static bool Same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  }
  static std::vector<T> Read(const EmbeddingStore& store,
                             const std::vector<int64_t>& ids,
                             const Missing& missing = Missing()) {
    std::vector<T> rows(ids.size() * store.dim());
    store.Find(ids, nullptr, missing, rows.data(), nullptr, nullptr);
    return rows;
  }
  static std::vector<int64_t> Ids(int64_t count) {
    std::vector<int64_t> ids(count);
    for (int64_t i = 0; i < count; ++i) ids[i] = i * 4096 - 7;
    return ids;
  }
  static std::vector<T> As(const Numbers& numbers) {
    EXPECT_EQ(numbers.type(), RowTypeOf<T>());
    const Span<const T> all = numbers.as<T>();
    return {all.begin(), all.end()};
  }
};

using RowTypes = testing::Types<float, Float16, BFloat16>;
TYPED_TEST_SUITE(EmbeddingRowTypesTest, RowTypes);

TYPED_TEST(EmbeddingRowTypesTest, RowsSurviveARoundTrip) {
  using T = TypeParam;
  for (int dim : kDims) {
    SCOPED_TRACE(dim);
    auto store = this->Make(dim);
    const std::vector<int64_t> ids = this->Ids(40);
    const std::vector<T> rows = this->Random(ids.size() * dim, 3);
    ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
    EXPECT_TRUE(this->Same(this->Read(*store, ids), rows));
    const EmbeddingRows exported = Export(*store);
    EXPECT_TRUE(this->Same(this->As(exported.values), rows));
    InspectedIds inspected;
    ASSERT_TRUE(store->Inspect(ids, &inspected, {}).ok());
    EXPECT_TRUE(this->Same(this->As(inspected.values), rows));
    auto other = this->Make(dim, 3);
    ASSERT_TRUE(ImportInPlaceOf(&other, View(exported)).ok());
    EXPECT_TRUE(this->Same(this->Read(*other, ids), rows));
    const std::vector<T> vector = this->Random(dim, 4);
    Missing missing;
    missing.kind = Missing::Kind::kVector;
    missing.vector = vector.data();
    EXPECT_TRUE(this->Same(this->Read(*store, {99}, missing), vector));
    const std::vector<T> zeros(dim, T{});
    EXPECT_TRUE(this->Same(this->Read(*store, {99}), zeros));
    const EmbeddingStats stats = store->Stats();
    EXPECT_EQ(stats.row_bytes,
              stats.capacity * (24 + (dim * int64_t{sizeof(T)} + 7) / 8 * 8));
  }
}

TYPED_TEST(EmbeddingRowTypesTest, InitialValuesAreRoundedFloats) {
  using T = TypeParam;
  for (int dim : kDims) {
    auto store = this->Make(dim);
    std::vector<float> floats(dim);
    InitializerOf("normal", 0, 0.05f).Draw(5, dim, floats.data());
    std::vector<T> wanted(dim);
    for (int c = 0; c < dim; ++c) wanted[c] = RoundTo<T>(floats[c]);
    Missing initial;
    initial.kind = Missing::Kind::kInitial;
    EXPECT_TRUE(this->Same(this->Read(*store, {5}, initial), wanted));
    const std::vector<int64_t> ids = {5};
    FindOrInsert(store.get(), ids);
    EXPECT_TRUE(this->Same(this->Read(*store, ids), wanted));
  }
}

// Adam's slots after the first step do not fit 16 bits.
TYPED_TEST(EmbeddingRowTypesTest, UpdatesAreComputedWideAndRoundedOnce) {
  using T = TypeParam;
  const std::vector<float> inits = {0.0f, 0.0f};
  const SparseOptimizer adam =
      OptimizerOf("adam", {0.1f, 0.01f, 0.1f, 0.001f, 1e-7f, 0.1f});
  for (int dim : kDims) {
    SCOPED_TRACE(dim);
    auto store = this->Make(dim);
    const std::vector<int64_t> ids = this->Ids(9);
    const int64_t size = ids.size() * dim;
    std::vector<T> rows = this->Random(size, 5);
    ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
    std::vector<float> slots[2] = {std::vector<float>(size),
                                   std::vector<float>(size)};
    for (int step = 0; step < 4; ++step) {
      std::vector<float> gradients(size);
      const std::vector<T> random = this->Random(size, 10 + step);
      for (int64_t i = 0; i < size; ++i) {
        gradients[i] = ToCompute(random[i]) / 3;
      }
      ASSERT_TRUE(store
                      ->Apply(ids, gradients.data(), "adam", adam, inits, false,
                              -1, nullptr)
                      .ok());
      std::vector<float> value(dim);
      for (size_t i = 0; i < ids.size(); ++i) {
        ToComputeRow(&rows[i * dim], dim, value.data());
        float* of_row[] = {&slots[0][i * dim], &slots[1][i * dim]};
        adam.Update(&gradients[i * dim], dim, value.data(), of_row);
        RoundRow(value.data(), dim, &rows[i * dim]);
      }
      ASSERT_TRUE(this->Same(this->Read(*store, ids), rows)) << step;
    }
    const EmbeddingRows exported = Export(*store);
    EXPECT_EQ(exported.slots.type(), RowType::kFloat32);
    const Span<const float> out = exported.slots.template as<float>();
    ASSERT_EQ(out.size(), 2 * size);
    for (int s = 0; s < 2; ++s) {
      EXPECT_TRUE(
          std::equal(slots[s].begin(), slots[s].end(), out.begin() + s * size));
    }
  }
}

TYPED_TEST(EmbeddingRowTypesTest, BagsAreSummedWideAndRoundedOnce) {
  using T = TypeParam;
  // 1000 ones: a bfloat16 sum would stop at 256.
  constexpr int64_t kLong = 1000;
  for (int dim : {1, 3, 40}) {
    auto store = this->Make(dim);
    const std::vector<int64_t> known = this->Ids(20);
    std::vector<T> rows = this->Random(known.size() * dim, 6);
    std::fill_n(rows.begin(), dim, RoundTo<T>(1.0f));
    ASSERT_TRUE(store->InsertOrAssign(known, rows.data(), nullptr).ok());
    std::vector<int64_t> ids(kLong, known[0]);
    ids.insert(ids.end(), known.begin(), known.end());
    const std::vector<int64_t> splits = {0, kLong, kLong,
                                         static_cast<int64_t>(ids.size())};
    for (Combiner combiner :
         {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn, Combiner::kMax,
          Combiner::kFirst, Combiner::kLast}) {
      Bags bags;
      bags.ids = ids;
      bags.row_splits = splits;
      bags.combiner = combiner;
      std::vector<T> pooled(3 * dim);
      std::vector<int64_t> winners(3 * dim);
      PoolFind({store.get(), Missing()}, bags, pooled.data(),
               combiner == Combiner::kMax ? winners.data() : nullptr);
      std::vector<int64_t> positions(kLong, 0);
      for (size_t i = 0; i < known.size(); ++i) positions.push_back(i);
      std::vector<T> again(3 * dim);
      std::vector<int64_t> winners_again(3 * dim);
      PoolFetched({RowTypeOf<T>(), dim, rows.data(),
                   static_cast<int64_t>(known.size())},
                  bags, positions, {}, nullptr, again.data(),
                  combiner == Combiner::kMax ? winners_again.data() : nullptr);
      EXPECT_TRUE(this->Same(again, pooled));
      EXPECT_EQ(winners_again, winners);
      for (int c = 0; c < dim; ++c) {
        float sum = 0;
        float most = ToCompute(rows[c]);
        for (size_t i = 0; i < known.size(); ++i) {
          sum += ToCompute(rows[i * dim + c]);
          most = std::max(most, ToCompute(rows[i * dim + c]));
        }
        const float n = static_cast<float>(known.size());
        float wanted = sum;
        float of_ones = kLong;
        if (combiner == Combiner::kMean) wanted = sum / n, of_ones = 1;
        if (combiner == Combiner::kSqrtn) {
          wanted = sum / std::sqrt(n);
          of_ones = of_ones / std::sqrt(of_ones);
        }
        if (combiner == Combiner::kMax) wanted = most, of_ones = 1;
        if (combiner == Combiner::kFirst) of_ones = wanted = 1;
        if (combiner == Combiner::kLast) {
          wanted = ToCompute(rows[(known.size() - 1) * dim + c]), of_ones = 1;
        }
        const T all[] = {RoundTo<T>(of_ones), T{}, RoundTo<T>(wanted)};
        for (int b = 0; b < 3; ++b) {
          EXPECT_EQ(std::memcmp(&pooled[b * dim + c], &all[b], sizeof(T)), 0)
              << "bag " << b << ", combiner " << static_cast<int>(combiner);
        }
      }
    }
  }
}

TYPED_TEST(EmbeddingRowTypesTest, GradientsAreSummedWide) {
  using T = TypeParam;
  constexpr int kDim = 3;
  const std::vector<T> gradients = this->Random(400 * kDim, 7);
  std::vector<int64_t> positions(400);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = i % 5;
  std::vector<float> sums(5 * kDim);
  SumByPosition(gradients.data(), positions, 5, kDim, sums.data(), nullptr);
  for (int u = 0; u < 5; ++u) {
    for (int c = 0; c < kDim; ++c) {
      float sum = 0;
      for (int i = u; i < 400; i += 5)
        sum += ToCompute(gradients[i * kDim + c]);
      EXPECT_EQ(sums[u * kDim + c], sum);
    }
  }
}

// The same calls with any number of shards and threads, with growth and
// eviction.
TYPED_TEST(EmbeddingRowTypesTest, ContentIsBitwiseTheSameInEverySetting) {
  using T = TypeParam;
  constexpr int kDim = 5;
  const std::vector<float> inits = {0.1f};
  const SparseOptimizer adagrad = OptimizerOf("adagrad", {0.1f, 0.01f, 1e-7f});
  const auto run = [&](int64_t shards, int threads) {
    const ParallelFor parallel = Threads(threads);
    TablePolicies policies;
    policies.shared_rows = 7;
    auto store = this->Make(kDim, shards, policies);
    std::mt19937_64 rng(8);
    for (int call = 0; call < 40; ++call) {
      std::vector<int64_t> ids(200);
      for (int64_t& id : ids) id = static_cast<int64_t>(rng() % 3000) - 1000;
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      const bool training = call % 3 != 0;
      FindOrInsert(store.get(), ids, {training, training}, &parallel);
      const std::vector<T> random = this->Random(ids.size() * kDim, call);
      std::vector<float> gradients(random.size());
      ToComputeRow(random.data(), random.size(), gradients.data());
      EXPECT_TRUE(store
                      ->Apply(ids, gradients.data(), "adagrad", adagrad, inits,
                              false, -1, &parallel)
                      .ok());
      if (call % 10 == 9) {
        EvictionPolicy policy;
        policy.max_age = 15;
        policy.min_norm = 0.2f;
        int64_t evicted;
        EXPECT_TRUE(store->Evict(policy, &evicted, &parallel).ok());
        EXPECT_GT(evicted, 0);
      }
    }
    EmbeddingRows rows;
    EXPECT_TRUE(store->Export(true, &rows, &parallel).ok());
    EXPECT_GT(rows.ids.size(), 300u);
    return rows;
  };
  const EmbeddingRows first = run(1, 1);
  for (int64_t shards : {1, 3, 16}) {
    for (int threads : {1, 8}) {
      SCOPED_TRACE(StrCat(shards, " shards, ", threads, " threads"));
      const EmbeddingRows rows = run(shards, threads);
      EXPECT_EQ(rows.ids, first.ids);
      EXPECT_TRUE(rows.values == first.values);
      EXPECT_TRUE(rows.slots == first.slots);
      EXPECT_TRUE(rows.shared_values == first.shared_values);
      EXPECT_TRUE(rows.shared_slots == first.shared_slots);
    }
  }
}

TYPED_TEST(EmbeddingRowTypesTest, ARowIsEvictedByItsNorm) {
  using T = TypeParam;
  auto store = this->Make(2);
  const std::vector<int64_t> ids = {1, 2};
  const std::vector<T> rows = {RoundTo<T>(3.0f), RoundTo<T>(4.0f),
                               RoundTo<T>(3.0f), RoundTo<T>(3.5f)};
  ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
  EvictionPolicy policy;
  policy.min_norm = 5.0f;
  int64_t evicted;
  ASSERT_TRUE(store->Evict(policy, &evicted, nullptr).ok());
  EXPECT_EQ(evicted, 1);
  EXPECT_TRUE(this->Same(this->Read(*store, {1}), {rows[0], rows[1]}));
}

TEST(EmbeddingRowTypeErrorsTest, AnImportOfAnotherTypeIsRefused) {
  constexpr RowType kTypes[] = {RowType::kFloat32, RowType::kFloat16,
                                RowType::kBFloat16};
  const auto make = [](RowType type) {
    auto store = StoreOf(3, 4, RowInitializer(), {}, type);
    const std::vector<int64_t> ids = {1};
    const std::vector<float> zeros(3);
    EXPECT_TRUE(store->InsertOrAssign(ids, zeros.data(), nullptr).ok());
    return store;
  };
  for (RowType from : kTypes) {
    const EmbeddingRows rows = Export(*make(from));
    for (RowType to : kTypes) {
      auto store = make(to);
      const Status status = ImportInPlaceOf(&store, View(rows));
      if (from == to) {
        EXPECT_TRUE(status.ok());
        continue;
      }
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(status.message(),
                StrCat("`rows` has dtype ", NameOf(from),
                       ", but the table's rows are ", NameOf(to), "."));
      EXPECT_EQ(store->size(), 1);
    }
  }
}

// Stochastic rounding has the same bits for any number of threads and shards,
// and changes no row of other types.
TYPED_TEST(EmbeddingRowTypesTest, StochasticRoundingIsDeterministic) {
  using T = TypeParam;
  TablePolicies stochastic;
  stochastic.stochastic_rounding = true;
  stochastic.shared_rows = 3;
  TablePolicies nearest = stochastic;
  nearest.stochastic_rounding = false;
  const std::vector<int64_t> ids = this->Ids(500);
  for (const int dim : {3, 1500}) {
    const SparseOptimizer sgd = OptimizerOf("sgd", {0.01f, 0.0f});
    const auto train = [&](const TablePolicies& policies, int64_t shards,
                           int threads) {
      const ParallelFor parallel = Threads(threads);
      auto store = this->Make(dim, shards, policies);
      FindOrInsert(store.get(), {ids.begin(), ids.begin() + 400}, kTraining,
                   &parallel);
      std::vector<float> gradients(ids.size() * dim);
      for (int step = 0; step < 3; ++step) {
        for (size_t i = 0; i < gradients.size(); ++i) {
          gradients[i] = static_cast<float>((i * 7 + step) % 13) * 0.001f;
        }
        // The last ids train shared rows.
        EXPECT_TRUE(store
                        ->Apply(ids, gradients.data(), "sgd", sgd, {}, false,
                                -1, &parallel)
                        .ok());
      }
      const EmbeddingRows rows = Export(*store);
      return rows;
    };
    const EmbeddingRows first = train(stochastic, 1, 1);
    for (const int64_t shards : {1, 16}) {
      const EmbeddingRows rows = train(stochastic, shards, 8);
      EXPECT_TRUE(rows.values == first.values);
      EXPECT_TRUE(rows.shared_values == first.shared_values);
    }
    const EmbeddingRows rounded = train(nearest, 1, 1);
    EXPECT_EQ(rounded.values == first.values, !kIsHalf<T>);
    EXPECT_EQ(rounded.shared_values == first.shared_values, !kIsHalf<T>);
  }
}

}  // namespace
}  // namespace lodestar
