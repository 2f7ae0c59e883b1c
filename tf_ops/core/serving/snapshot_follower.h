// Loads the versions of a snapshot folder next to the tables that serve.

#ifndef LODESTAR_TF_OPS_CORE_SERVING_SNAPSHOT_FOLLOWER_H_
#define LODESTAR_TF_OPS_CORE_SERVING_SNAPSHOT_FOLLOWER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/snapshot/manifest.h"
#include "tf_ops/core/snapshot/saved_arrays.h"
#include "tf_ops/core/snapshot/snapshot_folder.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

// What a model reads. Versions must have the same tables, weights and
// vocabularies.
struct FollowingModel {
  struct Table {
    std::string name;  // in snapshots
    // In host memory; new tables get its options.
    std::shared_ptr<const lodestar::Table> like;
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
  std::string schema;  // YAML; empty: none
};

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
  std::string time;  // of the snapshot
  double seconds_since_update = 0;
  int64_t updates = 0;       // loaded versions
  int64_t full_updates = 0;  // those that read whole tables
  int64_t failures = 0;      // failed attempts to load a version
  std::string last_error;    // why the newest version is not served
};

// Two copies of the tables take turns: the one that was served before the
// current one receives the changes since then, if no call reads it any more.
// Otherwise a new copy is read from the files.
class SnapshotFollower {
 public:
  explicit SnapshotFollower(std::string folder) : folder_(std::move(folder)) {}

  // Makes the content of a new version visible to calls. After an error, the
  // version is not served.
  using Install = std::function<Status(const FollowedContent&)>;

  // Loads the newest version that can be loaded, if it is newer than the
  // current one. If the current one was removed or replaced and there is no
  // newer one, the folder was set back, and older versions are loaded, too.
  // Damaged versions and those of other models are skipped, and not read again
  // until a file of theirs changes. Versions that could not be read or
  // installed are tried again. Thread-safe; calls wait for each other.
  void Refresh(const FollowingModel& model, const ParallelFor* parallel,
               const Install& install = nullptr);
  // Returns the newest loaded content; null before the first. Its tables may
  // change once no pointer to it or to one of them is left.
  std::shared_ptr<const FollowedContent> current() const { return serving(); }
  FollowerStats stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  // A version that could not be loaded.
  struct Refusal {
    std::set<int64_t> read;  // versions whose files were read
    std::string stamp;       // of these files; empty: to be tried again
    std::string error;
  };

  // Returns the newest version that is not to be loaded: the served one, or 0
  // if the folder was set back.
  int64_t LastKnown(const std::vector<int64_t>& versions) const
      LODESTAR_REQUIRES(refresh_mutex_);
  Status TryVersion(int64_t version, const FollowingModel& model,
                    const ParallelFor* parallel, const Install& install,
                    Refusal* refusal) LODESTAR_REQUIRES(refresh_mutex_);
  Status Load(const ManifestChain& chain, const FollowingModel& model,
              const ParallelFor* parallel, FollowedContent* content, bool* full)
      LODESTAR_REQUIRES(refresh_mutex_);
  // Moves the tables out of idle_ and applies the versions after it.
  Status ApplyDeltas(const ManifestChain& chain, size_t first,
                     const FollowingModel& model, FollowedContent* content)
      LODESTAR_REQUIRES(refresh_mutex_);
  Status ReadWhole(const ManifestChain& chain, const FollowingModel& model,
                   const ParallelFor* parallel, FollowedContent* content) const;
  std::shared_ptr<FollowedContent> serving() const;
  void Publish(std::shared_ptr<FollowedContent> content, bool is_new, bool full)
      LODESTAR_REQUIRES(refresh_mutex_);
  std::string StampOf(const std::set<int64_t>& versions) const;

  const SnapshotFolder folder_;
  // Held by one Refresh at a time; taken before mutex_.
  Mutex refresh_mutex_;
  std::map<int64_t, Refusal> refusals_ LODESTAR_GUARDED_BY(refresh_mutex_);
  // What was served before.
  std::shared_ptr<FollowedContent> idle_ LODESTAR_GUARDED_BY(refresh_mutex_);

  mutable Mutex mutex_;
  std::shared_ptr<FollowedContent> serving_ LODESTAR_GUARDED_BY(mutex_);
  FollowerStats stats_ LODESTAR_GUARDED_BY(mutex_);
  Clock::time_point updated_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_SERVING_SNAPSHOT_FOLLOWER_H_
