// Threads run all operations on one table concurrently. LODESTAR_STRESS_SECONDS
// sets the duration (default: a few seconds). Also run it with --config=tsan
// and --config=asan.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/stores.h"
#include "tests/core/testing/stress.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

using Store = std::shared_ptr<EmbeddingStore>;

Store MakeStore(int dim, const TablePolicies& policies = TablePolicies()) {
  return StoreOf(dim, 4, InitializerOf("zeros", 0, 0), policies);
}

std::vector<int64_t> SomeIds(Rng* rng, int64_t first, int64_t count,
                             int draws) {
  std::vector<int64_t> ids;
  for (int i = 0; i < draws; ++i) ids.push_back(first + (*rng)() % count);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void Lookup(EmbeddingStore* store, const std::vector<int64_t>& ids,
            bool all_get_rows = true) {
  for (const RowRef& ref : FindOrInsert(store, ids)) {
    ASSERT_TRUE(ref.found() || !all_get_rows);
  }
}

// The optimizer adds one to the slot, and the slot to the value: after n
// updates of a zero row they are n and n (n + 1) / 2.
constexpr char kCounter[] = "sgd_momentum";
void Count(EmbeddingStore* store, const std::vector<int64_t>& ids,
           bool create_missing) {
  const Rule counter = {kCounter, {1.0f, 0.0f, 1.0f, 0.0f}, {0.0f}};
  const std::vector<float> gradients(ids.size() * store->dim(), -1.0f);
  ASSERT_TRUE(Apply(store, ids, gradients, counter, create_missing).ok());
}
float ValueAfter(float n) { return n * (n + 1) / 2; }
constexpr float kMostUpdates = 5000.0f;  // the value is an exact float

// Ids below kCounted are only updated. Ids above are also assigned, and then
// column c differs from column 0 by c.
constexpr int64_t kCounted = 2000;
constexpr int64_t kIds = 3000;
float Checksum(int64_t id, int column) {
  if (id < kCounted) return 0.0f;
  return static_cast<float>((id * 31 + column * 17) % 1009 - (id * 31) % 1009);
}

bool IsWhole(int64_t id, const float* row, int dim) {
  // Zeros: never created, or removed.
  if (std::all_of(row, row + dim, [](float x) { return x == 0.0f; })) {
    return true;
  }
  for (int c = 0; c < dim; ++c) {
    if (row[c] - row[0] != Checksum(id, c)) return false;
  }
  return true;
}

std::string Describe(int64_t id, const float* row, int dim) {
  std::string text = StrCat("row of id ", id, ":");
  for (int c = 0; c < dim; ++c) text += StrCat(" ", row[c]);
  return text;
}

// Keeps the step.
EmbeddingRowsView ViewWithoutStep(const EmbeddingRows& rows) {
  EmbeddingRowsView view = View(rows);
  view.with_counters = false;
  return view;
}

// Values, and slots with values, are consistent in everything exported.
void ExportAndCheck(EmbeddingStore* store, EmbeddingRows* rows) {
  ASSERT_TRUE(store->Export(true, rows, nullptr).ok());
  ASSERT_TRUE(std::is_sorted(rows->ids.begin(), rows->ids.end()));
  const int dim = store->dim();
  std::vector<int64_t> full;
  for (size_t i = 0; i < rows->ids.size(); ++i) {
    const int64_t id = rows->ids[i];
    const float* value = rows->values.as<float>().data() + i * dim;
    ASSERT_TRUE(IsWhole(id, value, dim)) << Describe(id, value, dim);
    if (rows->optimizer.name.empty()) continue;
    const float* slot = rows->slots.as<float>().data() + i * dim;
    for (int c = 0; c < dim; ++c) {
      ASSERT_EQ(slot[c], slot[0]) << Describe(id, slot, dim);
      if (id < kCounted) {
        ASSERT_EQ(value[c], ValueAfter(slot[0]));
      }
    }
    if (slot[0] > kMostUpdates / 2) full.push_back(id);
  }
  Remove(store, full);
}

// Reads, training lookups, updates, assignments, removals, evictions, exports,
// imports, clears and compactions: no row is ever torn, and the cap is never
// exceeded.
void RowsAreWhole(int dim, double share,
                  const TablePolicies& policies = TablePolicies()) {
  Store current = MakeStore(dim, policies);
  // A thread keeps using its table when another one replaces it.
  const auto take = [&] { return std::atomic_load(&current); };
  const int64_t cap = policies.eviction.max_rows;
  const auto read = [&](Rng* rng) {
    const Store store = take();
    const std::vector<int64_t> ids = SomeIds(rng, 0, kIds, 500);
    ASSERT_TRUE(cap == 0 || store->size() <= cap) << store->size();
    std::vector<float> rows(ids.size() * dim);
    const auto found = std::make_unique<bool[]>(ids.size());
    store->Find(ids, nullptr, Missing(), rows.data(), found.get(), nullptr);
    for (size_t i = 0; i < ids.size(); ++i) {
      const float* row = &rows[i * dim];
      ASSERT_TRUE(IsWhole(ids[i], row, dim)) << Describe(ids[i], row, dim);
    }
  };
  const auto train = [&](Rng* rng) {
    const Store store = take();
    const std::vector<int64_t> ids = SomeIds(rng, 0, kCounted, 200);
    Lookup(store.get(), ids, cap == 0);
    Count(store.get(), ids, (*rng)() % 2 == 0);
    Count(store.get(), SomeIds(rng, kCounted, kIds - kCounted, 100), false);
  };
  const auto assign = [&](Rng* rng) {
    const Store store = take();
    const std::vector<int64_t> ids =
        SomeIds(rng, kCounted, kIds - kCounted, 100);
    std::vector<float> rows;
    for (int64_t id : ids) {
      const float first = static_cast<float>(1 + (*rng)() % 100000);
      for (int c = 0; c < dim; ++c) rows.push_back(first + Checksum(id, c));
    }
    ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
    Remove(store.get(), SomeIds(rng, 0, kIds, 50));
    EvictionPolicy policy;
    policy.max_age = 50;
    policy.min_norm = 2.0f;
    int64_t evicted;
    ASSERT_TRUE(store->Evict(policy, &evicted, nullptr).ok());
  };
  EmbeddingRows kept;
  const auto save = [&](Rng* rng) {
    const Store store = take();
    EmbeddingRows rows;
    ExportAndCheck(store.get(), &rows);
    switch ((*rng)() % 8) {
      case 0:
        ASSERT_TRUE(store->Clear({}).ok());
        break;
      case 1:
        // Rows without slots would reset the slots of existing rows.
        if (!rows.optimizer.name.empty()) kept = std::move(rows);
        break;
      case 2: {
        std::unique_ptr<EmbeddingStore> other;
        ASSERT_TRUE(EmbeddingStore::CreateFrom(ViewWithoutStep(kept), *store,
                                               nullptr, &other)
                        .ok());
        std::atomic_store(&current, Store(std::move(other)));
        break;
      }
      case 3: {
        const Status status = store->Import(ViewWithoutStep(kept), nullptr);
        // The merged rows may exceed the cap.
        ASSERT_TRUE(
            status.ok() ||
            (cap > 0 && status.code() == StatusCode::kFailedPrecondition));
        break;
      }
      default:
        break;
    }
  };
  const auto compact = [&](Rng*) {
    const Store store = take();
    int64_t returned;
    ASSERT_TRUE(store->Compact(&returned, {}).ok());
  };
  RunUntilTimeIsUp(share, {read, read, train, train, assign, save, compact});
  const Store store = take();
  ASSERT_TRUE(store->Export(false, &kept, nullptr).ok());
  EXPECT_EQ(static_cast<int64_t>(kept.ids.size()), store->size());
  EXPECT_TRUE(cap == 0 || store->size() <= cap);
}

TEST(EmbeddingStoreStressTest, RowsOfEvenWidthAreNeverTorn) {
  RowsAreWhole(16, 0.2);
}
TEST(EmbeddingStoreStressTest, RowsOfOddWidthAreNeverTorn) {
  RowsAreWhole(7, 0.2);
}

TEST(EmbeddingStoreStressTest, RowsAreNeverTornAndTheCapHolds) {
  for (EvictionPolicy::Order order :
       {EvictionPolicy::Order::kLru, EvictionPolicy::Order::kLfu}) {
    TablePolicies policies;
    policies.admission.kind = AdmissionPolicy::Kind::kMinCount;
    policies.admission.min_count = 2;
    policies.eviction.max_rows = 1200;
    policies.eviction.order = order;
    RowsAreWhole(6, 0.15, policies);
  }
}

// Rows of every type, shorter and longer than the widths that are copied at
// once. All columns of a row are equal after every write, so a reader notices a
// copy with parts of two writes. Without a sanitizer, this runs the plain loads
// and stores of a release; ThreadSanitizer compiles atomic ones.
void ColumnsStayEqual(RowType type, int dim, double share) {
  const auto store = StoreOf(dim, 4, InitializerOf("zeros", 0, 0), {}, type);
  constexpr int64_t kFew = 6;
  std::vector<int64_t> ids(kFew);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  Lookup(store.get(), ids);
  const std::vector<float> inits = {0.1f};
  const SparseOptimizer adagrad = OptimizerOf("adagrad", {0.5f, 0.0f, 1e-7f});
  const int64_t count = static_cast<int64_t>(ids.size()) * dim;
  const int64_t bytes = SizeOf(type);
  const auto read = [&](Rng*) {
    std::vector<char> rows(count * bytes);
    store->Find(ids, nullptr, Missing(), rows.data(), nullptr, nullptr);
    for (size_t i = 0; i < ids.size(); ++i) {
      const char* const row = rows.data() + i * dim * bytes;
      for (int c = 1; c < dim; ++c) {
        ASSERT_EQ(std::memcmp(row, row + c * bytes, bytes), 0)
            << "id " << ids[i] << ", column " << c;
      }
    }
  };
  const auto train = [&](Rng* rng) {
    const std::vector<float> gradients(count, (*rng)() % 2 == 0 ? 1.0f : -1.5f);
    ASSERT_TRUE(store
                    ->Apply(ids, gradients.data(), "adagrad", adagrad, inits,
                            false, -1, nullptr)
                    .ok());
  };
  const auto replace = [&](Rng* rng) {
    const std::vector<int64_t> some = SomeIds(rng, 0, kFew, 2);
    const std::vector<char> zero_rows(some.size() * dim * bytes);
    ASSERT_TRUE(store->InsertOrAssign(some, zero_rows.data(), nullptr).ok());
    Remove(store.get(), SomeIds(rng, 0, kFew, 2));
    int64_t returned;
    ASSERT_TRUE(store->Compact(&returned, {}).ok());
    Lookup(store.get(), ids);
  };
  RunUntilTimeIsUp(share, {read, read, train, train, train, replace});
}

TEST(EmbeddingStoreStressTest, RowsOfEveryTypeAreNeverTorn) {
  for (const RowType type :
       {RowType::kFloat32, RowType::kFloat16, RowType::kBFloat16}) {
    for (const int dim : {8, 33, 1100}) ColumnsStayEqual(type, dim, 0.05);
  }
}

// Eight threads look up the same ids. An id gets its row in its third step, on
// whichever thread looks it up first in that step.
TEST(EmbeddingStoreStressTest, AdmissionCountsStepsNotThreads) {
  TablePolicies policies;
  policies.admission.kind = AdmissionPolicy::Kind::kMinCount;
  policies.admission.min_count = 3;
  const Store store = MakeStore(2, policies);
  const auto end = std::chrono::steady_clock::now() + StressTime(0.1);
  int64_t step = 0;
  for (int64_t first = 0; first == 0 || std::chrono::steady_clock::now() < end;
       first += 300) {
    std::vector<int64_t> ids(300);
    for (int i = 0; i < 300; ++i) ids[i] = first + i;
    for (int64_t occurrence = 1; occurrence <= 3; ++occurrence) {
      EXPECT_TRUE(store->SetStep(++step).ok());
      std::vector<std::thread> threads;
      for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
          Rng rng(step * 8 + t);
          std::vector<int64_t> shuffled = ids;
          std::shuffle(shuffled.begin(), shuffled.end(), rng);
          Lookup(store.get(), shuffled, occurrence == 3);
        });
      }
      for (std::thread& thread : threads) thread.join();
      ASSERT_EQ(store->size(), occurrence == 3 ? first + 300 : first);
    }
    std::vector<int64_t> frequencies(ids.size());
    EXPECT_TRUE(store->Frequency(ids, frequencies, nullptr).ok());
    ASSERT_EQ(frequencies, std::vector<int64_t>(ids.size(), 3));
  }
}

// Other rows are added and removed, and the index grows and shrinks. No
// increment that threads send to a few rows is lost.
TEST(EmbeddingStoreStressTest, NoUpdateIsLost) {
  constexpr int kDim = 3;
  constexpr int kRows = 40;
  const Store store = MakeStore(kDim);
  std::vector<int64_t> ids(kRows);
  for (int i = 0; i < kRows; ++i) ids[i] = i * 4096;
  Lookup(store.get(), ids);
  const SparseOptimizer sgd = OptimizerOf("sgd", {1.0f, 0.0f});
  std::atomic<int64_t> sent{0};
  const auto count = [&](Rng* rng) {
    if (sent > (1 << 24) - 100) return;  // the limit of exact floats
    const std::vector<float> gradients(ids.size() * kDim, -1.0f);
    std::vector<int64_t> shuffled = ids;
    std::shuffle(shuffled.begin(), shuffled.end(), *rng);
    ASSERT_TRUE(store
                    ->Apply(shuffled, gradients.data(), "sgd", sgd, {}, false,
                            -1, nullptr)
                    .ok());
    ++sent;
  };
  const auto come_and_go = [&](Rng* rng) {
    const int64_t first = (*rng)() % 1000 * 4096 + 1;
    std::vector<int64_t> others;
    for (int64_t i = 0; i < 2000; ++i) others.push_back(first + i * 4096);
    Lookup(store.get(), others);
    Remove(store.get(), others);
  };
  const auto save = [&](Rng*) { const EmbeddingRows rows = Export(*store); };
  const auto compact = [&](Rng*) {
    int64_t returned;
    ASSERT_TRUE(store->Compact(&returned, {}).ok());
  };
  RunUntilTimeIsUp(0.2, {count, count, count, come_and_go, save, compact});
  std::vector<float> rows(ids.size() * kDim);
  store->Find(ids, nullptr, Missing(), rows.data(), nullptr, nullptr);
  for (float value : rows) {
    ASSERT_EQ(value, static_cast<float>(sent.load()));
  }
  EXPECT_EQ(store->step(), sent);
  EXPECT_EQ(store->Stats().count(Event::kGradientsDropped), 0);
}

// Threads look up the same ids in every step; each step counts once.
TEST(EmbeddingStoreStressTest, EveryStepCountsOnce) {
  const Store store = MakeStore(2);
  std::vector<int64_t> ids(500);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  const auto end = std::chrono::steady_clock::now() + StressTime(0.2);
  int64_t step = 0;
  while (std::chrono::steady_clock::now() < end || step == 0) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Rng rng(step * 4 + t);
        std::vector<int64_t> shuffled = ids;
        for (int lookup = 0; lookup < 3; ++lookup) {
          std::shuffle(shuffled.begin(), shuffled.end(), rng);
          Lookup(store.get(), shuffled);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(store->SetStep(++step).ok());
    std::vector<int64_t> frequencies(ids.size());
    EXPECT_TRUE(store->Frequency(ids, frequencies, nullptr).ok());
    ASSERT_EQ(frequencies, std::vector<int64_t>(ids.size(), step));
  }
}

}  // namespace
}  // namespace lodestar
