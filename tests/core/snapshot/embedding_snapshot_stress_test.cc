// Snapshots of two tables during concurrent training, in which each step
// updates both tables inside their gates. Run it under --config=tsan
// and --config=asan too.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/testing/snapshot_content.h"
#include "tests/core/testing/stores.h"
#include "tests/core/testing/stress.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/snapshot/embedding_snapshot.h"

namespace lodestar {
namespace {

using Store = std::shared_ptr<EmbeddingStore>;
using Ids = std::vector<int64_t>;

constexpr int kDim = 9;
constexpr int64_t kTrained =
    3000;  // ids [0, kTrained); others are inserted and removed
const std::vector<float> kInits = {0.0f};

Store MakeStore(int64_t shards, const TablePolicies& policies) {
  return StoreOf(kDim, shards, InitializerOf("zeros", 0, 0), policies);
}

Ids Draw(Rng* rng, int64_t first, int64_t count, int draws) {
  Ids ids;
  for (int i = 0; i < draws; ++i) ids.push_back(first + (*rng)() % count);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// The slot of a row then counts its updates, in every column.
void Train(EmbeddingStore* store, const Ids& ids) {
  const std::vector<float> gradients(ids.size() * kDim, 1.0f);
  const Rule adagrad = {"adagrad", {0.25f, 0.0f, 1e-7f}, {0.0f}};
  ASSERT_TRUE(Apply(store, ids, gradients, adagrad).ok());
}

// Returns the value and the number of updates of a consistent row.
std::pair<float, float> RowOf(const std::string& record) {
  const SnapshotRowLayout layout(kDim, RowType::kFloat32, {1});
  float value[kDim];
  float slot[kDim];
  std::memcpy(value, record.data() + layout.values(), sizeof(value));
  std::memcpy(slot, record.data() + layout.slot(0), sizeof(slot));
  for (int c = 1; c < kDim; ++c) {
    EXPECT_EQ(value[c], value[0]);
    EXPECT_EQ(slot[c], slot[0]);
  }
  return {value[0], slot[0]};
}

class SnapshotStress {
 public:
  SnapshotStress(const TablePolicies& policies, double share)
      : share_(share), tables_{MakeStore(5, policies), MakeStore(2, policies)} {
    Ids ids;
    for (int64_t id = 0; id < kTrained; ++id) ids.push_back(id);
    for (const Store& table : tables_) {
      FindOrInsert(table.get(), ids);
      Train(table.get(), {0, 1});
    }
  }

  void Run() {
    // On a slow machine, one snapshot takes all of the time.
    while (committed_ == 0 && !testing::Test::HasFailure()) {
      RunUntilTimeIsUp(share_, {
                                   [&](Rng* rng) { Step(rng); },
                                   [&](Rng* rng) { Step(rng); },
                                   [&](Rng* rng) { Step(rng); },
                                   [&](Rng* rng) { Churn(rng); },
                                   [&](Rng*) { Save(); },
                               });
    }
    abort_share_ = 0;
    Save();
    for (int t = 0; t < 2; ++t) {
      EXPECT_TRUE(content_[t] == ContentOf(*tables_[t]));
    }
    EXPECT_GT(committed_, 1);
  }

 private:
  // Updates the same rows of both tables, and two rows per id: 2k and 2k + 1.
  void Step(Rng* rng) {
    Ids ids;
    for (const int64_t k : Draw(rng, 0, kTrained / 2, 20)) {
      ids.push_back(2 * k);
      ids.push_back(2 * k + 1);
    }
    FindOrInsert(tables_[0].get(), ids);
    while (!gates_.TryEnter()) std::this_thread::yield();
    Train(tables_[0].get(), ids);
    Train(tables_[1].get(), ids);
    gates_.Exit();
  }

  void Churn(Rng* rng) {
    EmbeddingStore* const table = tables_[(*rng)() % 2].get();
    const Ids others = Draw(rng, kTrained, 20000, 200);
    int64_t number;
    switch ((*rng)() % 6) {
      case 0:
      case 1:
        FindOrInsert(table, others);
        break;
      case 2:
        ASSERT_TRUE(table->Remove(others, &number, {}).ok());
        break;
      case 3: {
        const std::vector<float> rows(others.size() * kDim, 0.5f);
        ASSERT_TRUE(table->InsertOrAssign(others, rows.data(), nullptr).ok());
        break;
      }
      case 4:
        ASSERT_TRUE(table->Compact(&number, {}).ok());
        break;
      case 5:
        if ((*rng)() % 8 == 0) {
          ASSERT_TRUE(table->DecayFrequencies(0.9, nullptr).ok());
        }
        break;
    }
  }

  void Save() {
    const std::vector<EmbeddingSnapshot::Source> sources = {
        {tables_[0], base_}, {tables_[1], saves_() % 5 == 0 ? "" : base_}};
    Snapshots snapshots;
    const Status status = EmbeddingSnapshot::Begin(sources, gates_, &snapshots);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto budget = RunningBudget(tables_[0].get());
    std::vector<TableContent> content = content_;
    for (int t = 0; t < 2; ++t) SaveInto(snapshots[t].get(), &content[t]);
    EXPECT_EQ(budget->bytes(), 0);
    for (int64_t id = 0; id < kTrained; ++id) {
      const auto row = RowOf(content[0].rows[id]);
      ASSERT_EQ(row, RowOf(content[1].rows[id])) << id;
      // Snapshots from before the first step have only one of the rows.
      if (id > 1) {
        ASSERT_EQ(row, RowOf(content[0].rows[id ^ 1])) << id;
      }
    }
    if (saves_() % 4 < abort_share_) return;
    base_ = "root/" + std::to_string(++committed_);
    for (const auto& snapshot : snapshots) snapshot->Commit(base_);
    content_ = std::move(content);
  }

  const double share_;
  const std::vector<Store> tables_;
  const StepGates gates_{
      {std::make_shared<StepGate>(), std::make_shared<StepGate>()}};
  std::vector<TableContent> content_{2};
  std::string base_;
  int64_t committed_ = 0;
  uint64_t abort_share_ = 1;
  // Used by one thread at a time; continues after the time is up.
  Rng saves_{4};
};

TEST(EmbeddingSnapshotStressTest, StepsAreAtomicAcrossTables) {
  SnapshotStress(TablePolicies(), 0.4).Run();
}

TEST(EmbeddingSnapshotStressTest, StepsAreAtomicWithEvictionOrder) {
  TablePolicies policies;
  policies.eviction.max_rows = 30000;
  SnapshotStress(policies, 0.3).Run();
}

// While the images of one group of tables exceed their limit, only writers of
// these tables wait.
TEST(EmbeddingSnapshotStressTest, ImagesOfOneGroupDoNotAffectAnother) {
  constexpr int64_t kRows = 40000;
  Ids all(kRows);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<float> rows(kRows * kDim);
  Store stores[3];
  for (Store& store : stores) {
    store = MakeStore(3, TablePolicies());
    FindOrInsert(store.get(), all);
  }
  const auto gate = std::make_shared<StepGate>();
  const StepGates gates({gate, std::make_shared<StepGate>()});
  const StepGates others({std::make_shared<StepGate>()});
  const std::vector<EmbeddingSnapshot::Source> sources = {{stores[0], ""},
                                                          {stores[1], ""}};
  Snapshots snapshots;
  ASSERT_TRUE(EmbeddingSnapshot::Begin(sources, gates, &snapshots).ok());
  auto other = BeginSnapshot(stores[2], "", others);
  const auto budget = RunningBudget(stores[0].get());
  EXPECT_EQ(RunningBudget(stores[1].get()), budget);
  for (int t = 0; t < 2; ++t) Train(stores[t].get(), all);
  EXPECT_FALSE(gates.TryEnter());
  EXPECT_FALSE(StepGates({gate}).TryEnter());
  std::atomic<bool> assigned{false};
  std::thread waiting;
  {
    const ImageBudget::Writer writer(budget.get());
    waiting = std::thread([&] {
      EXPECT_TRUE(stores[1]->InsertOrAssign(all, rows.data(), nullptr).ok());
      assigned = true;
    });
    ASSERT_TRUE(others.TryEnter());
    Train(stores[2].get(), {1});
    others.Exit();
    EXPECT_TRUE(stores[2]->InsertOrAssign(Ids{1}, rows.data(), nullptr).ok());
    TableContent content;
    SaveInto(other.get(), &content);
    other->Commit("a");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(assigned);
    for (int t = 0; t < 2; ++t) SaveInto(snapshots[t].get(), &content);
  }
  waiting.join();
  ASSERT_TRUE(gates.TryEnter());
  gates.Exit();
}

}  // namespace
}  // namespace lodestar
