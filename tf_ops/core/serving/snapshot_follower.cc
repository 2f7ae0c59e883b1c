#include "tf_ops/core/serving/snapshot_follower.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/snapshot/snapshot_delta.h"
#include "tf_ops/core/snapshot/snapshot_restore.h"

namespace lodestar {
namespace {

constexpr char kSchema[] = "schema.yaml";
// Prefixes of the names of a model's weights, and of arrays saved with tables.
constexpr const char* kWeightPrefixes[] = {"weight/", "dense/"};

// Returns whether this is the only pointer to its object. Then whatever holders
// of other pointers did happened before.
template <typename T>
bool IsOnly(const std::shared_ptr<T>& pointer) {
  if (pointer.use_count() != 1) return false;
  // use_count() alone does not synchronize with the destruction of the other
  // pointers; destroying a copy does.
  const std::shared_ptr<T> copy = pointer;
  return true;
}

bool IsUnused(const std::shared_ptr<FollowedContent>& content) {
  return IsOnly(content) &&
         std::all_of(content->tables.begin(), content->tables.end(),
                     [](const auto& table) { return IsOnly(table); });
}

// Returns whether an error is about what the files contain, and so remains
// until they change. All others may be those of memory or of the file system.
bool IsAboutContent(const Status& status) {
  return status.code() == StatusCode::kDataLoss ||
         status.code() == StatusCode::kInvalidArgument ||
         status.code() == StatusCode::kFailedPrecondition ||
         status.code() == StatusCode::kUnimplemented;
}

// Returns the position of the version of `served` in a chain, or its size.
size_t PositionOf(const Manifest& served, const ManifestChain& chain) {
  const auto found = std::find_if(
      chain.begin(), chain.end(),
      [&](const auto& manifest) { return manifest->Equals(served.id); });
  return found - chain.begin();
}

// Returns whether a version only has changes of each table of the model.
bool IsDelta(const Manifest& manifest, const FollowingModel& model) {
  for (const FollowingModel::Table& table : model.tables) {
    for (const ManifestTable* part : manifest.PartsOf(table.name)) {
      if (part->whole) return false;
    }
  }
  return true;
}

// Formats names for an error message.
template <typename Names>
std::string Quoted(const Names& names) {
  std::vector<std::string> quoted;
  for (const auto& name : names) quoted.push_back(StrCat("'", name, "'"));
  return quoted.empty() ? "none" : Join(quoted);
}

Execution OnDeviceOf(const FollowingModel::Table& table,
                     const ParallelFor* parallel) {
  return table.on == nullptr ? Execution(parallel) : table.on(parallel);
}

// Returns InvalidArgument if a column of both schemas differs, or what is a
// missing value. Columns that either side does not use do not count.
Status CheckSchema(const Manifest& manifest, const FollowingModel& model,
                   const SnapshotFolder& folder) {
  const ManifestFile* const schema = manifest.FindFile(kSchema);
  if (schema == nullptr || model.schema.empty()) return Status();
  std::string yaml;
  LODESTAR_RETURN_IF_ERROR(folder.ReadFile(manifest, *schema, &yaml));
  for (const auto& [column, saved] : ReadMeanings(yaml)) {
    const auto here = model.schema.find(column);
    if (here == model.schema.end() || here->second == saved) continue;
    return InvalidArgument(
        folder.VersionPath(manifest.id.version),
        ": was saved from a model with another schema: ", column, " is ", saved,
        " in the snapshot, ", here->second, " in the model. The rows of its ",
        "tables belong to values that were read with that schema. Export the "
        "model again.");
  }
  return Status();
}

// Returns InvalidArgument unless the version has the model's tables.
Status CheckTables(const Manifest& manifest, const FollowingModel& model,
                   const SnapshotFolder& folder) {
  const std::string path = folder.VersionPath(manifest.id.version);
  for (const FollowingModel::Table& table : model.tables) {
    const std::vector<const ManifestTable*> parts =
        manifest.PartsOf(table.name);
    if (parts.empty()) {
      std::vector<std::string_view> saved;
      for (const auto& [name, unused] : manifest.parts) saved.push_back(name);
      return InvalidArgument(path, ": has no table '", table.name,
                             "', which the model reads; it has ", Quoted(saved),
                             ". Export the model again, or use `rename` of "
                             "LiveModel.");
    }
    const std::string dtype(NameOf(table.like->type()));
    if (parts[0]->dim != table.like->dim() || parts[0]->dtype != dtype) {
      return InvalidArgument(path, ": the table '", table.name, "' has dim ",
                             parts[0]->dim, " and dtype ", parts[0]->dtype,
                             ", but dim ", table.like->dim(), " and dtype ",
                             dtype, " in the model");
    }
  }
  return Status();
}

// Removes the numbers of Keras from a path: dense_1/kernel is dense/kernel.
std::string WithoutNumbers(std::string_view path) {
  std::string out;
  while (true) {
    const size_t end = std::min(path.find('/'), path.size());
    std::string_view part = path.substr(0, end);
    size_t digits = part.size();
    while (digits > 0 && part[digits - 1] >= '0' && part[digits - 1] <= '9') {
      --digits;
    }
    if (digits < part.size() && digits > 0 && part[digits - 1] == '_') {
      part = part.substr(0, digits - 1);
    }
    out += part;
    if (end == path.size()) return out;
    out += '/';
    path.remove_prefix(end + 1);
  }
}

// Makes names without numbers unique, in order.
class UnnumberedPaths {
 public:
  std::string Next(const std::string& path) {
    const std::string name = WithoutNumbers(path);
    return StrCat(name, "#", ++seen_[name]);
  }

 private:
  std::map<std::string, int64_t> seen_;
};

// Returns, for each weight of the model, the saved path that matches it, or an
// empty one. Paths match exactly if one side has all paths of the other, and
// otherwise by their order without the numbers that Keras adds. `saved` has
// their order.
std::vector<std::string> MatchWeights(const std::vector<std::string>& saved,
                                      const FollowingModel& model) {
  const auto is_saved = [&](const FollowingModel::Weight& weight) {
    return std::count(saved.begin(), saved.end(), weight.path) > 0;
  };
  const bool all_here =
      std::all_of(model.weights.begin(), model.weights.end(), is_saved);
  const bool all_saved =
      std::all_of(saved.begin(), saved.end(), [&](const std::string& path) {
        return std::any_of(
            model.weights.begin(), model.weights.end(),
            [&](const auto& weight) { return weight.path == path; });
      });
  std::vector<std::string> matches;
  if (all_here || all_saved) {
    for (const FollowingModel::Weight& weight : model.weights) {
      matches.push_back(is_saved(weight) ? weight.path : "");
    }
    return matches;
  }
  std::map<std::string, std::string> by_name;
  UnnumberedPaths there;
  for (const std::string& path : saved) by_name[there.Next(path)] = path;
  UnnumberedPaths here;
  for (const FollowingModel::Weight& weight : model.weights) {
    const auto found = by_name.find(here.Next(weight.path));
    matches.push_back(found == by_name.end() ? "" : found->second);
  }
  return matches;
}

// Reads the model's weights of a version.
Status ReadWeights(const Manifest& manifest, const FollowingModel& model,
                   const SnapshotFolder& folder,
                   std::vector<std::string>* weights) {
  if (model.weights.empty()) return Status();
  std::map<std::string, SavedArray> arrays;
  std::vector<std::string> paths;
  for (const std::string_view prefix : kWeightPrefixes) {
    LODESTAR_RETURN_IF_ERROR(ReadArrays(folder, manifest, prefix, &arrays));
    for (const ManifestBlob& blob : manifest.blobs) {
      if (blob.name.substr(0, prefix.size()) == prefix) {
        paths.push_back(blob.name.substr(prefix.size()));
      }
    }
    if (!arrays.empty()) break;
  }
  const std::string path = folder.VersionPath(manifest.id.version);
  const std::vector<std::string> matches = MatchWeights(paths, model);
  for (size_t w = 0; w < matches.size(); ++w) {
    const FollowingModel::Weight& weight = model.weights[w];
    if (matches[w].empty()) {
      return InvalidArgument(path, ": has no weight '", weight.path,
                             "', which the model reads; it has ", Quoted(paths),
                             ". Save the model, or the weights as `dense`, "
                             "with snapshot.save, or use weights='keep' of "
                             "LiveModel.");
    }
    SavedArray& array = arrays[matches[w]];
    if (array.dtype != weight.dtype || array.shape != weight.shape) {
      return InvalidArgument(path, ": the weight '", weight.path, "' is ",
                             array.dtype, " [", Join(array.shape), "], but ",
                             weight.dtype, " [", Join(weight.shape),
                             "] in the model");
    }
    weights->push_back(std::move(array.bytes));
  }
  return Status();
}

int64_t NumItems(const SavedArray& vector) {
  return vector.shape.empty() ? 0 : vector.shape[0];
}

// Returns DataLoss unless the lengths of strings add up to their bytes.
Status CheckLengths(const std::string& what, const FollowedIds& ids) {
  const int64_t count = NumItems(ids.lengths);
  const auto* const lengths =
      reinterpret_cast<const int64_t*>(ids.lengths.bytes.data());
  const int64_t bytes = static_cast<int64_t>(ids.keys.bytes.size());
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (lengths[i] < 0 || lengths[i] > bytes - sum) {
      return DataLoss(what, " has keys of ", bytes,
                      " bytes, but other lengths");
    }
    sum += lengths[i];
  }
  if (sum == bytes) return Status();
  return DataLoss(what, " has keys of ", bytes, " bytes, but other lengths");
}

// Checks the arrays of an id table and moves them to *ids.
Status ReadIds(const std::string& what, const std::string& key_dtype,
               std::map<std::string, SavedArray>* arrays, FollowedIds* ids) {
  for (const auto& [part, array] : *arrays) {
    if (array.shape.size() != 1) {
      return DataLoss(what, " has arrays that are not vectors");
    }
    if ((part == "ids" || part == "lengths") && array.dtype != "int64") {
      return DataLoss(what, " has ", part, " of ", array.dtype,
                      " instead of int64");
    }
  }
  const bool strings = arrays->count("lengths") > 0;
  if (arrays->size() != (strings ? 3 : 2) || arrays->count("keys") == 0 ||
      arrays->count("ids") == 0) {
    return InvalidArgument(what, " is not the content of an IdTable");
  }
  ids->keys = std::move((*arrays)["keys"]);
  ids->ids = std::move((*arrays)["ids"]);
  if (strings) ids->lengths = std::move((*arrays)["lengths"]);
  const std::string& found = strings ? "string" : ids->keys.dtype;
  if (found != key_dtype) {
    return InvalidArgument(what, " has ", found, " keys, but ", key_dtype,
                           " keys in the model");
  }
  const int64_t count = NumItems(strings ? ids->lengths : ids->keys);
  if (count != NumItems(ids->ids)) {
    return DataLoss(what, " has ", count, " keys, but ", NumItems(ids->ids),
                    " ids");
  }
  return strings ? CheckLengths(what, *ids) : Status();
}

bool AreEqual(const SavedArray& a, const SavedArray& b) {
  return a.dtype == b.dtype && a.bytes == b.bytes;
}

// Reads the model's id tables of a version, and checks its vocabularies.
Status ReadIdTables(const Manifest& manifest, const FollowingModel& model,
                    const SnapshotFolder& folder, const FollowedContent* served,
                    FollowedContent* content) {
  const auto read = [&](const std::string& name,
                        std::map<std::string, SavedArray>* arrays) {
    return ReadArrays(folder, manifest, StrCat("id_table/", name, "/"), arrays);
  };
  const std::string path = folder.VersionPath(manifest.id.version);
  for (const FollowingModel::Vocabulary& vocabulary : model.vocabularies) {
    std::map<std::string, SavedArray> arrays;
    LODESTAR_RETURN_IF_ERROR(read(vocabulary.name, &arrays));
    if (arrays.empty()) continue;
    if (StrCat(DigestOf(arrays["vocabulary"]), " ",
               DigestOf(arrays["lengths"])) != vocabulary.digest) {
      return InvalidArgument(path, ": the IdLookup '", vocabulary.name,
                             "' has another vocabulary than the model, whose "
                             "weights depend on it. Export the model again.");
    }
  }
  for (size_t i = 0; i < model.id_tables.size(); ++i) {
    const FollowingModel::IdTable& table = model.id_tables[i];
    std::shared_ptr<const FollowedIds>& place =
        content->id_tables.emplace_back();
    std::map<std::string, SavedArray> arrays;
    LODESTAR_RETURN_IF_ERROR(read(table.name, &arrays));
    if (arrays.empty()) continue;
    auto ids = std::make_shared<FollowedIds>();
    LODESTAR_RETURN_IF_ERROR(
        ReadIds(StrCat(path, ": the id table '", table.name, "'"),
                table.key_dtype, &arrays, ids.get()));
    const FollowedIds* const before =
        served == nullptr ? nullptr : served->id_tables[i].get();
    const bool same = before != nullptr && AreEqual(before->keys, ids->keys) &&
                      AreEqual(before->lengths, ids->lengths) &&
                      AreEqual(before->ids, ids->ids);
    place = same ? served->id_tables[i] : std::move(ids);
  }
  return Status();
}

RestoreOptions ServingOptions() {
  RestoreOptions options;
  options.reset_slots = true;
  return options;
}

}  // namespace

std::string DigestOf(const SavedArray& array) {
  const int64_t bytes = static_cast<int64_t>(array.bytes.size());
  return StrCat(bytes, ":", Crc32c(array.bytes.data(), bytes));
}

std::map<std::string, std::string> ReadMeanings(std::string_view yaml) {
  std::map<std::string, std::string> meanings;
  while (!yaml.empty()) {
    const std::string_view line = yaml.substr(0, yaml.find('\n'));
    yaml.remove_prefix(std::min(line.size() + 1, yaml.size()));
    const size_t tab = line.find('\t');
    if (line.substr(0, 2) != "# " || tab == std::string_view::npos) continue;
    meanings.emplace(line.substr(2, tab - 2), line.substr(tab + 1));
  }
  return meanings;
}

std::shared_ptr<FollowedContent> SnapshotFollower::serving() const {
  MutexLock lock(&mutex_);
  return serving_;
}

FollowerStats SnapshotFollower::stats() const {
  MutexLock lock(&mutex_);
  FollowerStats stats = stats_;
  if (serving_ != nullptr) {
    stats.version = serving_->manifest.id.version;
    stats.step = serving_->manifest.step;
    stats.time = serving_->manifest.time;
    stats.metadata = serving_->manifest.metadata;
    stats.seconds_since_update =
        std::chrono::duration<double>(Clock::now() - updated_).count();
  }
  return stats;
}

std::string SnapshotFollower::StampOf(const std::set<int64_t>& versions) const {
  std::string stamp;
  for (const int64_t version : versions) stamp += folder_.StampOf(version);
  return stamp;
}

void SnapshotFollower::Refresh(const FollowingModel& model,
                               const ParallelFor* parallel,
                               const Install& install) {
  MutexLock refresh(&refresh_mutex_);
  std::vector<int64_t> versions;
  const Status listed = folder_.ListVersions(&versions);
  if (!listed.ok()) {
    MutexLock lock(&mutex_);
    ++stats_.polls;
    stats_.last_error = listed.message();
    return;
  }
  const int64_t last_known = LastKnown(versions);
  for (auto refusal = refusals_.begin(); refusal != refusals_.end();) {
    const int64_t version = refusal->first;
    const bool is_newer =
        version > last_known &&
        std::binary_search(versions.begin(), versions.end(), version);
    refusal = is_newer ? std::next(refusal) : refusals_.erase(refusal);
  }
  int64_t failures = 0;
  for (auto version = versions.rbegin();
       !pinned_ && version != versions.rend() && *version > last_known;
       ++version) {
    Refusal& known = refusals_[*version];
    if (!known.stamp.empty() && known.stamp == StampOf(known.read)) continue;
    Refusal refusal;
    refusal.error = TryVersion(*version, model, parallel, install, &refusal);
    // Serving a version forgets the errors of all older ones.
    if (refusal.error.ok()) break;
    // Files that changed meanwhile may be right now.
    if (!IsAboutContent(refusal.error) ||
        refusal.stamp != StampOf(refusal.read)) {
      refusal.stamp.clear();
    }
    refusals_[*version] = std::move(refusal);
    ++failures;
  }
  ShowState(versions);
  MutexLock lock(&mutex_);
  ++stats_.polls;
  stats_.failures += failures;
}

Status SnapshotFollower::Pin(int64_t version, const FollowingModel& model,
                             const ParallelFor* parallel,
                             const Install& install) {
  MutexLock refresh(&refresh_mutex_);
  std::vector<int64_t> versions;
  LODESTAR_RETURN_IF_ERROR(folder_.ListVersions(&versions));
  if (!std::binary_search(versions.begin(), versions.end(), version)) {
    return Status(
        StatusCode::kNotFound,
        StrCat(folder_.path(), ": has no version ", version, "; it has ",
               versions.empty() ? "none" : Join(versions)));
  }
  Refusal unused;
  LODESTAR_RETURN_IF_ERROR(
      TryVersion(version, model, parallel, install, &unused));
  pinned_ = true;
  ShowState(versions);
  return Status();
}

void SnapshotFollower::Unpin() {
  MutexLock refresh(&refresh_mutex_);
  pinned_ = false;
  MutexLock lock(&mutex_);
  stats_.pinned = false;
}

void SnapshotFollower::ShowState(const std::vector<int64_t>& versions) {
  const int64_t last_known = LastKnown(versions);
  MutexLock lock(&mutex_);
  stats_.pinned = pinned_;
  stats_.newest_version = versions.empty() ? 0 : versions.back();
  stats_.lag_versions =
      versions.end() -
      std::upper_bound(versions.begin(), versions.end(), last_known);
  ShowErrors();
}

void SnapshotFollower::ShowErrors() {
  stats_.last_error.clear();
  stats_.model_error.clear();
  for (const auto& [version, refusal] : refusals_) {
    stats_.last_error = refusal.error.message();
    if (refusal.error.code() == StatusCode::kInvalidArgument) {
      stats_.model_error = refusal.error.message();
    }
  }
}

int64_t SnapshotFollower::LastKnown(
    const std::vector<int64_t>& versions) const {
  const std::shared_ptr<FollowedContent> served = serving();
  if (served == nullptr || torn_) return 0;
  const VersionId& id = served->manifest.id;
  // The newest version is never removed for newer ones.
  if (!versions.empty() && versions.back() < id.version) return 0;
  if (!std::binary_search(versions.begin(), versions.end(), id.version)) {
    return id.version;
  }
  std::shared_ptr<const Manifest> manifest;
  const Status status = folder_.ReadManifest(id.version, &manifest);
  return status.ok() && !(manifest->id == id) ? 0 : id.version;
}

Status SnapshotFollower::TryVersion(int64_t version,
                                    const FollowingModel& model,
                                    const ParallelFor* parallel,
                                    const Install& install,
                                    Refusal* refusal) try {
  refusal->read = {version};
  refusal->stamp = StampOf(refusal->read);
  ManifestChain chain;
  Status status = folder_.ReadChain(version, &chain);
  for (const auto& link : chain) {
    if (link == nullptr) continue;
    refusal->read.insert(link->id.version);
    if (link->parent.version != 0) {
      refusal->read.insert(link->parent.version);
    }
  }
  refusal->stamp = StampOf(refusal->read);
  // Again, because a file may have changed before the stamp was taken.
  if (!status.ok()) status = folder_.ReadChain(version, &chain);
  LODESTAR_RETURN_IF_ERROR(status);
  status = ServeLast(chain, model, parallel, install);
  // If this fails too, the next Refresh reads a version in full.
  if (torn_) (void)Mend(model, parallel, install);
  return status;
} catch (const std::bad_alloc&) {
  return ResourceExhausted(folder_.VersionPath(version), ": memory ran out.");
}

Status SnapshotFollower::ServeLast(const ManifestChain& chain,
                                   const FollowingModel& model,
                                   const ParallelFor* parallel,
                                   const Install& install) {
  const Clock::time_point began = Clock::now();
  const std::shared_ptr<FollowedContent> served = serving();
  auto content = std::make_shared<FollowedContent>();
  FollowerStats loaded;
  if (served != nullptr && !torn_ &&
      PositionOf(served->manifest, chain) == chain.size() - 1) {
    *content = *served;  // Compaction made a version of equal content.
  } else {
    loaded.updates = 1;
    LODESTAR_RETURN_IF_ERROR(
        Load(chain, model, parallel, content.get(), &loaded));
  }
  content->manifest = *chain.back();
  if (install != nullptr) LODESTAR_RETURN_IF_ERROR(install(*content));
  loaded.last_update_seconds =
      std::chrono::duration<double>(Clock::now() - began).count();
  Publish(std::move(content), loaded, model);
  return Status();
}

Status SnapshotFollower::Mend(const FollowingModel& model,
                              const ParallelFor* parallel,
                              const Install& install) {
  auto content = std::make_shared<FollowedContent>(*serving());
  content->tables.clear();
  ManifestChain chain;
  LODESTAR_RETURN_IF_ERROR(
      folder_.ReadChain(content->manifest.id.version, &chain));
  if (!(chain.back()->id == content->manifest.id)) {
    return DataLoss("the served version was replaced");
  }
  FollowerStats loaded;
  LODESTAR_RETURN_IF_ERROR(
      ReadWhole(chain, model, parallel, content.get(), &loaded));
  if (install != nullptr) LODESTAR_RETURN_IF_ERROR(install(*content));
  Publish(std::move(content), FollowerStats(), model);
  return Status();
}

void SnapshotFollower::Publish(std::shared_ptr<FollowedContent> content,
                               const FollowerStats& loaded,
                               const FollowingModel& model) {
  torn_ = false;
  refusals_.erase(refusals_.begin(),
                  refusals_.upper_bound(content->manifest.id.version));
  {
    MutexLock lock(&mutex_);
    serving_.swap(content);
    ShowErrors();
    if (loaded.updates == 0) return;
    updated_ = Clock::now();
    stats_.last_update_seconds = loaded.last_update_seconds;
    stats_.updates += loaded.updates;
    stats_.full_updates += loaded.full_updates;
    stats_.rows_written += loaded.rows_written;
    stats_.rows_removed += loaded.rows_removed;
    stats_.bytes += loaded.bytes;
  }
  if (copies_ == TableCopies::kTwo) SetIdle(std::move(content), model);
}

void SnapshotFollower::SetIdle(std::shared_ptr<FollowedContent> content,
                               const FollowingModel& model) {
  std::vector<int64_t> bytes;
  for (size_t t = 0; content != nullptr && t < content->tables.size(); ++t) {
    EmbeddingStats stats;
    // Statistics are not worth an error.
    (void)content->tables[t]->ReadStats(&stats,
                                        OnDeviceOf(model.tables[t], nullptr));
    bytes.push_back(stats.index_bytes + stats.row_bytes + stats.slot_bytes +
                    stats.policy_bytes);
  }
  // The old copy may be freed after the lock.
  idle_.swap(content);
  MutexLock lock(&mutex_);
  stats_.idle_bytes = std::move(bytes);
}

Status SnapshotFollower::Load(const ManifestChain& chain,
                              const FollowingModel& model,
                              const ParallelFor* parallel,
                              FollowedContent* content, FollowerStats* loaded) {
  const Manifest& last = *chain.back();
  LODESTAR_RETURN_IF_ERROR(CheckTables(last, model, folder_));
  LODESTAR_RETURN_IF_ERROR(CheckSchema(last, model, folder_));
  LODESTAR_RETURN_IF_ERROR(
      ReadWeights(last, model, folder_, &content->weights));
  LODESTAR_RETURN_IF_ERROR(
      ReadIdTables(last, model, folder_, serving().get(), content));
  for (const ManifestFile& file : last.files) {
    if (!file.label.empty()) loaded->bytes += file.bytes;
  }
  // The copy that receives the changes since its version, if it can.
  std::shared_ptr<FollowedContent> base;
  if (copies_ == TableCopies::kOne) {
    if (!torn_) base = serving();
  } else if (idle_ != nullptr && IsUnused(idle_)) {
    base = std::move(idle_);
  }
  // Frees memory for new tables. After an error while changes are applied, the
  // tables may have some of them, so they are dropped.
  SetIdle(nullptr, model);
  if (base != nullptr) {
    const size_t first = PositionOf(base->manifest, chain) + 1;
    if (first <= chain.size() &&
        std::all_of(chain.begin() + static_cast<int64_t>(first), chain.end(),
                    [&](const auto& m) { return IsDelta(*m, model); })) {
      content->tables = base->tables;
      return ApplyDeltas(chain, first, model, content, loaded);
    }
  }
  base.reset();
  loaded->full_updates = 1;
  return ReadWhole(chain, model, parallel, content, loaded);
}

Status SnapshotFollower::ApplyDeltas(const ManifestChain& chain, size_t first,
                                     const FollowingModel& model,
                                     FollowedContent* content,
                                     FollowerStats* loaded) {
  for (size_t at = first; at < chain.size(); ++at) {
    std::vector<std::unique_ptr<SnapshotDelta>> deltas(model.tables.size());
    for (size_t t = 0; t < model.tables.size(); ++t) {
      const FollowingModel::Table& table = model.tables[t];
      std::vector<ListedFile> files;
      for (const ManifestTable* part : chain[at]->PartsOf(table.name)) {
        LODESTAR_RETURN_IF_ERROR(
            folder_.CheckFile(*chain[at], *part, &files.emplace_back()));
        if (table.part.number == 0) loaded->bytes += part->bytes;
      }
      LODESTAR_RETURN_IF_ERROR(SnapshotDelta::Open(
          files, table.part, content->tables[t].get(), ServingOptions(),
          OnDeviceOf(table, nullptr), &deltas[t]));
    }
    torn_ = copies_ == TableCopies::kOne;
    for (size_t t = 0; t < model.tables.size(); ++t) {
      // Makes the device of the table current.
      (void)OnDeviceOf(model.tables[t], nullptr);
      SnapshotDelta::Applied applied;
      LODESTAR_RETURN_IF_ERROR(deltas[t]->Apply(&applied));
      loaded->rows_written += applied.written;
      loaded->rows_removed += applied.removed;
    }
  }
  return Status();
}

Status SnapshotFollower::ReadWhole(const ManifestChain& chain,
                                   const FollowingModel& model,
                                   const ParallelFor* parallel,
                                   FollowedContent* content,
                                   FollowerStats* loaded) const {
  for (const FollowingModel::Table& table : model.tables) {
    std::vector<PartFiles> files;
    LODESTAR_RETURN_IF_ERROR(folder_.TableFiles(chain, table.name, &files));
    std::vector<SavedPart> saved;
    for (PartFiles& part : files) {
      if (table.part.number == 0) loaded->bytes += part.bytes;
      saved.push_back({{static_cast<uint32_t>(part.part),
                        static_cast<uint32_t>(part.parts)},
                       std::move(part.files)});
    }
    const Execution on = OnDeviceOf(table, parallel);
    std::unique_ptr<Table> restored;
    LODESTAR_RETURN_IF_ERROR(RestoreTable(saved, table.part, *table.like,
                                          ServingOptions(), parallel, on,
                                          &restored));
    int64_t rows = 0;
    LODESTAR_RETURN_IF_ERROR(restored->ReadSize(&rows, on));
    loaded->rows_written += rows;
    // All copies share the counters of lookups, which never decrease then.
    LODESTAR_RETURN_IF_ERROR(
        restored->CopyLiveState(*table.like, Table::OwnState(), on));
    content->tables.push_back(std::move(restored));
  }
  return Status();
}

}  // namespace lodestar
