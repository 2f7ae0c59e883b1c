// Counters of what happened to a table.

#ifndef LODESTAR_TF_OPS_CORE_TABLE_TABLE_EVENTS_H_
#define LODESTAR_TF_OPS_CORE_TABLE_TABLE_EVENTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace lodestar {

// Events counted by a table, in the order in which the op EmbeddingStats
// returns them. Training lookups count ids, unique ids per batch, padding, and
// unique ids that did or did not have a row. Read-only lookups count each id
// other than padding, with and without a row.
enum class Event {
  kIds,
  kUniqueIds,
  kPadding,
  kHits,
  kMisses,
  kInserts,
  kAdmitted,  // rows created by admission
  kRefused,   // ids that found no room under the cap
  kEvicted,
  kRemoved,
  kGradientsDropped,
  kNonfiniteGradients,
  kReadHits,
  kReadMisses,
};
constexpr int kNumEvents = 14;

// Ids of a read-only lookup.
struct ReadCounts {
  int64_t hits = 0;
  int64_t misses = 0;
  ReadCounts& operator+=(const ReadCounts& other) {
    hits += other.hits;
    misses += other.misses;
    return *this;
  }
};

// Thread-safe.
class TableEvents {
 public:
  void Add(Event event, int64_t count) {
    counts_->of[static_cast<int>(event)].fetch_add(count,
                                                   std::memory_order_relaxed);
  }
  // Called once per batch. Many threads read one table concurrently, so each
  // uses a cache line shared with few others.
  void AddReads(const ReadCounts& reads) {
    static thread_local const size_t line =
        std::hash<std::thread::id>()(std::this_thread::get_id()) % kLines;
    Reads& shared = counts_->reads[line];
    shared.hits.fetch_add(reads.hits, std::memory_order_relaxed);
    shared.misses.fetch_add(reads.misses, std::memory_order_relaxed);
  }
  int64_t count(Event event) const {
    int64_t count =
        counts_->of[static_cast<int>(event)].load(std::memory_order_relaxed);
    for (const Reads& line : counts_->reads) {
      if (event == Event::kReadHits) {
        count += line.hits.load(std::memory_order_relaxed);
      } else if (event == Event::kReadMisses) {
        count += line.misses.load(std::memory_order_relaxed);
      }
    }
    return count;
  }
  // Shares the counters of another table, so that a replacement misses no read
  // of the table it replaces. Requires: no other thread uses this object yet.
  void Share(const TableEvents& other) { counts_ = other.counts_; }

 private:
  static constexpr int kLines = 16;
  struct alignas(64) Reads {
    std::atomic<int64_t> hits{0};
    std::atomic<int64_t> misses{0};
  };
  struct Counts {
    std::atomic<int64_t> of[kNumEvents] = {};
    Reads reads[kLines];
  };

  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_TABLE_TABLE_EVENTS_H_
