#include "tf_ops/core/embedding/embedding_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/core/embedding/resident_bytes.h"
#include "tests/core/testing/chosen_ids.h"
#include "tests/core/testing/cpu_time.h"
#include "tests/core/testing/errors.h"
#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/stores.h"
#include "tests/core/testing/threads.h"

namespace lodestar {
namespace {

constexpr int kDim = 4;
const Missing kZeros;

std::unique_ptr<EmbeddingStore> MakeStore(int64_t shards = 4, int dim = kDim,
                                          const std::string& kind = "uniform") {
  return StoreOf(dim, shards, InitializerOf(kind, -0.05f, 0.05f));
}

void Lookup(EmbeddingStore* store, const std::vector<int64_t>& ids) {
  for (const RowRef& ref : FindOrInsert(store, ids)) ASSERT_TRUE(ref.found());
}

std::vector<float> Row(const EmbeddingStore& store, int64_t id,
                       bool* found = nullptr, const Missing& missing = kZeros) {
  std::vector<float> row(store.dim());
  const std::vector<int64_t> ids = {id};
  bool unused;
  store.Find(ids, nullptr, missing, row.data(), found ? found : &unused,
             nullptr);
  return row;
}

Status Adagrad(EmbeddingStore* store, const std::vector<int64_t>& ids,
               const std::vector<float>& gradients, bool create = false) {
  const Rule adagrad = {"adagrad", {0.1f, 0.0f, 1e-7f}, {0.1f}};
  return Apply(store, ids, gradients, adagrad, create);
}

const std::vector<int64_t> kEdgeIds = {0,
                                       -1,
                                       1,
                                       std::numeric_limits<int64_t>::min(),
                                       std::numeric_limits<int64_t>::max(),
                                       int64_t{1} << 32,
                                       int64_t{1} << 62};

TEST(EmbeddingStoreTest, EveryInt64IsAnOrdinaryId) {
  auto store = MakeStore();
  bool found = true;
  for (int64_t id : kEdgeIds) {
    EXPECT_EQ(Row(*store, id, &found), std::vector<float>(kDim, 0.0f));
    EXPECT_FALSE(found);
  }
  Lookup(store.get(), kEdgeIds);
  EXPECT_EQ(store->size(), static_cast<int64_t>(kEdgeIds.size()));
  for (int64_t id : kEdgeIds) {
    const auto row = Row(*store, id, &found);
    EXPECT_TRUE(found);
    EXPECT_NE(row, std::vector<float>(kDim, 0.0f));
  }
}

TEST(EmbeddingStoreTest, RemovedRowsAreMissingAndTheirMemoryIsReused) {
  auto store = MakeStore(1);
  std::vector<int64_t> ids(5000);
  for (int round = 0; round < 5; ++round) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = round * 10000 + i;
    Lookup(store.get(), ids);
    ids.push_back(ids[0]);  // duplicates count once, missing ids never
    ids.push_back(-5);
    EXPECT_EQ(Remove(store.get(), ids), 5000);
    EXPECT_EQ(store->size(), 0);
    ids.resize(5000);
  }
  EXPECT_LE(store->Stats().capacity, 6144);
  EXPECT_EQ(store->Stats().count(Event::kRemoved), 5 * 5000);
}

TEST(EmbeddingStoreTest, GradientsOfMissingIdsAreDroppedOrMakeRows) {
  auto store = MakeStore();
  const std::vector<float> gradients(2 * kDim, 1.0f);
  Lookup(store.get(), {1});
  const auto before = Row(*store, 1);
  ASSERT_TRUE(Adagrad(store.get(), {1, 2}, gradients).ok());
  EXPECT_EQ(store->size(), 1);
  EXPECT_EQ(store->Stats().count(Event::kGradientsDropped), 1);
  EXPECT_LT(Row(*store, 1)[0], before[0]);
  ASSERT_TRUE(Adagrad(store.get(), {1, 2}, gradients, true).ok());
  EXPECT_EQ(store->size(), 2);
}

TEST(EmbeddingStoreTest, ExportWithoutRowsHasTheIdsOnly) {
  auto store = MakeStore(3);
  Lookup(store.get(), {5, -2, 9});
  ASSERT_TRUE(Adagrad(store.get(), {5}, std::vector<float>(kDim, 1.0f)).ok());
  EmbeddingRows rows;
  ASSERT_TRUE(store->ExportIds(&rows, nullptr).ok());
  EXPECT_EQ(rows.ids, (std::vector<int64_t>{-2, 5, 9}));
  EXPECT_EQ(rows.values.size(), 0);
  EXPECT_EQ(rows.slots.size(), 0);
  EXPECT_TRUE(rows.optimizer.slot_inits.empty());
  EXPECT_TRUE(rows.frequencies.empty());
  EXPECT_TRUE(rows.last_seen.empty());
  EXPECT_EQ(rows.step, 1);
}

TEST(EmbeddingStoreTest, ImportReplacesEverything) {
  auto from = MakeStore(5);
  Lookup(from.get(), {1, 2, 3});
  ASSERT_TRUE(
      Adagrad(from.get(), {1, 3}, std::vector<float>(2 * kDim, 1.0f)).ok());
  EmbeddingRows rows = Export(*from);
  auto to = MakeStore(2);
  Lookup(to.get(), {7, 8});
  ASSERT_TRUE(ImportInPlaceOf(&to, View(rows)).ok());
  EXPECT_EQ(to->size(), 3);
  EXPECT_EQ(to->step(), 1);
  EmbeddingRows again = Export(*to);
  EXPECT_EQ(again.ids, rows.ids);
  EXPECT_EQ(again.values, rows.values);
  EXPECT_EQ(again.slots, rows.slots);
  bool found = true;
  Row(*to, 7, &found);
  EXPECT_FALSE(found);
  // Training resumes identically in both, including new rows.
  for (EmbeddingStore* store : {from.get(), to.get()}) {
    Lookup(store, {1, 50});
    ASSERT_TRUE(
        Adagrad(store, {1, 50}, std::vector<float>(2 * kDim, 2.0f)).ok());
  }
  rows = Export(*from);
  again = Export(*to);
  EXPECT_EQ(again.values, rows.values);
  EXPECT_EQ(again.slots, rows.slots);
}

TEST(EmbeddingStoreTest, ImportMergesIntoExistingRows) {
  auto from = MakeStore();
  Lookup(from.get(), {1, 2});
  ASSERT_TRUE(Adagrad(from.get(), {1}, std::vector<float>(kDim, 1.0f)).ok());
  EmbeddingRows rows = Export(*from);
  auto to = MakeStore();
  Lookup(to.get(), {2, 3});
  const auto third = Row(*to, 3);
  ASSERT_TRUE(to->Import(View(rows), nullptr).ok());
  EXPECT_EQ(to->size(), 3);
  EXPECT_EQ(Row(*to, 1), Row(*from, 1));
  EXPECT_EQ(Row(*to, 3), third);
}

TEST(EmbeddingStoreTest, ImportRefusesWithoutChangingAnything) {
  auto store = MakeStore();
  Lookup(store.get(), {1, 2});
  ASSERT_TRUE(Adagrad(store.get(), {}, {}).ok());
  EmbeddingRows rows = Export(*store);
  auto refused = [&](const EmbeddingRowsView& view, const std::string& text) {
    const Status status = ImportInPlaceOf(&store, view);
    EXPECT_NE(status.message().find(text), std::string::npos)
        << status.message();
    EXPECT_EQ(store->size(), 2);
  };
  EmbeddingRows twice = rows;
  twice.ids = {2, 2};
  refused(View(twice), "`ids` contains 2 twice, at 0 and 1");
  EmbeddingRows cut = rows;
  cut.values.Resize(RowType::kFloat32, 7);
  refused(View(cut), "`rows` must have 8 elements, got 7");
  EmbeddingRows outside = rows;
  outside.frequencies[1] = -1;
  refused(View(outside), "`frequencies[1]` must be in [0, 2^32 - 1], got -1");
  outside.frequencies[1] = int64_t{1} << 32;
  refused(View(outside), "must be in [0, 2^32 - 1], got 4294967296");
  EmbeddingRows other = rows;
  other.optimizer.name = "adam";
  refused(View(other), "'adam' has 2 optimizer slots, but got");
  other.optimizer = {"sgd_momentum", {"momentum"}, {0.0f}};
  refused(View(other), "has the optimizer slots of 'adagrad'");
  other.optimizer.name = "lamb";
  refused(View(other), "unknown optimizer 'lamb'");
}

TEST(EmbeddingStoreTest, AnotherOptimizerStartsWithFreshSlots) {
  const AttachedOptimizer adagrad = {"adagrad", {"accumulator"}, {0.5f}};
  const AttachedOptimizer adam = {"adam", {"momentum", "velocity"}, {0, 0}};
  const AttachedOptimizer sgd = {"sgd", {}, {}};
  auto store = MakeStore();
  bool done = false;
  std::string former;
  const auto restart = [&](const AttachedOptimizer& optimizer,
                           KeptSlots keep = KeptSlots::kNone) {
    former = "unset";
    ASSERT_TRUE(store->RestartSlots(optimizer, keep, &done, &former, {}).ok());
  };
  const auto bound = [&] { return Export(*store).optimizer.name; };
  const auto first_slot = [&] { return Export(*store).slots.as<float>()[0]; };
  // The first update creates slots, not this.
  restart(adam);
  EXPECT_TRUE(done);
  EXPECT_EQ(former, "");
  EXPECT_EQ(bound(), "");

  Lookup(store.get(), {1});
  ASSERT_TRUE(Adagrad(store.get(), {1}, {1, 1, 1, 1}).ok());
  const std::vector<float> value = Row(*store, 1);
  EXPECT_EQ(first_slot(), 1.1f);
  restart(adagrad, KeptSlots::kEqual);
  EXPECT_EQ(former, "");
  EXPECT_EQ(first_slot(), 1.1f);
  restart(adam, KeptSlots::kAll);
  EXPECT_EQ(former, "");
  EXPECT_EQ(store->CheckOptimizer(adam).code(),
            StatusCode::kFailedPrecondition);

  // Not while a snapshot needs the slots.
  std::unique_ptr<SnapshotSource> source;
  ASSERT_TRUE(store->MakeSnapshotSource({}, &source).ok());
  ASSERT_TRUE(source->Reserve().ok());
  SnapshotState state;
  source->Lock();
  EXPECT_TRUE(source->Describe("", &state).ok());
  source->Begin(std::make_shared<ImageBudget>(StepGates(), 0), 1, 1);
  source->Unlock();
  restart(adam);
  EXPECT_FALSE(done);
  EXPECT_EQ(bound(), "adagrad");
  source->EndImages();
  source->End(nullptr);

  store->SetBase("whole", {});
  restart(adagrad);
  EXPECT_TRUE(done);
  EXPECT_EQ(former, "adagrad");
  EXPECT_EQ(first_slot(), 0.5f);
  EXPECT_EQ(store->base(), "");
  restart(adam, KeptSlots::kEqual);
  EXPECT_EQ(former, "adagrad");
  EXPECT_EQ(Adagrad(store.get(), {1}, {1, 1, 1, 1}).code(),
            StatusCode::kFailedPrecondition);
  restart(sgd);
  EXPECT_EQ(former, "adam");
  // An optimizer without slots loses nothing, whatever is kept.
  restart(adagrad, KeptSlots::kAll);
  EXPECT_EQ(former, "");
  EXPECT_EQ(bound(), "adagrad");
  EXPECT_EQ(first_slot(), 0.5f);
  EXPECT_EQ(Row(*store, 1), value);
  // The same without rows.
  ASSERT_TRUE(store->Clear({}).ok());
  restart(adam);
  EXPECT_EQ(former, "");
  EXPECT_EQ(bound(), "adam");
}

TEST(EmbeddingStoreTest, ClearForgetsRowsAndKeepsMemory) {
  auto store = MakeStore();
  std::vector<int64_t> ids(10000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  Lookup(store.get(), ids);
  const int64_t capacity = store->Stats().capacity;
  ASSERT_TRUE(store->Clear({}).ok());
  EXPECT_EQ(store->size(), 0);
  bool found = true;
  Row(*store, 5, &found);
  EXPECT_FALSE(found);
  Lookup(store.get(), ids);
  EXPECT_EQ(store->Stats().capacity, capacity);
}

// Compares every operation with std::map.
TEST(EmbeddingStoreTest, RandomOperationsAgreeWithAModel) {
  for (int dim : {1, 3, 8}) {
    auto store = MakeStore(3, dim, "zeros");
    std::map<int64_t, float> model;  // all columns hold the same value
    std::mt19937_64 rng(dim);
    for (int round = 0; round < 400; ++round) {
      std::vector<int64_t> ids(rng() % 200);
      for (int64_t& id : ids) id = static_cast<int64_t>(rng() % 3000) - 1500;
      int64_t returned;
      if (rng() % 8 == 0) {
        ASSERT_TRUE(store->Compact(&returned, {}).ok());
      }
      switch (rng() % 3) {
        case 0: {
          std::sort(ids.begin(), ids.end());
          ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
          Lookup(store.get(), ids);
          for (int64_t id : ids) model.emplace(id, 0.0f);
          break;
        }
        case 1: {
          std::vector<float> rows;
          for (int64_t id : ids) {
            const float value = static_cast<float>(rng() % 1000);
            rows.insert(rows.end(), dim, value);
            model[id] = value;
          }
          ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
          break;
        }
        default: {
          int64_t wanted = 0;
          for (int64_t id : ids) wanted += model.erase(id);
          ASSERT_EQ(Remove(store.get(), ids), wanted);
        }
      }
      ASSERT_EQ(store->size(), static_cast<int64_t>(model.size()));
    }
    EmbeddingRows rows = Export(*store);
    ASSERT_EQ(rows.ids.size(), model.size());
    size_t i = 0;
    for (const auto& [id, value] : model) {
      ASSERT_EQ(rows.ids[i], id);
      ASSERT_EQ(rows.values.as<float>()[i * dim + dim - 1], value);
      ++i;
    }
  }
}

// The budget of the design: 1.25 x (8 + 4 D (1 + slots)) + 36 bytes per row.
TEST(EmbeddingStoreTest, BytesPerRowStayInTheBudget) {
  for (int dim : {1, 32}) {
    for (bool slots : {false, true}) {
      auto store = MakeStore(16, dim, "zeros");
      if (slots) {
        ASSERT_TRUE(Adagrad(store.get(), {}, {}).ok());
      }
      int64_t next = 0;
      for (int64_t size : {100000, 150000, 200000, 300000}) {
        std::vector<int64_t> ids;
        while (next < size) ids.push_back(next++);
        Lookup(store.get(), ids);
        const EmbeddingStats stats = store->Stats();
        const double bytes = static_cast<double>(
            stats.index_bytes + stats.row_bytes + stats.slot_bytes);
        EXPECT_LE(bytes / size, 1.25 * (8 + 4 * dim * (1 + slots)) + 36)
            << size << " rows of " << dim << (slots ? " with a slot" : "");
      }
    }
  }
}

// Sanitizers allocate memory of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(EmbeddingStoreTest, ProcessMemoryPerRowStaysInTheBudget) {
  for (int dim : {1, 8}) {
    std::vector<int64_t> ids(4096);
    const auto see = [&](EmbeddingStore* store, int64_t first) {
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = first + i;
      Lookup(store, ids);
    };
    see(MakeStore(16, dim).get(), 0);  // allocations of a call itself
    const int64_t before = ResidentBytes();
    const auto store = MakeStore(16, dim);
    double most = 0.0;
    for (int64_t first = 0; first < 500000; first += ids.size()) {
      see(store.get(), first);
      if (store->size() < 100000) continue;
      const double bytes = static_cast<double>(ResidentBytes() - before);
      most = std::max(most, bytes / store->size());
    }
    EXPECT_LE(most, 1.25 * (8 + 4 * dim) + 36) << dim;
    EXPECT_GE(most, 24 + 4 * dim) << dim;
  }
}
#endif

TEST(EmbeddingStoreTest, CreateRefusesSizesOutOfRange) {
  RowInitializer initializer;
  std::unique_ptr<EmbeddingStore> store;
  ExpectError(EmbeddingStore::Create(0, 1, initializer, &store),
              StatusCode::kInvalidArgument,
              {"`dim` must be in [1, 65536], got 0"});
  ExpectError(EmbeddingStore::Create(1, 0, initializer, &store),
              StatusCode::kInvalidArgument,
              {"`num_shards` must be in [1, 4096], got 0"});
}

TEST(EmbeddingStoreTest, CreateEmptyLikeCopiesTheSettings) {
  TablePolicies policies;
  policies.eviction.max_rows = 3;
  policies.shared_rows = 5;
  const auto like = StoreOf(kDim, 4, InitializerOf("normal", 0, 1), policies,
                            RowType::kFloat16);
  Lookup(like.get(), {1, 2, 3});
  std::unique_ptr<EmbeddingStore> store;
  ASSERT_TRUE(EmbeddingStore::CreateEmptyLike(*like, 1, 2, &store).ok());
  EXPECT_EQ(store->size(), 0);
  EXPECT_EQ(store->dim(), kDim);
  EXPECT_EQ(store->type(), RowType::kFloat16);
  EXPECT_EQ(store->Stats().shards.size(), 4u);
  EXPECT_EQ(store->Stats().max_rows, 3);
  Lookup(store.get(), {1, 2, 3});
  EmbeddingRows rows = Export(*store);
  const EmbeddingRows wanted = Export(*like);
  EXPECT_TRUE(rows.values == wanted.values);
  EXPECT_TRUE(rows.shared_values == wanted.shared_values);
  EXPECT_EQ(rows.shared_values.size(), 5 * kDim);
  ASSERT_TRUE(EmbeddingStore::CreateEmptyLike(*like, 1, 3, &store).ok());
  Lookup(store.get(), {1, 2, 3});
  rows = Export(*store);
  EXPECT_EQ(rows.salt, 3);
  EXPECT_FALSE(rows.values == wanted.values);
  EXPECT_FALSE(rows.shared_values == wanted.shared_values);
}

TEST(EmbeddingStoreTest, ChosenIdsTakeNoLonger) {
  constexpr int64_t kIds = 8000;
  static constexpr EmbeddingStore::LookupOptions kCounting = {
      /*insert=*/true, /*count_frequency=*/true};
  const auto seconds = [](const std::vector<int64_t>& ids) {
    return CpuSecondsOf([&] {
      const auto store = StoreOf(1, 1, RowInitializer());
      std::vector<RowRef> refs(kIds);
      for (int call = 0; call < 2; ++call) {
        ASSERT_TRUE(store->FindOrInsert(ids, kCounting, refs, nullptr).ok());
      }
    });
  };
  const double usual = seconds(RandomIds(kIds));
  EXPECT_LT(seconds(IdsWithEqualLowBits(kIds)), 10 * usual);
}

}  // namespace
}  // namespace lodestar
