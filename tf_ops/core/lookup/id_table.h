// IdTable: a thread-safe table from keys to int64 ids, over an IntegerMap or a
// StringMap.
//
// Readers copy a shared pointer to the content, and an import replaces the
// pointer, so reading an immutable table takes no other lock. Inserts into and
// removals from a mutable table lock its content against readers.

#ifndef LODESTAR_TF_OPS_CORE_LOOKUP_ID_TABLE_H_
#define LODESTAR_TF_OPS_CORE_LOOKUP_ID_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/integer_map.h"
#include "tf_ops/core/lookup/string_map.h"

namespace lodestar {

// Formats a key for error messages.
inline std::string KeyText(int64_t key) { return StrCat(key); }
inline std::string KeyText(std::string_view key) {
  constexpr size_t kLongest = 100;
  if (key.size() <= kLongest) return StrCat("'", key, "'");
  return StrCat("'", key.substr(0, kLongest), "...' (", key.size(), " bytes)");
}

template <typename Map>
class IdTable {
  struct Content {
    explicit Content(Map content) : map(std::move(content)) {}

    // A waiting writer holds the gate, so that overlapping readers cannot
    // starve it.
    mutable Mutex gate;
    mutable SharedMutex mutex LODESTAR_ACQUIRED_AFTER(gate);
    Map map LODESTAR_GUARDED_BY(mutex);
  };

 public:
  using Key = typename Map::Key;

  explicit IdTable(bool is_mutable) : mutable_(is_mutable) {
    if (!mutable_) return;
    // Insert does not require an import first. If memory runs out here, the
    // table is as if never imported.
    const Status status = Replace(Map());
    static_cast<void>(status);
  }

  // Access to the content, which neither changes nor goes away while this
  // exists.
  class View {
   public:
    // Requires lock_ if the table is mutable.
    const Map& map() const LODESTAR_NO_THREAD_SAFETY_ANALYSIS {
      return content_->map;
    }

   private:
    friend class IdTable;
    std::shared_ptr<const Content> content_;
    std::shared_lock<SharedMutex> lock_;
  };

  // Returns FailedPrecondition if nothing was imported yet.
  Status Read(View* view) const {
    view->content_ = std::atomic_load(&content_);
    if (view->content_ == nullptr) return NotInitialized();
    if (mutable_) {
      MutexLock gate(&view->content_->gate);
      view->lock_ = std::shared_lock<SharedMutex>(view->content_->mutex);
    }
    return Status();
  }

  // Number of keys; 0 before the first import.
  int64_t size() const {
    View view;
    return Read(&view).ok() ? view.map().size() : 0;
  }
  int64_t bytes() const {
    View view;
    return Read(&view).ok() ? view.map().bytes() : 0;
  }

  // Replaces the content with these keys. Returns InvalidArgument if a key has
  // two values and ResourceExhausted if out of memory; the table is unchanged
  // then.
  template <typename KeyAt, typename ValueAt>
  Status Import(int64_t count, const KeyAt& key, const ValueAt& value) {
    Map map;
    LODESTAR_RETURN_IF_ERROR(map.ReserveFor(count, key, value));
    const int64_t conflict = map.AddNew(count, key, value);
    if (conflict >= 0) {
      return InvalidArgument("key ", KeyText(key(conflict)),
                             " has two values: ", *map.Find(key(conflict)),
                             " and ", value(conflict), ".");
    }
    return Replace(std::move(map));
  }

  // Replaces the content with `map`. Returns ResourceExhausted if out of
  // memory; the table is unchanged then.
  Status Replace(Map map) {
    try {
      std::atomic_store(&content_, std::make_shared<Content>(std::move(map)));
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("out of memory for an id table.");
    }
    return Status();
  }

  // Adds keys or changes their values; the last of equal keys wins. Returns
  // FailedPrecondition if the table is not mutable and ResourceExhausted if out
  // of memory; the table is unchanged then.
  template <typename KeyAt, typename ValueAt>
  Status Insert(int64_t count, const KeyAt& key, const ValueAt& value) {
    return Write("insert into",
                 [&](Map& map) { return map.Insert(count, key, value); });
  }

  // Returns FailedPrecondition if the table is not mutable.
  template <typename KeyAt>
  Status Remove(int64_t count, const KeyAt& key) {
    return Write("remove from", [&](Map& map) {
      for (int64_t i = 0; i < count; ++i) map.Remove(key(i));
      return Status();
    });
  }

 private:
  static Status NotInitialized() {
    return FailedPrecondition(
        "the id table is not initialized: import keys first.");
  }

  template <typename Change>
  Status Write(const char* verb, const Change& change) {
    if (!mutable_) {
      return FailedPrecondition("cannot ", verb,
                                " an id table that is not mutable.");
    }
    const std::shared_ptr<Content> content = std::atomic_load(&content_);
    if (content == nullptr) return NotInitialized();
    MutexLock gate(&content->gate);
    WriterLock lock(&content->mutex);
    return change(content->map);
  }

  const bool mutable_;
  std::shared_ptr<Content> content_;  // accessed atomically
};

// Returns the entries in ascending order of (value, key). Keys refer to the
// map's memory.
template <typename Map>
std::vector<std::pair<int64_t, typename Map::Key>> SortedEntries(
    const Map& map) {
  std::vector<std::pair<int64_t, typename Map::Key>> entries;
  entries.reserve(map.size());
  map.ForEach([&](typename Map::Key key, int64_t value) {
    entries.emplace_back(value, key);
  });
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_LOOKUP_ID_TABLE_H_
