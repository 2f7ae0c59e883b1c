// Many callers at once; run it under --config=tsan too.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "tf_ops/core/embedding_store.h"

namespace lodestar {
namespace {

constexpr int kDim = 8;
constexpr int kCallers = 4;

std::unique_ptr<EmbeddingStore> MakeStore() {
  RowInitializer initializer;
  EXPECT_TRUE(RowInitializer::Create("zeros", 0, 0, 0, 0, &initializer).ok());
  std::unique_ptr<EmbeddingStore> store;
  EXPECT_TRUE(EmbeddingStore::Create(kDim, 4, initializer, &store).ok());
  return store;
}

void RunCallers(const std::function<void(int)>& caller) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kCallers; ++t) threads.emplace_back(caller, t);
  for (std::thread& thread : threads) thread.join();
}

Status Subtract(EmbeddingStore* store, const std::vector<int64_t>& ids,
                const std::vector<float>& gradients) {
  SparseOptimizer optimizer;
  const std::vector<float> h = {1.0f, 0.0f};
  LODESTAR_RETURN_IF_ERROR(SparseOptimizer::Create("sgd", h, &optimizer));
  return store->Apply(ids, gradients.data(), "sgd", optimizer, {}, false, -1,
                      nullptr);
}

TEST(EmbeddingStoreThreadsTest, NoUpdateIsLost) {
  auto store = MakeStore();
  std::vector<int64_t> ids(64);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  const std::vector<float> zeros(ids.size() * kDim, 0.0f);
  ASSERT_TRUE(store->InsertOrAssign(ids, zeros.data(), nullptr).ok());
  constexpr int kRounds = 300;
  RunCallers([&](int) {
    const std::vector<float> gradients(ids.size() * kDim, -1.0f);
    for (int i = 0; i < kRounds; ++i) {
      ASSERT_TRUE(Subtract(store.get(), ids, gradients).ok());
    }
  });
  std::vector<float> rows(ids.size() * kDim);
  store->Find(ids, nullptr, Missing(), rows.data(), nullptr, nullptr);
  for (float value : rows) ASSERT_EQ(value, kRounds * kCallers);
  EXPECT_EQ(store->step(), kRounds * kCallers);
}

TEST(EmbeddingStoreThreadsTest, CallersThatInsertTheSameIdsShareRows) {
  auto store = MakeStore();
  std::vector<int64_t> ids(20000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i) * 7;
  RunCallers([&](int t) {
    std::mt19937_64 rng(t);
    std::vector<int64_t> mine = ids;
    std::shuffle(mine.begin(), mine.end(), rng);
    EmbeddingStore::SightingOptions options;
    options.insert = options.count = true;
    for (size_t i = 0; i < mine.size(); i += 500) {
      const Span<const int64_t> part(mine.data() + i, 500);
      std::vector<RowRef> refs(500);
      ASSERT_TRUE(store->FindOrInsert(part, options, refs, nullptr).ok());
    }
  });
  EXPECT_EQ(store->size(), static_cast<int64_t>(ids.size()));
  std::vector<int64_t> frequencies(ids.size());
  store->Frequency(ids, frequencies, nullptr);
  for (int64_t frequency : frequencies) ASSERT_EQ(frequency, 1);
  EmbeddingRows rows;
  ASSERT_TRUE(store->Export(true, &rows, nullptr).ok());
  EXPECT_EQ(rows.ids, ids);
}

// Everything at once. Whoever writes a row writes one number in all columns,
// so a torn or foreign row shows; rows of id i hold numbers that are i modulo
// 64, so a row that was given to another id shows too.
TEST(EmbeddingStoreThreadsTest, RowsAreWholeUnderEverything) {
  auto store = MakeStore();
  constexpr int kIds = 64 * 40;
  std::atomic<bool> stop{false};
  std::atomic<int64_t> reads{0};
  std::thread reader([&] {
    std::vector<int64_t> ids(kIds);
    for (int i = 0; i < kIds; ++i) ids[i] = i;
    std::vector<float> rows(kIds * kDim);
    std::vector<char> found(kIds);
    while (!stop) {
      store->Find(ids, nullptr, Missing(), rows.data(),
                  reinterpret_cast<bool*>(found.data()), nullptr);
      for (int i = 0; i < kIds; ++i) {
        const float first = rows[i * kDim];
        for (int c = 1; c < kDim; ++c) ASSERT_EQ(rows[i * kDim + c], first);
        if (first != 0.0f) {
          ASSERT_EQ(static_cast<int64_t>(first) % 64, i % 64);
        }
      }
      ++reads;
    }
  });
  RunCallers([&](int t) {
    std::mt19937_64 rng(t);
    for (int round = 0; round < 150; ++round) {
      std::vector<int64_t> ids;
      for (int i = 0; i < 100; ++i) ids.push_back(rng() % kIds);
      switch ((round + t) % 4) {
        case 0: {
          std::vector<float> rows;
          for (int64_t id : ids) {
            rows.insert(rows.end(), kDim,
                        static_cast<float>(id % 64 + 64 * (1 + rng() % 100)));
          }
          ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
          break;
        }
        case 1: {
          int64_t removed = 0;
          ASSERT_TRUE(store->Remove(ids, &removed).ok());
          break;
        }
        case 2: {
          std::sort(ids.begin(), ids.end());
          ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
          // Multiples of 64 keep the class of a row that holds a number.
          std::vector<float> gradients(ids.size() * kDim, -64.0f);
          std::vector<int64_t> resident;
          for (int64_t id : ids) {
            if (id % 64 != 0) resident.push_back(id);
          }
          ASSERT_TRUE(Subtract(store.get(), resident, gradients).ok());
          break;
        }
        default: {
          EmbeddingRows rows;
          ASSERT_TRUE(store->Export(false, &rows, nullptr).ok());
          ASSERT_TRUE(std::is_sorted(rows.ids.begin(), rows.ids.end()));
          if (round % 50 == 0) {
            ASSERT_TRUE(store->Clear().ok());
          }
        }
      }
    }
  });
  stop = true;
  reader.join();
  EXPECT_GT(reads, 0);
  EmbeddingRows rows;
  ASSERT_TRUE(store->Export(true, &rows, nullptr).ok());
  EXPECT_EQ(static_cast<int64_t>(rows.ids.size()), store->size());
}

}  // namespace
}  // namespace lodestar
