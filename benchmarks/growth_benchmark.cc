// Grows a table to 20M rows, with 4,096 new ids per lookup, while a second
// thread looks up resident ids. Prints one JSON line per table: the slowest
// lookup and quantiles for both threads, in wall time and in CPU time (other
// processes affect only the first), and bytes per row at sizes 1.2 times apart,
// according to stats() and to the process's memory.
//
//   growth_benchmark [rows]

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/timing.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace {

using lodestar::EmbeddingStore;
using lodestar::Require;

constexpr int64_t kLookup = 4096;
constexpr int64_t kFirstPoint = 100000;

double Milliseconds() { return lodestar::Seconds() * 1e3; }
double ProcessorMilliseconds() { return lodestar::CpuSeconds() * 1e3; }

int64_t ResidentBytes() {
  long pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%*d %ld", &pages) != 1) return 0;
  std::fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

struct Times {
  std::vector<double> all;
  double longest_since_point = 0.0;
  double processor_since_point = 0.0;
  double longest_of_processor = 0.0;

  void Begin() {
    processor_begin_ = ProcessorMilliseconds();
    begin_ = Milliseconds();
  }
  void End() {
    const double time = Milliseconds() - begin_;
    all.push_back(time);
    longest_since_point = std::max(longest_since_point, time);
    processor_since_point = std::max(
        processor_since_point, ProcessorMilliseconds() - processor_begin_);
    longest_of_processor =
        std::max(longest_of_processor, processor_since_point);
  }
  double Quantile(double q) {
    if (all.empty()) return 0.0;
    std::sort(all.begin(), all.end());
    return all[static_cast<size_t>(q * (all.size() - 1))];
  }

 private:
  double begin_ = 0.0;
  double processor_begin_ = 0.0;
};

void PrintTimes(const char* name, Times* times) {
  std::printf(
      "\"%s\": {\"median_ms\": %.3f, \"p99_ms\": %.3f, \"longest_ms\": %.3f, "
      "\"longest_of_processor_ms\": %.3f}, ",
      name, times->Quantile(0.5), times->Quantile(0.99), times->Quantile(1.0),
      times->longest_of_processor);
}

int64_t IdOf(int64_t i) {
  return static_cast<int64_t>(static_cast<uint64_t>(i) *
                              lodestar::kGoldenGamma);
}

// Looks up ids below *rows until it is negative. Sets *ready once all memory is
// allocated.
void Read(const EmbeddingStore& store, const std::atomic<int64_t>* rows,
          std::atomic<bool>* ready, Times* times) {
  std::mt19937_64 rng(1);
  std::vector<int64_t> ids(kLookup);
  std::vector<float> out(kLookup * store.dim());
  store.Find(ids, nullptr, lodestar::Missing(), out.data(), nullptr, nullptr);
  *ready = true;
  int64_t count;
  while ((count = rows->load()) >= 0) {
    if (count < kFirstPoint) {
      std::this_thread::yield();
      continue;
    }
    for (int64_t& id : ids) id = IdOf(static_cast<int64_t>(rng() % count));
    times->Begin();
    store.Find(ids, nullptr, lodestar::Missing(), out.data(), nullptr, nullptr);
    times->End();
  }
}

void Grow(int dim, bool with_slot, int64_t rows) {
  const auto store = lodestar::NewStore(dim, "uniform");
  if (with_slot) lodestar::Adagrad().Apply({}, nullptr, store.get());
  const double limit = 1.25 * (8 + 4 * dim * (with_slot ? 2 : 1)) + 36;
  Times inserts;
  Times reads;
  std::vector<int64_t> ids(kLookup);
  std::vector<lodestar::RowRef> refs(kLookup);
  std::vector<float> out(kLookup * dim);
  std::string points;
  double most = 0.0;
  inserts.all.reserve(rows / kLookup + 1);
  reads.all.resize(1 << 20);  // allocated before rows are counted
  reads.all.clear();
  // So are the buffers of a call.
  for (int64_t i = 0; i < kLookup; ++i) ids[i] = IdOf(i);
  Require(lodestar::NewStore(dim, "uniform")
              ->FindOrInsert(ids, lodestar::kTraining, refs, nullptr));
  std::atomic<int64_t> grown{0};
  std::atomic<bool> ready{false};
  std::thread reader([&] { Read(*store, &grown, &ready, &reads); });
  while (!ready) std::this_thread::yield();
  const int64_t resident = ResidentBytes();
  double next_point = kFirstPoint;
  for (int64_t first = 0; first < rows; first += kLookup) {
    for (int64_t i = 0; i < kLookup; ++i) ids[i] = IdOf(first + i);
    inserts.Begin();
    const lodestar::EmbeddingStore::TableIds table = {
        store.get(), ids, refs, nullptr, {}, out.data()};
    Require(lodestar::EmbeddingStore::FindOrInsert(
        {&table, 1}, lodestar::kTraining, nullptr));
    inserts.End();
    const int64_t size = first + kLookup;
    grown = size;
    if (size < next_point) continue;
    next_point = size * 1.2;
    const lodestar::EmbeddingStats stats = store->Stats();
    const double told =
        static_cast<double>(stats.index_bytes + stats.row_bytes +
                            stats.slot_bytes) /
        size;
    const double shown = static_cast<double>(ResidentBytes() - resident) / size;
    most = std::max({most, told / limit, shown / limit});
    char text[240];
    std::snprintf(text, sizeof(text),
                  "%s{\"rows\": %lld, \"stats_bytes\": %.1f, \"rss_bytes\": "
                  "%.1f, \"longest_ms\": %.3f, "
                  "\"longest_of_processor_ms\": %.3f}",
                  points.empty() ? "" : ", ", static_cast<long long>(size),
                  told, shown, inserts.longest_since_point,
                  inserts.processor_since_point);
    points += text;
    inserts.longest_since_point = inserts.processor_since_point = 0.0;
  }
  grown = -1;
  reader.join();
  Times rest;
  std::mt19937_64 rng(2);
  for (int run = 0; run < 300; ++run) {
    for (int64_t& id : ids) id = IdOf(static_cast<int64_t>(rng() % rows));
    rest.Begin();
    store->Find(ids, nullptr, lodestar::Missing(), out.data(), nullptr,
                nullptr);
    rest.End();
  }
  std::printf(
      "{\"work\": \"growth to %lld rows\", \"dim\": %d, \"slots\": %d, ",
      static_cast<long long>(rows), dim, with_slot ? 1 : 0);
  std::printf("\"ids_a_lookup\": %lld, ", static_cast<long long>(kLookup));
  PrintTimes("lookups_that_grow", &inserts);
  PrintTimes("lookups_beside", &reads);
  PrintTimes("lookups_at_rest", &rest);
  std::printf(
      "\"limit_bytes\": %.1f, \"most_of_limit\": %.3f, \"points\": [%s]}\n",
      limit, most, points.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 20000000;
  for (const int dim : {1, 8}) {
    for (const bool with_slot : {false, true}) {
      // One process per table, so that none reuses memory of another.
      const pid_t child = fork();
      if (child == 0) {
        Grow(dim, with_slot, rows);
        return 0;
      }
      int status = 0;
      if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        return 1;
      }
    }
  }
  return 0;
}
