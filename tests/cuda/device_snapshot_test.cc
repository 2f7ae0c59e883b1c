// Compares snapshots of tables on a GPU with snapshots of the same table in
// host memory, full and incremental, while both tables change, and tables that
// are restored from them.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/device_tables.h"
#include "tests/cuda/outside_update.h"
#include "tests/cuda/run_tests.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/snapshot/embedding_snapshot.h"
#include "tf_ops/core/snapshot/snapshot_delta.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_restore.h"
#include "tf_ops/core/snapshot/snapshot_table.h"
#include "tf_ops/core/table/snapshot_source.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {
namespace {

using Snapshot = std::unique_ptr<EmbeddingSnapshot>;

// A temporary file, removed by the destructor.
class TempFile {
 public:
  TempFile() {
    char folder[] = "/tmp/device_snapshot_XXXXXX";
    Expect(mkdtemp(folder) != nullptr, "a temporary folder");
    folder_ = folder;
  }
  ~TempFile() {
    std::remove(path().c_str());
    std::remove(folder_.c_str());
  }
  TempFile(const TempFile&) = delete;
  std::string path() const { return folder_ + "/table"; }

 private:
  std::string folder_;
};

// Content of a snapshot file.
struct FileContent {
  std::string table;  // the TABLE block
  bool whole = false;
  std::map<int64_t, std::string> rows;
  std::set<int64_t> removed;
  std::set<std::string> pending;
  std::string sketch;
  std::map<int64_t, std::string> shared;
};

Snapshot Begin(Table* table, const std::string& base, const Execution& on) {
  // The caller owns the table.
  const EmbeddingSnapshot::Source source = {
      {std::shared_ptr<void>(), table}, base, on};
  std::vector<Snapshot> snapshots;
  ExpectOk(EmbeddingSnapshot::Begin({&source, 1}, StepGates(), &snapshots),
           "begin");
  return std::move(snapshots[0]);
}

FileContent Write(EmbeddingSnapshot* snapshot, const std::string& path) {
  FileContent content;
  std::unique_ptr<SnapshotFileWriter> file;
  ExpectOk(SnapshotFileWriter::Create(path, "label", &file), "create");
  ExpectOk(snapshot->Write(file.get()), "write");
  ExpectOk(file->Finish(), "finish");
  std::unique_ptr<SnapshotFileReader> reader;
  ExpectOk(SnapshotFileReader::Open(path, &reader), "open");
  SnapshotTable table;
  ExpectOk(ReadTable(*reader, &table), "table");
  content.table = EncodeTable(table);
  content.whole = table.whole;
  SnapshotScan scan(*reader);
  for (bool more = true; more;) {
    SnapshotFileReader::Block block;
    ExpectOk(scan.Next(&block, &more), "scan");
    if (!more) break;
    ExpectOk(CheckRecords(*reader, table, block), "records");
    const int64_t bytes = table.record_bytes();
    for (int64_t i = 0; i < block.count; ++i) {
      if (block.kind == BlockKind::kRows ||
          block.kind == BlockKind::kSharedRows) {
        const std::string record(block.payload.data() + i * bytes, bytes);
        const int64_t id = block.at<int64_t>(i * bytes);
        auto& rows =
            block.kind == BlockKind::kRows ? content.rows : content.shared;
        Expect(rows.emplace(id, record).second,
               std::to_string(id) + " occurs twice");
      } else if (block.kind == BlockKind::kPending) {
        content.pending.insert(
            std::string(block.payload.data() + i * sizeof(SnapshotPending),
                        sizeof(SnapshotPending)));
      } else if (block.kind == BlockKind::kSketch) {
        content.sketch += block.payload[i];
      } else if (block.kind == BlockKind::kRemoved) {
        content.removed.insert(block.at<int64_t>(i * 8));
      }
    }
  }
  return content;
}

EmbeddingRows ExportOf(const Table& table, const Execution& on) {
  EmbeddingRows rows;
  ExpectOk(table.Export(/*with_slots=*/true, &rows, on), "export");
  return rows;
}

void ExpectSameRows(const EmbeddingRows& got, const EmbeddingRows& wanted,
                    const std::string& what) {
  Expect(got.ids == wanted.ids, what + ": ids");
  Expect(got.values == wanted.values, what + ": values");
  Expect(got.slots == wanted.slots, what + ": slots");
  Expect(got.frequencies == wanted.frequencies, what + ": frequencies");
  Expect(got.last_seen == wanted.last_seen, what + ": last seen");
  Expect(got.optimizer.name == wanted.optimizer.name, what + ": optimizer");
  Expect(got.step == wanted.step && got.own_step == wanted.own_step,
         what + ": step");
  Expect(got.seed == wanted.seed && got.salt == wanted.salt, what + ": seed");
  Expect(got.pending_ids == wanted.pending_ids, what + ": pending ids");
  Expect(got.pending_sightings == wanted.pending_sightings,
         what + ": occurrences");
  Expect(got.sketch == wanted.sketch, what + ": sketch");
  Expect(got.shared_values == wanted.shared_values, what + ": shared rows");
  Expect(got.shared_slots == wanted.shared_slots, what + ": shared slots");
}

// A table that follows the snapshots of another one.
class Follower {
 public:
  explicit Follower(const Execution& on) : on_(on) {}
  void Read(const Table& like, const std::string& path, bool whole,
            const std::string& what) {
    if (whole) {
      const std::vector<SavedPart> saved = {{{}, {path}}};
      ExpectOk(RestoreTable(saved, {}, like, {}, nullptr, on_, &table_), what);
      return;
    }
    std::unique_ptr<SnapshotDelta> delta;
    SnapshotDelta::Applied applied;
    ExpectOk(SnapshotDelta::Open(std::vector<ListedFile>{path}, {},
                                 table_.get(), {}, on_, &delta),
             what);
    const EmbeddingStats before = stats();
    ExpectOk(delta->Apply(&applied), what);
    const EmbeddingStats after = stats();
    numbers_ = {applied.written, applied.removed};
    for (const Event event : {Event::kInserts, Event::kRemoved}) {
      numbers_.push_back(after.count(event) - before.count(event));
    }
  }
  EmbeddingRows rows() const { return ExportOf(*table_, on_); }
  EmbeddingStats stats() const {
    EmbeddingStats stats;
    ExpectOk(table_->ReadStats(&stats, on_), "stats");
    return stats;
  }
  // Numbers of the last incremental snapshot.
  const std::vector<int64_t>& numbers() const { return numbers_; }

 private:
  const Execution on_;
  std::unique_ptr<Table> table_;
  std::vector<int64_t> numbers_;
};

class SnapshotTest {
 public:
  // unfused: the optimizer updates rows outside of the tables.
  SnapshotTest(int64_t dim, RowType type, Random* random,
               const TablePolicies& policies = TablePolicies(),
               bool unfused = false)
      : tables_(dim, type, "uniform", policies),
        random_(*random),
        unfused_(unfused),
        on_gpu_(tables_.on),
        in_memory_(Execution()) {}

  // Random calls on both tables.
  void Change(int calls) {
    const int64_t batch = few ? 60 : 400;
    for (int call = 0; call < calls; ++call) {
      const Ids ids = UniqueOf(SomeIds(&random_, batch, batch));
      switch (Draw(&random_, 0, 4)) {
        case 0:
          tables_.FindOrInsert(ids, true, true, "lookup");
          break;
        case 1:
          tables_.FindOrInsert(ids, true, false, "lookup");
          break;
        case 2:
          Update(ids);
          break;
        case 3:
          Remove({ids.begin(), ids.begin() + ids.size() / 4});
          break;
        default:
          tables_.Assign(ids, 1);
      }
    }
  }
  // Looks up and updates ids, which attaches the optimizer.
  void Train() {
    const Ids ids = UniqueOf(SomeIds(&random_, 100, 50));
    tables_.FindOrInsert(ids, true, true, "lookup");
    Update(ids);
  }
  void Update(const Ids& ids) {
    if (!unfused_) {
      return tables_.Apply(ids, "adagrad", {0.1f, 0.0f, 1e-7f}, {0.1f}, false,
                           &random_, "update");
    }
    OutsideUpdate update(&tables_, Unfused(2));
    update.Gather(ids, &random_, "gather");
    tables_.Assign({ids.begin(), ids.begin() + ids.size() / 8}, 1);
    update.Finish("update");
  }
  void Remove(Ids ids) {
    // An id may be named twice.
    ids.push_back(ids[0]);
    tables_.Remove(ids);
  }
  void Decay() {
    ExpectOk(tables_.device->DecayFrequencies(0.5, tables_.on), "decay");
    REQUIRE_CUDA(cudaStreamSynchronize(tables_.stream));
    ExpectOk(tables_.host->DecayFrequencies(0.5, {}), "decay on the host");
  }

  // Takes a snapshot of both, which change meanwhile, and compares them.
  // Commits it as the base `name`, unless that is empty.
  // empties: removes all rows meanwhile.
  FileContent TakeAndCompare(const std::string& base, const std::string& name,
                             const std::string& what, bool empties = false) {
    const Snapshot device = Begin(tables_.device.get(), base, tables_.on);
    const Snapshot host = Begin(tables_.host.get(), base, {});
    const EmbeddingRows begun = ExportOf(*tables_.host, {});
    Change(3);
    if (empties) {
      tables_.RemoveAll();
      Change(2);
    }
    const TempFile device_file;
    const TempFile host_file;
    const FileContent got = Write(device.get(), device_file.path());
    const FileContent wanted = Write(host.get(), host_file.path());
    Expect(got.table == wanted.table, what + ": table");
    Expect(got.rows == wanted.rows, what + ": rows");
    Expect(got.removed == wanted.removed, what + ": removed ids");
    Expect(got.pending == wanted.pending, what + ": pending ids");
    Expect(got.sketch == wanted.sketch, what + ": sketch");
    // Incremental snapshots of a table on a GPU have all shared rows.
    if (wanted.whole) Expect(got.shared == wanted.shared, what + ": shared");
    for (const auto& [row, record] : wanted.shared) {
      const auto found = got.shared.find(row);
      Expect(found != got.shared.end() && found->second == record,
             what + ": shared row");
    }
    Change(1);
    for (EmbeddingSnapshot* snapshot : {device.get(), host.get()}) {
      name.empty() ? snapshot->Abort() : snapshot->Commit(name);
    }
    if (name.empty()) return got;
    // Each follows the file of the other kind of table.
    on_gpu_.Read(*tables_.device, host_file.path(), got.whole, what + ", GPU");
    in_memory_.Read(*tables_.host, device_file.path(), got.whole,
                    what + ", host");
    ExpectSameRows(in_memory_.rows(), begun, what + ", restored in memory");
    ExpectSameRows(on_gpu_.rows(), begun, what + ", restored on a GPU");
    Expect(on_gpu_.numbers() == in_memory_.numbers(), what + ": numbers");
    return got;
  }

  Tables& tables() { return tables_; }

 private:
  Tables tables_;
  Random& random_;
  const bool unfused_;
  Follower on_gpu_;
  Follower in_memory_;
};

// A full snapshot, incremental ones, one that fails, and one of another base.
void TestChain(Random* random) {
  for (const auto& [dim, type] :
       {std::pair<int64_t, RowType>{5, RowType::kFloat32},
        {3, RowType::kFloat16},
        {2, RowType::kBFloat16}}) {
    SnapshotTest test(dim, type, random);
    test.Train();
    test.Change(2);
    const std::string what = "dim " + std::to_string(dim);
    const FileContent first = test.TakeAndCompare("", "a", what + ", full");
    Expect(first.whole && !first.rows.empty(), what + ": the first is full");
    test.Change(1);
    Expect(!test.TakeAndCompare("a", "b", what + ", incremental").whole,
           what + ": the second is incremental");
    test.Change(2);
    test.TakeAndCompare("b", "", what + ", failed");
    test.Change(1);
    Expect(!test.TakeAndCompare("b", "c", what + ", after a failed one").whole,
           what + ": changes of a failed one are not lost");
    test.Decay();
    test.TakeAndCompare("c", "d", what + ", decayed");
    Expect(test.TakeAndCompare("a", "e", what + ", old base").whole,
           what + ": an old base makes a full one");
    test.tables().ExpectSameTable(what);
  }
}

// More rows than a window, of which the table changes some.
void TestManyRows(Random* random) {
  SnapshotTest test(1, RowType::kFloat32, random);
  test.Train();
  Ids ids(few ? 3000 : 300000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(7 * i);
  test.tables().Assign(ids, 1);
  const FileContent content = test.TakeAndCompare("", "a", "many rows");
  Expect(content.rows.size() >= ids.size(), "all rows are in the snapshot");
  test.Remove({ids.begin(), ids.begin() + 100});
  test.TakeAndCompare("a", "b", "many rows, incremental");
}

// Pending ids, the sketch and shared rows are in the file.
void TestPolicies(Random* random) {
  for (const auto kind : {AdmissionPolicy::Kind::kMinCount,
                          AdmissionPolicy::Kind::kCountingBloom}) {
    TablePolicies policies;
    policies.admission.kind = kind;
    policies.admission.min_count = 2;
    policies.admission.num_counters = 1000;
    policies.admission.num_hashes = 2;
    policies.shared_rows = 3;
    SnapshotTest test(5, RowType::kFloat32, random, policies);
    test.Train();
    test.Change(2);
    const FileContent content = test.TakeAndCompare("", "a", "policies");
    Expect(content.shared.size() == 3, "all shared rows");
    // With a sketch, ids are pending in one step only.
    Expect(!content.pending.empty() || !content.sketch.empty(),
           "some ids are pending");
    test.Change(1);
    test.TakeAndCompare("a", "b", "policies, incremental");
  }
}

// Rows are updated outside of the table, or all removed.
void TestUnfused(Random* random) {
  TablePolicies policies;
  policies.shared_rows = 3;
  for (const RowType type : {RowType::kFloat32, RowType::kBFloat16}) {
    SnapshotTest test(6, type, random, policies, /*unfused=*/true);
    test.Train();
    test.Change(4);
    test.TakeAndCompare("", "a", "unfused");
    test.Update(UniqueOf(SomeIds(random, 50, 50)));
    Expect(!test.TakeAndCompare("a", "b", "unfused, incremental").whole,
           "the second is incremental");
    test.Change(2);
    test.TakeAndCompare("b", "c", "emptied", /*empties=*/true);
    const FileContent emptied = test.TakeAndCompare("c", "d", "after");
    Expect(!emptied.whole && !emptied.removed.empty(),
           "removed rows are in an incremental snapshot");
    test.tables().ExpectSameTable("unfused");
  }
}

// The step may move during a lookup that counts: a row that was counted once
// more is in the next incremental snapshot.
void TestMovingStep(Random* random) {
  TablePolicies min_count;
  min_count.admission.kind = AdmissionPolicy::Kind::kMinCount;
  for (const TablePolicies& policies : {TablePolicies(), min_count}) {
    Tables tables(4, RowType::kFloat32, "normal", policies);
    const Ids ids = UniqueOf(SomeIds(random, few ? 300 : 3000, 3000));
    const int64_t n = static_cast<int64_t>(ids.size());
    const DeviceBuffer<int64_t> device_ids(ids);
    const DeviceStore::Ids batch = {device_ids.data(), n, nullptr};
    DeviceStore::InsertOptions counting;
    counting.count_frequency = true;
    const auto look_up = [&] {
      ExpectOk(tables.device->FindOrInsert(tables.on, batch, counting, {}),
               "lookup");
    };
    ExpectOk(tables.device->SetStep(0, tables.on), "step");
    look_up();
    const auto start = std::chrono::steady_clock::now();
    look_up();
    REQUIRE_CUDA(cudaStreamSynchronize(tables.stream));
    const auto took = std::chrono::steady_clock::now() - start;
    constexpr int kRounds = 20;
    for (int round = 1; round <= kRounds; ++round) {
      const EmbeddingRows before = ExportOf(*tables.device, tables.on);
      tables.device->SetBase("base", tables.on);
      std::thread mover([&] {
        std::this_thread::sleep_for(took * round / kRounds);
        ExpectOk(tables.device->SetStep(round, tables.on), "step");
      });
      look_up();
      mover.join();
      const EmbeddingRows after = ExportOf(*tables.device, tables.on);
      const Snapshot delta = Begin(tables.device.get(), "base", tables.on);
      const TempFile file;
      const FileContent content = Write(delta.get(), file.path());
      delta->Abort();
      int64_t missing = 0;
      for (int64_t i = 0; i < n; ++i) {
        missing += after.frequencies[i] != before.frequencies[i] &&
                   content.rows.count(after.ids[i]) == 0;
      }
      Expect(missing == 0, StrCat(missing, " counted rows are missing"));
      look_up();
    }
  }
}

// A cleared table has no base, and a snapshot that is not written ends.
void TestClear(Random* random) {
  SnapshotTest test(4, RowType::kFloat32, random);
  test.Train();
  test.TakeAndCompare("", "a", "clear");
  test.tables().Clear();
  test.Change(1);
  Expect(test.TakeAndCompare("a", "b", "cleared").whole,
         "a cleared table makes a full snapshot");
  {
    const Snapshot dropped =
        Begin(test.tables().device.get(), "", test.tables().on);
  }
  std::unique_ptr<SnapshotSource> source;
  ExpectOk(test.tables().device->MakeSnapshotSource(test.tables().on, &source),
           "source");
  Expect(source->budget() == nullptr, "a dropped snapshot has ended");
  test.tables().device->SetBase("z", test.tables().on);
  Expect(test.tables().device->base() == "z", "the base that was set");
  const Snapshot next =
      Begin(test.tables().device.get(), "z", test.tables().on);
  const TempFile file;
  const FileContent content = Write(next.get(), file.path());
  Expect(!content.whole && content.rows.empty(), "nothing has changed");
  std::vector<Snapshot> second;
  const EmbeddingSnapshot::Source again = {
      {std::shared_ptr<void>(), test.tables().device.get()},
      "",
      test.tables().on};
  ExpectError(EmbeddingSnapshot::Begin({&again, 1}, StepGates(), &second),
              StatusCode::kFailedPrecondition, "already has a running");
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  using namespace lodestar;
  return RunTests(argc, argv,
                  {{"chain", TestChain},
                   {"many rows", TestManyRows},
                   {"policies", TestPolicies},
                   {"unfused", TestUnfused},
                   {"moving step", TestMovingStep},
                   {"clear", TestClear}});
}
