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

// Returns InvalidArgument unless the version has the model's tables and schema.
Status CheckTables(const Manifest& manifest, const FollowingModel& model,
                   const SnapshotFolder& folder) {
  const std::string path = folder.VersionPath(manifest.id.version);
  for (const FollowingModel::Table& table : model.tables) {
    const std::vector<const ManifestTable*> parts =
        manifest.PartsOf(table.name);
    if (parts.empty()) {
      return InvalidArgument(path, ": has no table '", table.name,
                             "', which the model reads");
    }
    const std::string dtype(NameOf(table.like->type()));
    if (parts[0]->dim != table.like->dim() || parts[0]->dtype != dtype) {
      return InvalidArgument(path, ": the table '", table.name, "' has dim ",
                             parts[0]->dim, " and dtype ", parts[0]->dtype,
                             ", but dim ", table.like->dim(), " and dtype ",
                             dtype, " in the model");
    }
  }
  const ManifestFile* const schema = manifest.FindFile(kSchema);
  if (schema == nullptr || model.schema.empty()) return Status();
  std::string found;
  LODESTAR_RETURN_IF_ERROR(folder.ReadFile(manifest, *schema, &found));
  if (found == model.schema) return Status();
  return InvalidArgument(path,
                         ": was saved from a model with another schema.yaml. "
                         "Export the model again.");
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
                             "', which the model reads. Save the model, or the "
                             "weights as `dense`, with snapshot.save.");
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
    stats_.last_error = listed.message();
    return;
  }
  const int64_t last_known = LastKnown(versions);
  int64_t failures = 0;
  std::map<int64_t, Refusal> refusals;
  for (auto version = versions.rbegin();
       version != versions.rend() && *version > last_known; ++version) {
    const auto known = refusals_.find(*version);
    if (known != refusals_.end() && !known->second.stamp.empty() &&
        known->second.stamp == StampOf(known->second.read)) {
      refusals.insert(*known);
      continue;
    }
    Refusal refusal;
    Status status;
    try {
      status = TryVersion(*version, model, parallel, install, &refusal);
    } catch (const std::bad_alloc&) {
      status =
          ResourceExhausted(folder_.VersionPath(*version), ": memory ran out.");
    }
    if (status.ok()) break;
    // Files that changed meanwhile may be right now.
    if (!IsAboutContent(status) || refusal.stamp != StampOf(refusal.read)) {
      refusal.stamp.clear();
    }
    refusal.error = status.message();
    refusals.emplace(*version, std::move(refusal));
    ++failures;
  }
  refusals_ = std::move(refusals);
  MutexLock lock(&mutex_);
  stats_.failures += failures;
  stats_.last_error =
      refusals_.empty() ? std::string() : refusals_.rbegin()->second.error;
}

int64_t SnapshotFollower::LastKnown(
    const std::vector<int64_t>& versions) const {
  const std::shared_ptr<FollowedContent> served = serving();
  if (served == nullptr) return 0;
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
                                    const Install& install, Refusal* refusal) {
  const std::shared_ptr<FollowedContent> served = serving();
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
  auto content = std::make_shared<FollowedContent>();
  bool full = false;
  const bool is_new = served == nullptr ||
                      PositionOf(served->manifest, chain) != chain.size() - 1;
  if (is_new) {
    LODESTAR_RETURN_IF_ERROR(
        Load(chain, model, parallel, content.get(), &full));
  } else {
    *content = *served;  // Compaction made a version of equal content.
  }
  content->manifest = *chain.back();
  if (install != nullptr) LODESTAR_RETURN_IF_ERROR(install(*content));
  Publish(std::move(content), is_new, full);
  return Status();
}

void SnapshotFollower::Publish(std::shared_ptr<FollowedContent> content,
                               bool is_new, bool full) {
  MutexLock lock(&mutex_);
  serving_.swap(content);
  if (!is_new) return;
  idle_ = std::move(content);
  updated_ = Clock::now();
  ++stats_.updates;
  if (full) ++stats_.full_updates;
}

Status SnapshotFollower::Load(const ManifestChain& chain,
                              const FollowingModel& model,
                              const ParallelFor* parallel,
                              FollowedContent* content, bool* full) {
  LODESTAR_RETURN_IF_ERROR(CheckTables(*chain.back(), model, folder_));
  LODESTAR_RETURN_IF_ERROR(
      ReadWeights(*chain.back(), model, folder_, &content->weights));
  LODESTAR_RETURN_IF_ERROR(
      ReadIdTables(*chain.back(), model, folder_, serving().get(), content));
  if (idle_ != nullptr && IsUnused(idle_)) {
    const size_t first = PositionOf(idle_->manifest, chain) + 1;
    if (first <= chain.size() &&
        std::all_of(chain.begin() + static_cast<int64_t>(first), chain.end(),
                    [&](const auto& m) { return IsDelta(*m, model); })) {
      return ApplyDeltas(chain, first, model, content);
    }
  }
  // Frees memory for the new tables.
  idle_.reset();
  *full = true;
  return ReadWhole(chain, model, parallel, content);
}

Status SnapshotFollower::ApplyDeltas(const ManifestChain& chain, size_t first,
                                     const FollowingModel& model,
                                     FollowedContent* content) {
  // After an error the tables may have some of the changes, so they are
  // dropped.
  const std::shared_ptr<FollowedContent> idle = std::move(idle_);
  idle_.reset();
  for (size_t at = first; at < chain.size(); ++at) {
    std::vector<std::unique_ptr<SnapshotDelta>> deltas(model.tables.size());
    for (size_t t = 0; t < model.tables.size(); ++t) {
      std::vector<ListedFile> files;
      for (const ManifestTable* part :
           chain[at]->PartsOf(model.tables[t].name)) {
        LODESTAR_RETURN_IF_ERROR(
            folder_.CheckFile(*chain[at], *part, &files.emplace_back()));
      }
      LODESTAR_RETURN_IF_ERROR(
          SnapshotDelta::Open(files, TablePart(), idle->tables[t].get(),
                              ServingOptions(), Execution(), &deltas[t]));
    }
    for (const auto& delta : deltas) {
      SnapshotDelta::Applied applied;
      LODESTAR_RETURN_IF_ERROR(delta->Apply(&applied));
    }
  }
  content->tables = std::move(idle->tables);
  return Status();
}

Status SnapshotFollower::ReadWhole(const ManifestChain& chain,
                                   const FollowingModel& model,
                                   const ParallelFor* parallel,
                                   FollowedContent* content) const {
  for (const FollowingModel::Table& table : model.tables) {
    std::vector<PartFiles> files;
    LODESTAR_RETURN_IF_ERROR(folder_.TableFiles(chain, table.name, &files));
    std::vector<SavedPart> saved;
    for (PartFiles& part : files) {
      saved.push_back({{static_cast<uint32_t>(part.part),
                        static_cast<uint32_t>(part.parts)},
                       std::move(part.files)});
    }
    std::unique_ptr<Table> restored;
    LODESTAR_RETURN_IF_ERROR(RestoreTable(saved, TablePart(), *table.like,
                                          ServingOptions(), parallel,
                                          Execution(parallel), &restored));
    // All copies share the counters of lookups, which never decrease then.
    LODESTAR_RETURN_IF_ERROR(restored->CopyLiveState(
        *table.like, Table::OwnState(), Execution(parallel)));
    content->tables.push_back(std::move(restored));
  }
  return Status();
}

}  // namespace lodestar
