// Costs of snapshots in core, on one thread: the pause of the flip, a full
// snapshot and an incremental one of 1 % of the rows, written to a folder and
// synced, and training steps while changes are marked. Prints one JSON line
// each.
//
//   embedding_snapshot_benchmark [--small] [FOLDER]

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/timing.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/snapshot/embedding_snapshot.h"

namespace {

using lodestar::EmbeddingSnapshot;
using lodestar::EmbeddingStore;
using lodestar::Median;
using lodestar::Require;
using lodestar::Seconds;
using Ids = std::vector<int64_t>;

constexpr int kDim = 32;
constexpr int64_t kBatch = 65536;
constexpr int kRuns = 9;

// A table with Adagrad.
class Table {
 public:
  explicit Table(int64_t rows)
      : rows_(rows),
        gradients_(kBatch * kDim, 0.1f),
        store_(lodestar::NewStore(kDim, "uniform")) {
    for (int64_t id = 0; id < rows; id += kBatch) {
      Ids ids;
      for (int64_t i = id; i < std::min(rows, id + kBatch); ++i) {
        ids.push_back(i);
      }
      Train(ids);
    }
  }

  // A lookup and an update.
  void Train(const Ids& ids) {
    std::vector<lodestar::RowRef> refs(ids.size());
    Require(store_->FindOrInsert(ids, lodestar::kTraining, refs, nullptr));
    adagrad_.Apply(ids, gradients_.data(), store_.get());
  }
  Ids Draw(int64_t count) {
    Ids ids(count);
    for (int64_t& id : ids) id = static_cast<int64_t>(rng_() % rows_);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::shuffle(ids.begin(), ids.end(), rng_);
    return ids;
  }
  const std::shared_ptr<EmbeddingStore>& store() const { return store_; }

 private:
  const int64_t rows_;
  const std::vector<float> gradients_;
  const lodestar::Adagrad adagrad_;
  std::mt19937_64 rng_{1};
  const std::shared_ptr<EmbeddingStore> store_;
};

struct Saved {
  double flip = 0.0;   // seconds
  double write = 0.0;  // seconds
  int64_t bytes = 0;
  int64_t rows = 0;
};

Saved Save(const Table& table, const std::string& base,
           const std::string& path) {
  Saved saved;
  std::remove(path.c_str());
  const std::vector<EmbeddingSnapshot::Source> sources = {
      {table.store(), base}};
  std::vector<std::unique_ptr<EmbeddingSnapshot>> snapshots;
  std::unique_ptr<lodestar::SnapshotFileWriter> file;
  double begin = Seconds();
  Require(EmbeddingSnapshot::Begin(sources, lodestar::StepGates(), &snapshots));
  saved.flip = Seconds() - begin;
  begin = Seconds();
  Require(lodestar::SnapshotFileWriter::Create(path, "label", &file));
  Require(snapshots[0]->Write(file.get()));
  Require(file->Finish());
  saved.write = Seconds() - begin;
  saved.bytes = file->bytes();
  saved.rows = file->totals().rows;
  snapshots[0]->Commit("base");
  std::remove(path.c_str());
  return saved;
}

void MeasureSnapshots(int64_t rows, const std::string& path) {
  Table table(rows);
  std::vector<double> times[2];
  Saved saved[2];
  double flip = 0.0;
  for (int run = 0; run < 3; ++run) {
    saved[0] = Save(table, "", path);
    table.Train(table.Draw(rows / 100));
    saved[1] = Save(table, "base", path);
    for (int i = 0; i < 2; ++i) {
      times[i].push_back(saved[i].write);
      flip = std::max(flip, saved[i].flip);
    }
  }
  const double whole = Median(times[0]);
  const double delta = Median(times[1]);
  std::printf(
      "{\"work\": \"delta of %lld of %lld x %d with Adagrad\", \"baseline\": "
      "\"a whole snapshot\", \"time_share\": %.4f, \"bytes_share\": %.4f, "
      "\"wanted\": 0.03, \"delta_ms\": %.1f, \"whole_ms\": %.0f, "
      "\"whole_mb_per_s\": %.0f, \"longest_flip_ms\": %.2f, \"runs\": 3}\n",
      static_cast<long long>(saved[1].rows), static_cast<long long>(rows), kDim,
      delta / whole,
      static_cast<double>(saved[1].bytes) / static_cast<double>(saved[0].bytes),
      delta * 1e3, whole * 1e3,
      static_cast<double>(saved[0].bytes) / whole / 1e6, flip * 1e3);
  std::fflush(stdout);
}

void MeasureSteps(int64_t rows) {
  Table table(rows);
  std::vector<Ids> batches;
  for (int b = 0; b < 16; ++b) batches.push_back(table.Draw(kBatch));
  int64_t items = 0;
  for (const Ids& ids : batches) items += ids.size();
  // Without marks, with marks set for the first time, and with marks set again.
  std::vector<double> times[3];
  for (int run = 0; run <= kRuns; ++run) {
    for (int kind = 0; kind < 3; ++kind) {
      if (kind < 2) table.store()->SetBase(kind == 0 ? "" : "base", {});
      const double begin = lodestar::CpuSeconds();
      for (const Ids& ids : batches) table.Train(ids);
      if (run > 0) times[kind].push_back(lodestar::CpuSeconds() - begin);
    }
  }
  const double per_item = 1e9 / static_cast<double>(items);
  std::printf(
      "{\"work\": \"step of %lld of %lld x %d with Adagrad, changes marked\", "
      "\"baseline\": \"the same without marks\", \"ratio\": %.3f, "
      "\"ratio_of_first_marks\": %.3f, \"ns_per_item\": %.1f, "
      "\"baseline_ns_per_item\": %.1f, \"runs\": %d}\n",
      static_cast<long long>(kBatch), static_cast<long long>(rows), kDim,
      Median(times[0]) / Median(times[2]), Median(times[0]) / Median(times[1]),
      Median(times[2]) * per_item, Median(times[0]) * per_item, kRuns);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  const std::string folder = argc > 1 + small ? argv[1 + small] : ".";
  const std::string path = folder + "/embedding_snapshot_benchmark.rows";
  const std::vector<int64_t> sizes =
      small ? std::vector<int64_t>{20000}
            : std::vector<int64_t>{1000000, 5000000};
  for (const int64_t rows : sizes) {
    MeasureSteps(rows);
    MeasureSnapshots(rows, path);
  }
  return 0;
}
