// Serves the versions of a snapshot folder.

#ifndef LODESTAR_TF_OPS_CORE_SERVING_SNAPSHOT_FOLLOWER_H_
#define LODESTAR_TF_OPS_CORE_SERVING_SNAPSHOT_FOLLOWER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/snapshot/manifest.h"
#include "tf_ops/core/snapshot/restored_records.h"
#include "tf_ops/core/snapshot/saved_arrays.h"
#include "tf_ops/core/snapshot/snapshot_folder.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

// What a model reads. Versions must have the same tables, weights and
// vocabularies.
struct FollowingModel {
  // A table, or a part of one.
  struct Table {
    std::string name;  // in snapshots
    // New tables get its options and its device.
    std::shared_ptr<const lodestar::Table> like;
    TablePart part;
    // Where the calling thread works on such tables; null for host memory.
    std::function<Execution(const ParallelFor* parallel)> on;
  };
  struct Weight {
    std::string path;
    std::string dtype;
    std::vector<int64_t> shape;
  };
  struct IdTable {
    std::string name;
    std::string key_dtype;
  };
  // Keys whose numbering is part of the model.
  struct Vocabulary {
    std::string name;
    std::string digest;  // see DigestOf
  };
  std::vector<Table> tables;
  std::vector<Weight> weights;
  std::vector<IdTable> id_tables;
  std::vector<Vocabulary> vocabularies;
  // Line of a column in schema.yaml -> its meaning; see ReadMeanings.
  std::map<std::string, std::string> schema;
};

// Returns the columns of a schema.yaml with what their values mean, from its
// comments "# COLUMN\tMEANING".
std::map<std::string, std::string> ReadMeanings(std::string_view yaml);

// The content of an id table.
struct FollowedIds {
  SavedArray keys;     // the bytes of all, if they are strings
  SavedArray lengths;  // of strings, int64
  SavedArray ids;      // int64
};

// Returns "bytes:crc32c" of an array in decimal digits.
std::string DigestOf(const SavedArray& array);

// The content of a version, in the order of the model's.
struct FollowedContent {
  Manifest manifest;
  std::vector<std::shared_ptr<Table>> tables;
  std::vector<std::string> weights;  // items in row-major order
  // Null for an id table that the version does not have. The same object as in
  // the version before if the content is equal.
  std::vector<std::shared_ptr<const FollowedIds>> id_tables;
};

struct FollowerStats {
  int64_t version = 0;  // 0: none loaded
  int64_t step = 0;
  std::string time;      // of the snapshot
  std::string metadata;  // of the snapshot: a JSON object
  double seconds_since_update = 0;
  double last_update_seconds = 0;  // how long it took
  int64_t newest_version = 0;      // at the last poll; 0: none
  int64_t lag_versions = 0;        // newer ones than the served one
  bool pinned = false;
  int64_t polls = 0;
  int64_t updates = 0;       // loaded versions
  int64_t full_updates = 0;  // those that read whole tables
  int64_t failures = 0;      // failed attempts to load a version
  // By updates, of all copies:
  int64_t rows_written = 0;
  int64_t rows_removed = 0;
  int64_t bytes = 0;  // of the files read
  // Memory of the copy that does not serve, by table; empty without one.
  std::vector<int64_t> idle_bytes;
  std::string last_error;  // why the newest version is not served
  // The error of the newest version that is of another model.
  std::string model_error;
};

// How many copies of the tables there are.
//
// Two of them take turns: the one that was served before the current one
// receives the changes since then, if no call reads it any more. Otherwise a
// new copy is read from the files. A single one receives the changes while
// calls read it.
enum class TableCopies { kOne, kTwo };

class SnapshotFollower {
 public:
  explicit SnapshotFollower(std::string folder,
                            TableCopies copies = TableCopies::kTwo)
      : folder_(std::move(folder)), copies_(copies) {}

  // Makes the content of a new version visible to calls. After an error, the
  // version is not served.
  using Install = std::function<Status(const FollowedContent&)>;

  // Loads the newest version that can be loaded, if it is newer than the
  // current one and none is pinned. If the current one was removed or replaced
  // and there is no newer one, the folder was set back, and older versions are
  // loaded, too. Damaged versions and those of other models are skipped, and
  // not read again until a file of theirs changes. Versions that could not be
  // read or installed are tried again. Thread-safe; calls wait for each other.
  void Refresh(const FollowingModel& model, const ParallelFor* parallel,
               const Install& install = nullptr);
  // Serves a version of any age until Unpin. After an error, nothing has
  // changed. Returns NotFound without such a version, InvalidArgument if it is
  // of another model, and DataLoss if it is damaged. Thread-safe.
  Status Pin(int64_t version, const FollowingModel& model,
             const ParallelFor* parallel, const Install& install = nullptr);
  // Lets Refresh load versions again. Thread-safe.
  void Unpin();
  // Returns the served content; null before the first. Of two copies, its
  // tables may change once no pointer to it or to one of them is left.
  std::shared_ptr<const FollowedContent> current() const { return serving(); }
  FollowerStats stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  // A version that could not be loaded.
  struct Refusal {
    std::set<int64_t> read;  // versions whose files were read
    std::string stamp;       // of these files; empty: to be tried again
    Status error;
  };

  // Returns the newest version that is not to be loaded: the served one, or 0
  // if the folder was set back or the served tables are torn.
  int64_t LastKnown(const std::vector<int64_t>& versions) const
      LODESTAR_REQUIRES(refresh_mutex_);
  Status TryVersion(int64_t version, const FollowingModel& model,
                    const ParallelFor* parallel, const Install& install,
                    Refusal* refusal) LODESTAR_REQUIRES(refresh_mutex_);
  Status ServeLast(const ManifestChain& chain, const FollowingModel& model,
                   const ParallelFor* parallel, const Install& install)
      LODESTAR_REQUIRES(refresh_mutex_);
  // Adds the numbers of this update to *loaded.
  Status Load(const ManifestChain& chain, const FollowingModel& model,
              const ParallelFor* parallel, FollowedContent* content,
              FollowerStats* loaded) LODESTAR_REQUIRES(refresh_mutex_);
  // Applies the versions of a chain from `first` on to content->tables.
  Status ApplyDeltas(const ManifestChain& chain, size_t first,
                     const FollowingModel& model, FollowedContent* content,
                     FollowerStats* loaded) LODESTAR_REQUIRES(refresh_mutex_);
  Status ReadWhole(const ManifestChain& chain, const FollowingModel& model,
                   const ParallelFor* parallel, FollowedContent* content,
                   FollowerStats* loaded) const;
  // Reads the served version again after changes that were not completed.
  Status Mend(const FollowingModel& model, const ParallelFor* parallel,
              const Install& install) LODESTAR_REQUIRES(refresh_mutex_);
  std::shared_ptr<FollowedContent> serving() const;
  // Serves the content of an update, or other content of the served version.
  void Publish(std::shared_ptr<FollowedContent> content,
               const FollowerStats& loaded, const FollowingModel& model)
      LODESTAR_REQUIRES(refresh_mutex_);
  void SetIdle(std::shared_ptr<FollowedContent> content,
               const FollowingModel& model) LODESTAR_REQUIRES(refresh_mutex_);
  // Shows in stats() what is true after a poll of these versions.
  void ShowState(const std::vector<int64_t>& versions)
      LODESTAR_REQUIRES(refresh_mutex_);
  void ShowErrors() LODESTAR_REQUIRES(refresh_mutex_, mutex_);
  std::string StampOf(const std::set<int64_t>& versions) const;

  const SnapshotFolder folder_;
  const TableCopies copies_;
  // Held by one Refresh at a time; taken before mutex_.
  Mutex refresh_mutex_;
  std::map<int64_t, Refusal> refusals_ LODESTAR_GUARDED_BY(refresh_mutex_);
  // The content that was served before, of two copies.
  std::shared_ptr<FollowedContent> idle_ LODESTAR_GUARDED_BY(refresh_mutex_);
  bool pinned_ LODESTAR_GUARDED_BY(refresh_mutex_) = false;
  // Whether the served tables have changes that were not completed.
  bool torn_ LODESTAR_GUARDED_BY(refresh_mutex_) = false;

  mutable Mutex mutex_;
  std::shared_ptr<FollowedContent> serving_ LODESTAR_GUARDED_BY(mutex_);
  FollowerStats stats_ LODESTAR_GUARDED_BY(mutex_);
  Clock::time_point updated_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SERVING_SNAPSHOT_FOLLOWER_H_
