// Compares restoring a table from a snapshot file with reading the file and
// with inserting its rows: rows of 32 floats with Adagrad's slot, ordered by a
// hash of their ids. The file is in the page cache. Arguments: a path for the
// file, then numbers of rows. Reports the median of 5 interleaved runs. Prints
// one JSON line per size, in seconds and megabytes per second.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/timing.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_restore.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace {

using lodestar::BlockKind;
using lodestar::EmbeddingStore;
using lodestar::IdOf;
using lodestar::Median;
using lodestar::ParallelFor;
using lodestar::Require;

constexpr int kDim = 32;
constexpr int kRuns = 5;
constexpr int64_t kBlock = int64_t{1} << 20;

double SecondsOf(const std::function<void()>& work) {
  const double begin = lodestar::Seconds();
  work();
  return lodestar::Seconds() - begin;
}

lodestar::SnapshotTable Table() {
  lodestar::SnapshotTable table;
  table.dim = kDim;
  table.optimizer = {"adagrad", {"accumulator"}, {0.1f}};
  return table;
}

void WriteFile(const std::string& path, int64_t rows) {
  const lodestar::SnapshotTable table = Table();
  const int64_t record_bytes = table.record_bytes();
  unlink(path.c_str());
  std::unique_ptr<lodestar::SnapshotFileWriter> file;
  Require(lodestar::SnapshotFileWriter::Create(path, "label", &file));
  const std::string head = EncodeTable(table);
  Require(file->Append(BlockKind::kTable, 1, head.data(), head.size()));
  std::vector<char> block(kBlock / record_bytes * record_bytes);
  for (int64_t first = 0; first < rows;) {
    const int64_t count =
        std::min<int64_t>(kBlock / record_bytes, rows - first);
    for (int64_t i = 0; i < count; ++i) {
      char* record = block.data() + i * record_bytes;
      const lodestar::SnapshotRowHead row = {IdOf(first + i), 3, 1, 0};
      std::memcpy(record, &row, sizeof(row));
      float numbers[2 * kDim];
      std::fill_n(numbers, 2 * kDim, static_cast<float>(first + i));
      std::memcpy(record + sizeof(row), numbers, sizeof(numbers));
    }
    Require(file->Append(BlockKind::kRows, count, block.data(),
                         count * record_bytes));
    first += count;
  }
  Require(file->Finish());
}

// Reads in blocks, like dd.
void ReadFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY);
  std::vector<char> part(kBlock);
  while (read(file, part.data(), kBlock) > 0) {
  }
  close(file);
}

ParallelFor Threads(int count) {
  return [count](int64_t total, int64_t,
                 const std::function<void(int64_t, int64_t)>& body) {
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t) {
      threads.emplace_back(body, total * t / count, total * (t + 1) / count);
    }
    for (std::thread& thread : threads) thread.join();
  };
}

void Restore(const std::string& path, int64_t rows, int num_threads) {
  const std::unique_ptr<EmbeddingStore> like =
      lodestar::NewStore(kDim, "zeros");
  const std::vector<lodestar::SavedPart> saved = {{{}, {path}}};
  const ParallelFor threads = Threads(num_threads);
  std::unique_ptr<EmbeddingStore> store;
  Require(lodestar::RestoreTable(
      saved, {}, *like, {}, num_threads == 1 ? nullptr : &threads, &store));
  if (store->size() != rows) std::exit(1);
}

// 65,536 rows per call; Adagrad creates their slots.
void Insert(int64_t rows, int num_threads) {
  constexpr int64_t kBatch = 65536;
  const std::unique_ptr<EmbeddingStore> store =
      lodestar::NewStore(kDim, "zeros");
  const ParallelFor threads = Threads(num_threads);
  lodestar::Adagrad().Apply({}, nullptr, store.get());
  std::vector<int64_t> ids(kBatch);
  std::vector<float> values(kBatch * kDim, 1.0f);
  for (int64_t first = 0; first < rows; first += kBatch) {
    const int64_t count = std::min(kBatch, rows - first);
    for (int64_t i = 0; i < count; ++i) ids[i] = IdOf(first + i);
    Require(store->InsertOrAssign({ids.data(), count}, values.data(),
                                  num_threads == 1 ? nullptr : &threads));
  }
  if (store->size() != rows) std::exit(1);
}

void Run(const std::string& path, int64_t rows) {
  WriteFile(path, rows);
  std::vector<double> read, restore, restore2, insert, insert2;
  for (int run = 0; run < kRuns; ++run) {
    read.push_back(SecondsOf([&] { ReadFile(path); }));
    restore.push_back(SecondsOf([&] { Restore(path, rows, 1); }));
    insert.push_back(SecondsOf([&] { Insert(rows, 1); }));
    restore2.push_back(SecondsOf([&] { Restore(path, rows, 2); }));
    insert2.push_back(SecondsOf([&] { Insert(rows, 2); }));
  }
  const double megabytes = rows * Table().record_bytes() / 1e6;
  std::printf(
      "{\"work\": \"restore\", \"rows\": %lld, \"megabytes\": %.0f, \"read\": "
      "%.3f, \"restore\": "
      "%.3f, \"insert\": %.3f, \"restore_2_threads\": %.3f, "
      "\"insert_2_threads\": %.3f, \"read_MBps\": %.0f, \"restore_MBps\": "
      "%.0f, \"restore_2_threads_MBps\": %.0f}\n",
      static_cast<long long>(rows), megabytes, Median(read), Median(restore),
      Median(insert), Median(restore2), Median(insert2),
      megabytes / Median(read), megabytes / Median(restore),
      megabytes / Median(restore2));
  unlink(path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s PATH ROWS...\n", argv[0]);
    return 2;
  }
  for (int i = 2; i < argc; ++i) Run(argv[1], std::atoll(argv[i]));
  return 0;
}
