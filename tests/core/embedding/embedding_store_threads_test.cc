// Many concurrent callers. Also run it with --config=tsan.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/testing/errors.h"
#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/stores.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

constexpr int kDim = 8;
constexpr int kCallers = 4;

std::unique_ptr<EmbeddingStore> MakeStore(
    const TablePolicies& policies = TablePolicies()) {
  return StoreOf(kDim, 4, InitializerOf("zeros", 0, 0), policies);
}

void RunCallers(const std::function<void(int)>& caller) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kCallers; ++t) threads.emplace_back(caller, t);
  for (std::thread& thread : threads) thread.join();
}

const Rule kSubtract = {"sgd", {1.0f, 0.0f}};
const Rule kAdagrad = {"adagrad", {1.0f, 0.0f, 1e-7f}, {0.1f}};

TEST(EmbeddingStoreThreadsTest, EachReadIsCountedOnce) {
  auto store = MakeStore();
  std::vector<int64_t> ids(100);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  const Span<const int64_t> known(ids.data(), 60);
  const std::vector<float> ones(known.size() * kDim, 1.0f);
  ASSERT_TRUE(store->InsertOrAssign(known, ones.data(), nullptr).ok());
  const int64_t padding = 0;
  constexpr int kRounds = 200;
  RunCallers([&](int) {
    std::vector<float> rows(ids.size() * kDim);
    for (int i = 0; i < kRounds; ++i) {
      const ReadCounts reads =
          store->Find(ids, &padding, Missing(), rows.data(), nullptr, nullptr);
      ASSERT_EQ(reads.hits, 59);
      ASSERT_EQ(reads.misses, 40);
      store->CountReads(reads);
    }
  });
  EmbeddingStats stats = store->Stats();
  EXPECT_EQ(stats.count(Event::kReadHits), 59 * kRounds * kCallers);
  EXPECT_EQ(stats.count(Event::kReadMisses), 40 * kRounds * kCallers);
  EXPECT_EQ(stats.count(Event::kHits), 0);
  store->SubtractEvents(stats);
  stats = store->Stats();
  EXPECT_EQ(stats.count(Event::kReadHits), 0);
  EXPECT_EQ(stats.count(Event::kReadMisses), 0);
}

// The first one stays attached, even if the other checked before that.
TEST(EmbeddingStoreThreadsTest, OfTwoFirstOptimizersOneIsRefused) {
  const std::vector<int64_t> ids = {1, 2, 3};
  const std::vector<float> ones(ids.size() * kDim, 1.0f);
  for (int round = 0; round < 5000; ++round) {
    auto store = MakeStore();
    ASSERT_TRUE(store->InsertOrAssign(ids, ones.data(), nullptr).ok());
    std::atomic<int> ready{0};
    const auto meet = [&] {
      ready.fetch_add(1);
      for (int spins = 0; ready.load() < 2; ++spins) {
        if (spins > 10000) std::this_thread::yield();
      }
    };
    Status first, second;
    std::thread other([&] {
      meet();
      second = Apply(store.get(), ids, ones, kAdagrad);
    });
    meet();
    first = Apply(store.get(), ids, ones, kSubtract);
    other.join();
    ASSERT_NE(first.ok(), second.ok()) << "round " << round;
    ASSERT_EQ((first.ok() ? second : first).code(),
              StatusCode::kFailedPrecondition);
  }
}

TEST(EmbeddingStoreThreadsTest, CallersThatInsertTheSameIdsShareRows) {
  auto store = MakeStore();
  std::vector<int64_t> ids(20000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i) * 7;
  RunCallers([&](int t) {
    std::mt19937_64 rng(t);
    std::vector<int64_t> mine = ids;
    std::shuffle(mine.begin(), mine.end(), rng);
    for (size_t i = 0; i < mine.size(); i += 500) {
      FindOrInsert(store.get(), {mine.begin() + i, mine.begin() + i + 500});
    }
  });
  EXPECT_EQ(store->size(), static_cast<int64_t>(ids.size()));
  std::vector<int64_t> frequencies(ids.size());
  EXPECT_TRUE(store->Frequency(ids, frequencies, nullptr).ok());
  for (int64_t frequency : frequencies) ASSERT_EQ(frequency, 1);
  const EmbeddingRows rows = Export(*store);
  EXPECT_EQ(rows.ids, ids);
}

// Another caller moves the step while this one finds its rows: the rows are
// ordered by the step that is current when they are moved.
TEST(EmbeddingStoreThreadsTest, RowsAreOrderedByTheCurrentStep) {
  TablePolicies max_rows;
  max_rows.eviction.max_rows = 10;
  TablePolicies max_age;
  max_age.eviction.max_age = 100;
  for (const TablePolicies& policies : {max_rows, max_age}) {
    auto store = MakeStore(policies);
    std::vector<RowRef> refs(2);
    const std::vector<int64_t> old_ids = {1, 2};
    const std::vector<int64_t> ids = {1, 3};
    ASSERT_TRUE(store->FindOrInsert(old_ids, kTraining, refs, nullptr).ok());
    EXPECT_TRUE(store->SetStep(5).ok());
    const ParallelFor parallel =
        [&](int64_t total, int64_t,
            const std::function<void(int64_t, int64_t)>& body) {
          EXPECT_TRUE(store->SetStep(7).ok());
          body(0, total);
        };
    ASSERT_TRUE(store->FindOrInsert(ids, kTraining, refs, &parallel).ok());
    EmbeddingRows rows;
    ASSERT_TRUE(store->Export(false, &rows, nullptr).ok());
    EXPECT_EQ(rows.last_seen, (std::vector<int64_t>{7, 0, 7}));
    EXPECT_EQ(rows.frequencies, (std::vector<int64_t>{2, 1, 1}));
  }
}

// A pool of one thread, which runs its tasks in order.
class OneThread {
 public:
  OneThread() : thread_([this] { Run(); }) {}
  ~OneThread() {
    Post(nullptr);
    thread_.join();
  }
  void Post(std::function<void()> task) {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_one();
  }
  // The calling thread runs the first half of a loop.
  ParallelFor Halves() {
    return [this](int64_t total, int64_t,
                  const std::function<void(int64_t, int64_t)>& body) {
      std::promise<void> done;
      Post([&] {
        body(total / 2, total);
        done.set_value();
      });
      body(0, total / 2);
      done.get_future().wait();
    };
  }

 private:
  void Run() {
    while (true) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (task == nullptr) return;
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};

// A caller that holds shards during a loop waits for the pool. Therefore no
// task of the pool may wait for shards.
TEST(EmbeddingStoreThreadsTest, NoTaskOfAPoolWaitsForAShard) {
  TablePolicies capped;
  capped.eviction.max_rows = 1000;
  for (const TablePolicies& policies : {TablePolicies(), capped}) {
    auto store = MakeStore(policies);
    std::vector<int64_t> ids(100);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
    const std::vector<float> rows(ids.size() * kDim, 1.0f);
    ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
    const EmbeddingRows exported = Export(*store);
    OneThread pool;
    const ParallelFor halves = pool.Halves();
    const auto see = [&] {
      FindOrInsert(store.get(), ids, kTraining, &halves);
    };
    const auto merge = [&] {
      ASSERT_TRUE(store->Import(View(exported), &halves).ok());
    };
    for (const std::function<void()>& call :
         {std::function<void()>(see), std::function<void()>(merge)}) {
      std::thread caller;
      // Under all locks: wait until the caller cannot proceed further and the
      // pool is idle.
      const ParallelFor with_locks =
          [&](int64_t total, int64_t,
              const std::function<void(int64_t, int64_t)>& body) {
            caller = std::thread(call);
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            const auto begun = std::make_shared<std::promise<void>>();
            pool.Post([begun] { begun->set_value(); });
            EXPECT_EQ(begun->get_future().wait_for(std::chrono::minutes(1)),
                      std::future_status::ready);
            body(0, total);
          };
      EmbeddingRows again;
      ASSERT_TRUE(store->Export(true, &again, &with_locks).ok());
      caller.join();
    }
  }
}

// An optimizer is attached after an import has checked the table and before it
// locks it.
TEST(EmbeddingStoreThreadsTest, AMergeDoesNotWriteAnotherOptimizersSlots) {
  for (const bool resident : {false, true}) {
    auto store = MakeStore();
    const std::vector<int64_t> ids = {1};
    const std::vector<float> ones(kDim, 1.0f);
    if (resident) {
      ASSERT_TRUE(store->InsertOrAssign(ids, ones.data(), nullptr).ok());
    }
    const std::vector<float> slots(2 * kDim, 7.0f);
    const std::vector<int64_t> numbers = {3};
    EmbeddingRowsView rows;
    rows.ids = ids;
    rows.values = ones;
    rows.slots = slots;
    rows.frequencies = rows.last_seen = numbers;
    rows.optimizer = {"adam", {"momentum", "velocity"}, {0.0f, 0.0f}};
    const ParallelFor attach_first =
        [&](int64_t total, int64_t,
            const std::function<void(int64_t, int64_t)>& body) {
          ASSERT_TRUE(Apply(store.get(), {}, {}, kSubtract).ok());
          body(0, total);
        };
    ExpectError(store->Import(rows, &attach_first),
                StatusCode::kFailedPrecondition,
                {"of 'sgd', but the update uses 'adam'"});
    EXPECT_EQ(store->size(), resident ? 1 : 0);
  }
}

}  // namespace
}  // namespace lodestar
