// Random chains of snapshot files, compared with a simple model.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/core/snapshot/snapshot_tables.h"
#include "tests/core/testing/threads.h"
#include "tf_ops/core/base/hash.h"

namespace lodestar {
namespace {

// A simple model of a chain of files. All values of a row are one number. The
// values of slot s are that number + s + 1, or the slot's initial value.
struct Model {
  struct Row {
    float value;
    bool with_slots;
    int64_t last_seen;
    uint32_t frequency;
  };
  struct Waiting {
    uint32_t occurrences;
    int64_t last_seen;
  };
  SnapshotTable table = Table(true);
  std::map<int64_t, Row> rows;
  std::map<int64_t, Row> shared;
  std::map<int64_t, Waiting> pending;
  std::vector<uint8_t> sketch;

  // Uses an import, which is another way to fill a table.
  std::unique_ptr<EmbeddingStore> Make(const TablePolicies& policies,
                                       int64_t shards) const {
    EmbeddingRows all;
    all.optimizer = table.optimizer;
    const int64_t num_slots = all.optimizer.slot_inits.size();
    all.values.Resize(table.type, rows.size() * kDim);
    all.slots.Resize(RowType::kFloat32, num_slots * rows.size() * kDim);
    all.shared_values.Resize(table.type, shared.size() * kDim);
    all.shared_slots.Resize(RowType::kFloat32,
                            num_slots * shared.size() * kDim);
    for (const auto& [id, row] : rows) {
      Fill(row, all.ids.size(), rows.size(), &all.values, &all.slots);
      all.ids.push_back(id);
      all.frequencies.push_back(row.frequency);
      all.last_seen.push_back(row.last_seen);
    }
    for (const auto& [id, row] : shared) {
      Fill(row, id, shared.size(), &all.shared_values, &all.shared_slots);
    }
    for (const auto& [id, waiting] : pending) {
      all.pending_ids.push_back(id);
      all.pending_sightings.push_back(waiting.occurrences);
      all.pending_last_seen.push_back(waiting.last_seen);
    }
    all.sketch = sketch;
    all.step = table.step;
    all.seed = table.seed;
    all.salt = table.salt;
    all.own_step = table.own_step;
    std::unique_ptr<EmbeddingStore> store =
        MakeStore(policies, shards, table.type);
    const Status status = ImportInPlaceOf(&store, View(all));
    EXPECT_TRUE(status.ok()) << status.message();
    return store;
  }

 private:
  void Fill(const Row& row, int64_t i, int64_t count, Numbers* values,
            Numbers* slots) const {
    VisitRowType(table.type, [&](auto zero) {
      using T = decltype(zero);
      std::fill_n(reinterpret_cast<T*>(values->at(i * kDim)), kDim,
                  RoundTo<T>(row.value));
    });
    for (size_t s = 0; s < table.optimizer.slot_inits.size(); ++s) {
      std::fill_n(
          reinterpret_cast<float*>(slots->at((s * count + i) * kDim)), kDim,
          row.with_slots ? row.value + s + 1 : table.optimizer.slot_inits[s]);
    }
  }
};

struct Case {
  std::string name;
  RowType type = RowType::kFloat32;
  AdmissionPolicy::Kind admission = AdmissionPolicy::Kind::kAll;
  EvictionPolicy::Order order = EvictionPolicy::Order::kLru;
  int64_t max_rows = 0;
  int64_t max_age = -1;
  int64_t shared_rows = 0;
  bool attaches_midway = false;
  int threads = 1;
};

TablePolicies PoliciesOf(const Case& c) {
  TablePolicies policies;
  policies.admission.kind = c.admission;
  policies.admission.min_count =
      c.admission == AdmissionPolicy::Kind::kAll ? 1 : 3;
  policies.admission.num_counters = 100;
  policies.admission.num_hashes = 3;
  policies.eviction.max_rows = c.max_rows;
  policies.eviction.order = c.order;
  policies.eviction.max_age = c.max_age;
  policies.shared_rows = c.shared_rows;
  return policies;
}

// Writes files of changes to a model.
class ChainMaker {
 public:
  ChainMaker(const Case& c, uint32_t seed) : case_(c), random_(seed) {
    model_.table = Table(true, c.type);
    model_.table.shared_rows = c.shared_rows;
    if (c.attaches_midway) model_.table.optimizer = {};
  }

  const Model& model() const { return model_; }

  std::string Next(bool whole) {
    SnapshotTable& table = model_.table;
    table.whole = whole;
    table.step = 1000 + number_;
    table.own_step = Draw(2) != 0;
    if (case_.attaches_midway && number_ == 2) table.optimizer = Adagrad();
    const std::string path = NewPath(StrCat(number_++));
    FileMaker file(path, table);
    std::set<int64_t> changed;
    const int64_t changes = whole ? 300 : Draw(120);
    for (int64_t i = 0; i < changes; ++i) changed.insert(DrawId());
    std::vector<int64_t> removed;
    for (int64_t id : changed) {
      if (whole || Draw(3) != 0) continue;
      // Some ids were never resident, some are inserted again at once.
      removed.push_back(id);
      if (Draw(3) != 0) model_.rows.erase(id);
    }
    std::shuffle(removed.begin(), removed.end(), random_);
    for (size_t i = 0; i < removed.size(); i += 7) {
      file.AddIds(BlockKind::kRemoved,
                  {removed.begin() + i,
                   removed.begin() + std::min(i + 7, removed.size())});
    }
    std::vector<std::string> records;
    for (int64_t id : changed) {
      const bool gone =
          std::find(removed.begin(), removed.end(), id) != removed.end() &&
          model_.rows.count(id) == 0;
      if (gone && Draw(2) == 0) continue;
      const Model::Row row = DrawRow();
      model_.rows[id] = row;
      records.push_back(
          RowRecord(table, id, row.value, row.last_seen, row.frequency));
    }
    // A row that was removed but is in the model is written again.
    for (int64_t id : removed) {
      if (model_.rows.count(id) == 0 || Written(records, id)) continue;
      const Model::Row& row = model_.rows[id];
      records.push_back(
          RowRecord(table, id, row.value, row.last_seen, row.frequency));
    }
    std::shuffle(records.begin(), records.end(), random_);
    for (size_t i = 0; i < records.size(); i += 13) {
      file.AddRows({records.begin() + i,
                    records.begin() + std::min(i + 13, records.size())});
    }
    AddShared(whole, &file);
    AddPending(&file);
    file.Finish();
    return path;
  }

 private:
  static bool Written(const std::vector<std::string>& records, int64_t id) {
    return std::any_of(records.begin(), records.end(), [&](const auto& record) {
      return NumberAt<int64_t>(record, 0) == id;
    });
  }
  int64_t Draw(int64_t below) {
    return std::uniform_int_distribution<int64_t>(0, below - 1)(random_);
  }
  // From the whole range, but of few ids.
  int64_t DrawId() {
    return static_cast<int64_t>(Mix64(static_cast<uint64_t>(Draw(500))));
  }
  Model::Row DrawRow() {
    return {static_cast<float>(Draw(1000)),
            !model_.table.optimizer.name.empty(), Draw(20),
            static_cast<uint32_t>(Draw(2) != 0 ? Draw(5) : 0xffffffff)};
  }

  void AddShared(bool whole, FileMaker* file) {
    std::vector<std::string> records;
    for (int64_t r = 0; r < case_.shared_rows; ++r) {
      if (!whole && Draw(2) != 0) continue;
      const Model::Row row = DrawRow();
      model_.shared[r] = row;
      records.push_back(RowRecord(model_.table, r, row.value));
    }
    file->AddRows(records, BlockKind::kSharedRows);
  }

  void AddPending(FileMaker* file) {
    using Kind = AdmissionPolicy::Kind;
    if (case_.admission == Kind::kAll) return;
    model_.pending.clear();
    std::string records;
    for (int64_t i = 0; i < 20; ++i) {
      const int64_t id = DrawId();
      if (model_.rows.count(id) != 0 || model_.pending.count(id) != 0) continue;
      const bool sketch = case_.admission == Kind::kCountingBloom;
      const Model::Waiting waiting = {static_cast<uint32_t>(1 + Draw(2)),
                                      sketch ? model_.table.step : Draw(20)};
      model_.pending[id] = waiting;
      records += PendingRecord(id, waiting.occurrences, waiting.last_seen);
    }
    file->Add(BlockKind::kPending, model_.pending.size(), records);
    if (case_.admission != Kind::kCountingBloom) return;
    model_.sketch.resize(100);
    for (uint8_t& counter : model_.sketch) {
      counter = static_cast<uint8_t>(Draw(256));
    }
    const std::string sketch(model_.sketch.begin(), model_.sketch.end());
    // Threads add the pieces in another order.
    for (int64_t i = 0; i < 100; i += 2) {
      file->Add(BlockKind::kSketch, 2, sketch.substr(i, 2));
    }
  }

  const Case case_;
  std::mt19937 random_;
  Model model_;
  int number_ = 0;
};

class SnapshotRestoreModelTest : public testing::TestWithParam<Case> {};

TEST_P(SnapshotRestoreModelTest, RestoresAChain) {
  const Case& c = GetParam();
  const TablePolicies policies = PoliciesOf(c);
  const ParallelFor threads = Threads(c.threads);
  for (uint32_t seed = 0; seed < 5; ++seed) {
    ChainMaker maker(c, seed);
    std::vector<std::string> files = {maker.Next(true)};
    for (int64_t deltas = 0; deltas < 5; ++deltas) {
      const auto wanted = maker.model().Make(policies, 4);
      for (int64_t shards : {1, 4, 7}) {
        SCOPED_TRACE(StrCat("seed ", seed, ", ", files.size(), " files, ",
                            shards, " shards"));
        const auto like = MakeStore(policies, shards, c.type);
        std::unique_ptr<EmbeddingStore> store;
        const Status status = Restore(files, *like, &store, false, &threads);
        ASSERT_TRUE(status.ok()) << status.message();
        ExpectEqual(Export(*store), Export(*wanted));
        EXPECT_EQ(store->size(), wanted->size());
        EXPECT_EQ(store->Stats().shards.size(), static_cast<size_t>(shards));
      }
      files.push_back(maker.Next(false));
    }
  }
}

TEST_P(SnapshotRestoreModelTest, IncrementalFilesCanBeAppliedOneByOne) {
  const Case& c = GetParam();
  const TablePolicies policies = PoliciesOf(c);
  if (c.max_rows > 0) return;
  for (uint32_t seed = 0; seed < 5; ++seed) {
    ChainMaker maker(c, seed);
    const auto like = MakeStore(policies, 4, c.type);
    const auto live = MustRestore({maker.Next(true)}, *like);
    ASSERT_NE(live, nullptr);
    for (int64_t deltas = 0; deltas < 5; ++deltas) {
      SCOPED_TRACE(StrCat("seed ", seed, ", delta ", deltas));
      const EmbeddingRows before = Export(*live);
      SnapshotDelta::Applied applied;
      const Status status = ApplyFile(maker.Next(false), live.get(), &applied);
      ASSERT_TRUE(status.ok()) << status.message();
      const auto wanted = maker.model().Make(policies, 4);
      ExpectEqual(Export(*live), Export(*wanted));
      EXPECT_EQ(live->size(), wanted->size());
      int64_t gone = 0;
      for (int64_t id : before.ids) gone += maker.model().rows.count(id) == 0;
      EXPECT_EQ(applied.removed, gone);
    }
  }
}

// The eviction order only determines which rows are evicted first.
TEST_P(SnapshotRestoreModelTest, EvictionOrderIsRestored) {
  const Case& c = GetParam();
  const TablePolicies policies = PoliciesOf(c);
  if (c.max_rows == 0 && c.max_age < 0) return;
  ChainMaker maker(c, 3);
  std::vector<std::string> files = {maker.Next(true), maker.Next(false)};
  const auto wanted = maker.model().Make(policies, 4);
  const auto like = MakeStore(policies, 4, c.type);
  const auto loaded = MustRestore(files, *like);
  ASSERT_NE(loaded, nullptr);
  std::vector<EmbeddingStore*> stores = {wanted.get(), loaded.get()};
  std::unique_ptr<EmbeddingStore> live;
  if (c.max_rows == 0) {
    live = MustRestore({files[0]}, *like);
    ASSERT_TRUE(ApplyFile(files[1], live.get()).ok());
    stores.push_back(live.get());
  }
  const int64_t first_step = wanted->step();
  for (EmbeddingStore* store : stores) {
    EXPECT_TRUE(store->SetStep(c.max_age < 0 ? first_step : 10).ok());
    for (int64_t first = 0; first < 500; first += 20) {
      FindOrInsert(store, Range(-20 - first, -first));
      int64_t evicted = 0;
      ASSERT_TRUE(store->Evict(store->eviction(), &evicted, nullptr).ok());
      EXPECT_TRUE(store->SetStep(store->step() + 1).ok());
    }
  }
  ExpectEqual(Export(*loaded), Export(*wanted));
  if (live != nullptr) ExpectEqual(Export(*live), Export(*wanted));
  EXPECT_GT(wanted->Stats().count(Event::kEvicted), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SnapshotRestoreModelTest,
    testing::Values(
        Case{"plain"}, Case{"half", RowType::kFloat16},
        Case{"bfloat", RowType::kBFloat16},
        Case{"threads", RowType::kFloat32, AdmissionPolicy::Kind::kAll,
             EvictionPolicy::Order::kLru, 0, -1, 0, false, 4},
        Case{"min_count", RowType::kFloat32, AdmissionPolicy::Kind::kMinCount},
        Case{"sketch", RowType::kFloat32, AdmissionPolicy::Kind::kCountingBloom,
             EvictionPolicy::Order::kLru, 0, -1, 0, false, 4},
        Case{"lru", RowType::kFloat32, AdmissionPolicy::Kind::kAll,
             EvictionPolicy::Order::kLru, 600},
        Case{"lfu", RowType::kFloat32, AdmissionPolicy::Kind::kAll,
             EvictionPolicy::Order::kLfu, 600, -1, 0, false, 4},
        Case{"age", RowType::kFloat32, AdmissionPolicy::Kind::kAll,
             EvictionPolicy::Order::kLru, 0, 12},
        Case{"shared", RowType::kFloat16, AdmissionPolicy::Kind::kAll,
             EvictionPolicy::Order::kLru, 0, -1, 9, false, 4},
        Case{"midway", RowType::kFloat32, AdmissionPolicy::Kind::kMinCount,
             EvictionPolicy::Order::kLru, 0, -1, 5, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lodestar
