#include "tf_ops/core/snapshot/embedding_snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/snapshot_content.h"
#include "tests/core/testing/stores.h"
#include "tests/core/testing/updates_outside.h"
#include "tf_ops/core/base/step_gate.h"

namespace lodestar {
namespace {

constexpr int kDim = 3;
using Store = std::shared_ptr<EmbeddingStore>;

Store MakeStore(const TablePolicies& policies = TablePolicies(),
                int64_t shards = 3, RowType type = RowType::kFloat32,
                int dim = kDim) {
  return StoreOf(dim, shards, InitializerOf(), policies, type);
}

const Rule kRules[] = {
    {"sgd", {0.5f, 0}},
    {"adagrad", {0.5f, 0, 1e-7f}, {0.1f}},
    {"adam", {0.5f, 0, 0.1f, 0.001f, 1e-7f, 0.01f}, {0, 0}},
    {"row_wise_adagrad", {0.5f, 0, 1e-7f}, {0.1f}},
};

void Train(EmbeddingStore* store, const std::vector<int64_t>& ids,
           const Rule& rule, bool create = false, float gradient = 1) {
  const std::vector<float> gradients(ids.size() * store->dim(), gradient);
  const Status status = Apply(store, ids, gradients, rule, create);
  ASSERT_TRUE(status.ok()) << status.message();
}

TEST(EmbeddingSnapshotTest, FullAndIncremental) {
  const Store store = MakeStore();
  FindOrInsert(store.get(), Range(0, 1000));
  Train(store.get(), {0}, kRules[1]);
  EXPECT_EQ(store->base(), "");
  TableContent content;
  auto snapshot = BeginSnapshot(store, "");
  EXPECT_TRUE(snapshot->table().whole);
  EXPECT_EQ(SaveInto(snapshot.get(), &content).rows, 1000);
  snapshot->Commit("root/1");
  EXPECT_EQ(store->base(), "root/1");
  EXPECT_TRUE(content == ContentOf(*store));

  Train(store.get(), {3, 4, 5}, kRules[1]);
  Remove(store.get(), {5, 6, 7777});
  FindOrInsert(store.get(), {5, 2000});
  snapshot = BeginSnapshot(store, "root/1");
  EXPECT_FALSE(snapshot->table().whole);
  const SnapshotFileCounts counts = SaveInto(snapshot.get(), &content);
  EXPECT_EQ(counts.rows, 4);  // 3, 4, 5 and 2000
  EXPECT_EQ(counts.removed, 2);
  snapshot->Commit("root/2");
  EXPECT_TRUE(content == ContentOf(*store));

  // No changes.
  snapshot = BeginSnapshot(store, "root/2");
  const SnapshotFileCounts none = SaveInto(snapshot.get(), &content);
  EXPECT_FALSE(none.whole);
  EXPECT_EQ(none.rows + none.removed, 0);
  snapshot->Commit("root/3");
  EXPECT_TRUE(content == ContentOf(*store));

  // Another base requires a full snapshot.
  snapshot = BeginSnapshot(store, "root/2");
  EXPECT_TRUE(snapshot->table().whole);
}

TEST(EmbeddingSnapshotTest, AnEmptyTable) {
  const Store store = MakeStore();
  TableContent content;
  auto snapshot = BeginSnapshot(store, "");
  EXPECT_EQ(SaveInto(snapshot.get(), &content).rows, 0);
  snapshot->Commit("a");
  EXPECT_TRUE(content == ContentOf(*store));
  FindOrInsert(store.get(), {1});
  snapshot = BeginSnapshot(store, "a");
  EXPECT_EQ(SaveInto(snapshot.get(), &content).rows, 1);
  EXPECT_TRUE(content == ContentOf(*store));
}

// Applies every kind of write during a snapshot.
TEST(EmbeddingSnapshotTest, ContainsRowsAsOfItsBeginning) {
  TablePolicies policies;
  policies.shared_rows = 5;
  const Store store = MakeStore(policies);
  FindOrInsert(store.get(), Range(0, 3000));
  Train(store.get(), Range(2990, 3010), kRules[1]);
  const TableContent before = ContentOf(*store);
  auto snapshot = BeginSnapshot(store, "");
  Train(store.get(), Range(0, 700), kRules[1]);
  Train(store.get(), Range(5000, 5100), kRules[1]);  // shared rows
  FindOrInsert(store.get(), Range(600, 800));
  int64_t count;
  Remove(store.get(), Range(700, 900));
  FindOrInsert(store.get(),
               Range(10000, 10100));  // reuse the slots of removed rows
  ASSERT_TRUE(store->Compact(&count, {}).ok());
  const std::vector<float> ones(100 * kDim, 1.0f);
  ASSERT_TRUE(
      store->InsertOrAssign(Range(950, 1050), ones.data(), nullptr).ok());
  EmbeddingRows rows = Export(*store);
  for (int64_t& frequency : rows.frequencies) frequency += 7;
  ASSERT_TRUE(store->Import(View(rows), nullptr).ok());
  EvictionPolicy shorter;
  shorter.min_norm = 0.5f;
  ASSERT_TRUE(store->Evict(shorter, &count, nullptr).ok());
  EXPECT_GT(count, 0);
  FindOrInsert(store.get(), Range(20000, 24000));
  TableContent content;
  SaveInto(snapshot.get(), &content);
  EXPECT_TRUE(content == before);
  snapshot->Commit("a");
  snapshot = BeginSnapshot(store, "a");
  EXPECT_FALSE(snapshot->table().whole);
  SaveInto(snapshot.get(), &content);
  EXPECT_TRUE(content == ContentOf(*store));
}

TEST(EmbeddingSnapshotTest, ExcludesOptimizerSlotsAttachedLater) {
  const Store store = MakeStore();
  FindOrInsert(store.get(), Range(0, 100));
  auto snapshot = BeginSnapshot(store, "");
  const TableContent before = ContentOf(*store);
  Train(store.get(), Range(0, 50), kRules[1]);
  TableContent content;
  SaveInto(snapshot.get(), &content);
  EXPECT_TRUE(content == before);
  snapshot->Commit("a");
  // Every row now has slots.
  EXPECT_EQ(store->base(), "");
  snapshot = BeginSnapshot(store, "a");
  EXPECT_TRUE(snapshot->table().whole);
  SaveInto(snapshot.get(), &content);
  EXPECT_TRUE(content == ContentOf(*store));
}

// An import attaches the optimizer to the table, the next update to shared
// rows.
TEST(EmbeddingSnapshotTest, SharedRowsHaveTheSlotsOfTheTable) {
  TablePolicies policies;
  policies.shared_rows = 5;
  const Store store = MakeStore(policies);
  FindOrInsert(store.get(), Range(0, 10));
  EmbeddingRows rows = Export(*store);
  rows.optimizer = {"adagrad", {"accumulator"}, {0.5f}};
  rows.slots.Resize(RowType::kFloat32, 10 * kDim);
  const Status status = store->Import(View(rows), nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  TableContent content;
  auto snapshot = BeginSnapshot(store, "");
  EXPECT_EQ(SaveInto(snapshot.get(), &content).shared_rows, 5);
  snapshot->Commit("a");
  EXPECT_TRUE(content == ContentOf(*store));
  Train(store.get(), {5000}, kRules[1]);  // to one of the shared rows
  snapshot = BeginSnapshot(store, "a");
  EXPECT_EQ(SaveInto(snapshot.get(), &content).shared_rows, 1);
  EXPECT_TRUE(content == ContentOf(*store));
}

TEST(EmbeddingSnapshotTest, AbortingLosesNoChanges) {
  const Store store = MakeStore();
  FindOrInsert(store.get(), Range(0, 2000));
  Train(store.get(), {0}, kRules[2]);
  TableContent content;
  auto snapshot = BeginSnapshot(store, "");
  SaveInto(snapshot.get(), &content);
  snapshot->Commit("a");
  Train(store.get(), Range(100, 200), kRules[2]);
  int64_t count;
  Remove(store.get(), Range(150, 160));
  // Aborted before it is written, while there are images, and after Write.
  for (int round = 0; round < 3; ++round) {
    snapshot = BeginSnapshot(store, "a");
    Train(store.get(), Range(120 + round * 50, 210 + round * 50), kRules[2]);
    Remove(store.get(), Range(300 + round, 310 + round));
    ASSERT_TRUE(store->Compact(&count, {}).ok());
    TableContent aborted = content;
    if (round == 2) SaveInto(snapshot.get(), &aborted);
    snapshot.reset();
    EXPECT_EQ(store->base(), "a");
  }
  snapshot = BeginSnapshot(store, "a");
  EXPECT_FALSE(snapshot->table().whole);
  const SnapshotFileCounts counts = SaveInto(snapshot.get(), &content);
  EXPECT_EQ(counts.rows, 310 - 100 - 10 - 10);
  EXPECT_TRUE(content == ContentOf(*store));
  // Aborting the first snapshot leaves a table that marks no rows.
  const Store other = MakeStore();
  BeginSnapshot(other, "").reset();
  EXPECT_EQ(other->base(), "");
}

TEST(EmbeddingSnapshotTest, OnlyCompleteSnapshotsAreCommitted) {
  const Store store = MakeStore();
  FindOrInsert(store.get(), Range(0, 10));
  auto snapshot = BeginSnapshot(store, "");
  snapshot->Commit("a");
  EXPECT_EQ(store->base(), "");
  const SnapshotPath path;
  EXPECT_EQ(WriteSnapshot(snapshot.get(), path.path()).code(),
            StatusCode::kFailedPrecondition);
  // A partially written snapshot cannot be committed either.
  snapshot = BeginSnapshot(store, "");
  std::unique_ptr<SnapshotFileWriter> file;
  const SnapshotPath finished;
  ASSERT_TRUE(SnapshotFileWriter::Create(finished.path(), "label", &file).ok());
  ASSERT_TRUE(file->Finish().ok());
  EXPECT_FALSE(snapshot->Write(file.get()).ok());
  snapshot->Commit("a");
  EXPECT_EQ(store->base(), "");
}

TEST(EmbeddingSnapshotTest, OneAtATime) {
  const Store a = MakeStore();
  const Store b = MakeStore();
  auto snapshot = BeginSnapshot(a, "");
  Snapshots snapshots;
  const std::vector<EmbeddingSnapshot::Source> both = {{b, ""}, {a, ""}};
  const Status status = EmbeddingSnapshot::Begin(both, StepGates(), &snapshots);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "the table already has a running snapshot.");
  // Neither snapshot has begun.
  EXPECT_NE(BeginSnapshot(b, ""), nullptr);
  snapshot->Abort();
  EXPECT_TRUE(EmbeddingSnapshot::Begin(both, StepGates(), &snapshots).ok());
  snapshots.clear();
  const std::vector<EmbeddingSnapshot::Source> twice = {{a, ""}, {a, ""}};
  EXPECT_EQ(EmbeddingSnapshot::Begin(twice, StepGates(), &snapshots).message(),
            "the snapshot lists one table twice.");
}

// Calls that change all rows wait; the next snapshot is full if necessary.
TEST(EmbeddingSnapshotTest, ChangesOfAllRowsWaitForItsEnd) {
  const Store store = MakeStore();
  FindOrInsert(store.get(), Range(0, 1000));
  struct Call {
    std::function<void()> call;
    std::string base;
  };
  const std::vector<Call> calls = {
      {[&] { ASSERT_TRUE(store->DecayFrequencies(0.5, nullptr).ok()); }, "a"},
      {[&] { ASSERT_TRUE(store->Clear({}).ok()); }, ""},
      {[&] { store->SetBase("b", {}); }, "b"},
  };
  for (const Call& call : calls) {
    auto snapshot = BeginSnapshot(store, "");
    const TableContent before = ContentOf(*store);
    std::atomic<bool> done{false};
    std::thread caller([&] {
      call.call();
      done = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_FALSE(done);
    TableContent content;
    SaveInto(snapshot.get(), &content);
    EXPECT_TRUE(content == before);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(done);
    snapshot->Commit("a");
    caller.join();
    EXPECT_EQ(store->base(), call.base);
    if (call.base == "b") continue;
    snapshot = BeginSnapshot(store, "a");
    EXPECT_EQ(snapshot->table().whole, call.base.empty());
    SaveInto(snapshot.get(), &content);
    EXPECT_TRUE(content == ContentOf(*store));
  }
}

// A replacing import creates another table, which has no base.
TEST(EmbeddingSnapshotTest, AReplacingImportDoesNotAffectIt) {
  Store store = MakeStore();
  FindOrInsert(store.get(), Range(0, 1000));
  auto snapshot = BeginSnapshot(store, "");
  const TableContent before = ContentOf(*store);
  EmbeddingRows rows = Export(*MakeStore());
  ASSERT_TRUE(ImportInPlaceOf(&store, View(rows)).ok());
  FindOrInsert(store.get(), {7});
  TableContent content;
  SaveInto(snapshot.get(), &content);
  EXPECT_TRUE(content == before);
  snapshot->Commit("a");
  EXPECT_EQ(store->base(), "");
  snapshot = BeginSnapshot(store, "a");
  EXPECT_TRUE(snapshot->table().whole);
  SaveInto(snapshot.get(), &content);
  EXPECT_TRUE(content == ContentOf(*store));
}

TEST(EmbeddingSnapshotTest, AllRowsAreRemovedDuringASnapshot) {
  for (const int64_t rows : {100, 5000}) {  // few removed ids, and many
    TablePolicies policies;
    policies.eviction.order = EvictionPolicy::Order::kLru;
    policies.eviction.max_rows = 10000;
    const Store store = MakeStore(policies);
    FindOrInsert(store.get(), Range(0, rows));
    Train(store.get(), {0}, kRules[1]);
    auto snapshot = BeginSnapshot(store, "");
    const TableContent before = ContentOf(*store);
    ASSERT_TRUE(store->RemoveAll({}).ok());
    EXPECT_EQ(store->size(), 0);
    FindOrInsert(store.get(), Range(3, 7));
    TableContent content;
    SaveInto(snapshot.get(), &content);
    EXPECT_TRUE(content == before);
    snapshot->Commit("a");
    snapshot = BeginSnapshot(store, "a");
    SaveInto(snapshot.get(), &content);
    EXPECT_TRUE(content == ContentOf(*store));
    snapshot->Commit("b");
    // And without a running snapshot.
    ASSERT_TRUE(store->RemoveAll({}).ok());
    EXPECT_EQ(store->size(), 0);
    EXPECT_EQ(store->Stats().count(Event::kRemoved), rows + 4);
    FindOrInsert(store.get(), {1});
    snapshot = BeginSnapshot(store, "b");
    SaveInto(snapshot.get(), &content);
    EXPECT_TRUE(content == ContentOf(*store));
  }
}

TEST(EmbeddingSnapshotTest, SetBaseAllowsIncrementalSnapshots) {
  const Store store = MakeStore();
  FindOrInsert(store.get(), Range(0, 100));
  store->SetBase("root/7", {});
  EXPECT_EQ(store->base(), "root/7");
  Train(store.get(), {}, kRules[0]);  // attaches an optimizer
  EXPECT_EQ(store->base(), "");
  store->SetBase("root/7", {});
  TableContent content = ContentOf(*store);
  FindOrInsert(store.get(), {100});
  Train(store.get(), {7}, kRules[0]);
  auto snapshot = BeginSnapshot(store, "root/7");
  EXPECT_EQ(SaveInto(snapshot.get(), &content).rows, 2);
  EXPECT_TRUE(content == ContentOf(*store));
  snapshot->Abort();
  store->SetBase("", {});
  EXPECT_TRUE(BeginSnapshot(store, "root/7")->table().whole);
}

// With many removed ids, a full snapshot is smaller.
TEST(EmbeddingSnapshotTest, AfterManyRemovalsItIsFull) {
  for (const int64_t removed : {1000, 5000}) {
    const Store store = MakeStore(TablePolicies(), 1);
    FindOrInsert(store.get(), Range(0, 6000));
    TableContent content;
    auto snapshot = BeginSnapshot(store, "");
    SaveInto(snapshot.get(), &content);
    snapshot->Commit("a");
    Remove(store.get(), Range(0, removed));
    snapshot = BeginSnapshot(store, "a");
    EXPECT_EQ(snapshot->table().whole, removed == 5000);
    SaveInto(snapshot.get(), &content);
    EXPECT_TRUE(content == ContentOf(*store));
  }
}

TEST(EmbeddingSnapshotTest, CompactionMovesRowsWithTheirMarks) {
  const Store store = MakeStore(TablePolicies(), 1);
  FindOrInsert(store.get(), Range(0, 5000));
  TableContent content;
  auto snapshot = BeginSnapshot(store, "");
  SaveInto(snapshot.get(), &content);
  snapshot->Commit("a");
  int64_t count;
  Remove(store.get(), Range(0, 1000));
  FindOrInsert(store.get(), Range(4900, 5000), {false, true});
  ASSERT_TRUE(store->Compact(&count, {}).ok());
  EXPECT_GT(count, 0);
  snapshot = BeginSnapshot(store, "a");
  const SnapshotFileCounts counts = SaveInto(snapshot.get(), &content);
  EXPECT_EQ(counts.rows, 0);  // its step inserted the rows
  snapshot->Commit("b");
  EXPECT_TRUE(store->SetStep(1).ok());
  FindOrInsert(store.get(), Range(1000, 1010), {false, true});
  Remove(store.get(), Range(2000, 2500));
  ASSERT_TRUE(store->Compact(&count, {}).ok());
  snapshot = BeginSnapshot(store, "b");
  EXPECT_EQ(SaveInto(snapshot.get(), &content).rows, 10);
  EXPECT_TRUE(content == ContentOf(*store));
}

// Steps wait while there are too many images, and resume when they are written.
TEST(EmbeddingSnapshotTest, ImagesAreBounded) {
  constexpr int kWide = 64;
  constexpr int64_t kRows = 40000;
  constexpr int64_t kStep = 100;
  const Store store = MakeStore(TablePolicies(), 4, RowType::kFloat32, kWide);
  const std::vector<int64_t> all = Range(0, kRows);
  FindOrInsert(store.get(), all);
  Train(store.get(), {0}, kRules[1]);
  const EmbeddingStats stats = store->Stats();
  const int64_t limit = (stats.row_bytes + stats.slot_bytes) / 10;
  const TableContent before = ContentOf(*store);
  const StepGates gates({std::make_shared<StepGate>()});
  auto snapshot = BeginSnapshot(store, "", gates);
  const auto budget = RunningBudget(store.get());
  ASSERT_EQ(budget->bytes(), 0);
  // A step that finds the gate closed resumes when it is opened.
  int64_t next = 0;
  const auto train = [&] {
    while (next < kRows && gates.TryEnter()) {
      Train(store.get(), Range(next, next + kStep), kRules[1]);
      next += kStep;
      gates.Exit();
    }
  };
  train();
  EXPECT_GT(next, kRows / 20);
  EXPECT_LT(next, kRows / 6);
  bool entered = false;
  const auto step = [&](StepScope) { entered = true; };
  ASSERT_TRUE(gates.Run([](auto call) { call(); }, step, [] {}).ok());
  EXPECT_FALSE(entered);
  // Lookups do not wait.
  FindOrInsert(store.get(), Range(0, 10));
  TableContent content;
  SaveInto(snapshot.get(), &content);
  EXPECT_TRUE(entered);
  EXPECT_EQ(budget->bytes(), 0);
  EXPECT_LE(budget->peak(),
            limit + 4 * (int64_t{256} << 10) + kStep * kWide * 8);
  EXPECT_TRUE(content == before);
  snapshot->Commit("a");
  train();
  EXPECT_EQ(next, kRows);
  // Abort opens the gate as well.
  snapshot = BeginSnapshot(store, "", gates);
  next = 0;
  train();
  EXPECT_LT(next, kRows);
  snapshot->Abort();
  train();
  EXPECT_EQ(next, kRows);
}

// Compares random events with an export, for every kind of table.
class RandomEvents {
 public:
  RandomEvents(const TablePolicies& policies, int64_t shards, RowType type,
               uint64_t seed)
      : store_(MakeStore(policies, shards, type)),
        rule_(kRules[seed % 4]),
        unfused_(type == RowType::kFloat32 && seed % 4 == 3),
        max_rows_(policies.eviction.max_rows),
        rng_(seed) {}

  void Run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      Change(1 + rng_() % 6, true);
      const std::string base = rng_() % 5 == 0 ? "" : base_;
      const bool has_base = !base.empty() && store_->base() == base;
      const TableContent expected = ContentOf(*store_);
      auto snapshot = BeginSnapshot(store_, base);
      ASSERT_NE(snapshot, nullptr);
      ASSERT_EQ(snapshot->table().whole, !has_base);
      Change(rng_() % 6, false);
      if (rng_() % 6 == 0) continue;  // aborted
      TableContent content = content_;
      SnapshotFileCounts counts;
      if (rng_() % 3 == 0) {
        std::thread saver([&] { counts = SaveInto(snapshot.get(), &content); });
        Change(rng_() % 4, false);
        saver.join();
      } else {
        counts = SaveInto(snapshot.get(), &content);
      }
      ASSERT_TRUE(content == expected) << "round " << round;
      Change(rng_() % 3, false);
      if (rng_() % 6 == 0) continue;
      base_ = "root/" + std::to_string(round);
      snapshot->Commit(base_);
      content_ = std::move(content);
      deltas_ += !counts.whole;
    }
  }
  int deltas() const { return deltas_; }

 private:
  std::vector<int64_t> Ids() {
    std::vector<int64_t> ids(rng_() % 300);
    const int64_t first = rng_() % 2000;
    for (int64_t& id : ids) id = first + rng_() % 400;
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }

  void Change(int count, bool any) {
    for (int i = 0; i < count; ++i) Change(any);
  }
  // any: includes calls that wait for the end of a snapshot.
  void Change(bool any) {
    EmbeddingStore* const store = store_.get();
    int64_t number;
    switch (rng_() % (any ? 14 : 11)) {
      case 0:
      case 1:
      case 2:
        FindOrInsert(store, Ids());
        break;
      case 3:
      case 4:
        TrainSome();
        break;
      case 5:
        ASSERT_TRUE(store->Remove(Ids(), &number, {}).ok());
        break;
      case 6: {
        const std::vector<int64_t> ids = Ids();
        const std::vector<char> rows(ids.size() * store->row_bytes(),
                                     rng_() % 60);
        ASSERT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
        break;
      }
      case 7: {
        EvictionPolicy policy;
        policy.max_age = 1 + rng_() % 20;
        ASSERT_TRUE(store->Evict(policy, &number, nullptr).ok());
        break;
      }
      case 8:
        ASSERT_TRUE(store->Compact(&number, {}).ok());
        break;
      case 9:
        EXPECT_TRUE(store->SetStep(store->step() + rng_() % 3).ok());
        if (rng_() % 2 == 0) store->ReleaseStep();
        break;
      case 10:
        Import(false);
        break;
      case 11:
        if (rng_() % 4 == 0) {
          ASSERT_TRUE(store->Clear({}).ok());
        }
        break;
      case 12:
        ASSERT_TRUE(store->DecayFrequencies(0.75, nullptr).ok());
        break;
      case 13:
        if (rng_() % 4 == 0) Import(true);
        break;
    }
  }
  void TrainSome() {
    if (!unfused_) {
      Train(store_.get(), Ids(), rule_, rng_() % 2 == 0,
            static_cast<float>(rng_() % 5) - 2);
      return;
    }
    RowsOutside rows(store_.get(), Unfused({"a", "b"}, {0.5f, 0}));
    const std::vector<int64_t> ids = Ids();
    ASSERT_TRUE(rows.Gather(ids, std::vector<float>(ids.size() * kDim)).ok());
    for (float& x : rows.values) x += 1;
    for (float& x : rows.slots) x *= 2;
    ASSERT_TRUE(rows.Assign().ok());
  }
  void Import(bool replace) {
    EmbeddingRows rows = Export(*store_);
    for (int64_t& frequency : rows.frequencies) ++frequency;
    if (!replace) {
      for (int64_t& id : rows.ids) {
        // Some ids are new.
        if (max_rows_ == 0 && rng_() % 16 == 0) id += 100000;
      }
      std::sort(rows.ids.begin(), rows.ids.end());
      rows.ids.erase(std::unique(rows.ids.begin(), rows.ids.end()),
                     rows.ids.end());
      if (rows.ids.size() != rows.frequencies.size()) return;
    }
    const Status status = replace ? ImportInPlaceOf(&store_, View(rows))
                                  : store_->Import(View(rows), nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  Store store_;
  const Rule rule_;
  const bool unfused_;
  const int64_t max_rows_;
  std::mt19937_64 rng_;
  TableContent content_;  // of the chain
  std::string base_;
  int deltas_ = 0;
};

std::vector<TablePolicies> AllPolicies() {
  std::vector<TablePolicies> all(6);
  all[1].admission.kind = AdmissionPolicy::Kind::kMinCount;
  all[1].admission.min_count = 2;
  all[2].admission.kind = AdmissionPolicy::Kind::kCountingBloom;
  all[2].admission.min_count = 2;
  all[2].admission.num_counters = 5000;
  all[2].admission.num_hashes = 3;
  all[2].shared_rows = 7;
  all[3].eviction.max_rows = 1500;
  all[3].shared_rows = 100;
  all[4].eviction.max_rows = 1500;
  all[4].eviction.order = EvictionPolicy::Order::kLfu;
  all[5].eviction.max_age = 30;
  return all;
}

TEST(EmbeddingSnapshotTest, RandomEventsAgreeWithAnExport) {
  uint64_t seed = 0;
  for (const TablePolicies& policies : AllPolicies()) {
    for (const int64_t shards : {1, 3, 16}) {
      for (const RowType type :
           {RowType::kFloat32, RowType::kFloat16, RowType::kBFloat16}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        RandomEvents events(policies, shards, type, seed++);
        events.Run(25);
        if (HasFatalFailure()) return;
        EXPECT_GT(events.deltas(), 3);
      }
    }
  }
}

}  // namespace
}  // namespace lodestar
