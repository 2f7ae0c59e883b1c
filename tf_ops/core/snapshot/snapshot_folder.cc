#include "tf_ops/core/snapshot/snapshot_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/snapshot/snapshot_file.h"

namespace lodestar {
namespace {

constexpr char kManifest[] = "MANIFEST";
constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;
// Size of the last line, which has the checksum of the first.
constexpr int64_t kManifestChecksum = 9;
constexpr size_t kLeastDigits = 8;

std::string NameOf(int64_t version) {
  const std::string digits = StrCat(version);
  return std::string(kLeastDigits - std::min(kLeastDigits, digits.size()),
                     '0') +
         digits;
}

// Returns the version whose folder has this name, or 0.
int64_t VersionOf(std::string_view name) {
  int64_t version = 0;
  const std::from_chars_result read =
      std::from_chars(name.data(), name.data() + name.size(), version);
  return read.ec == std::errc() && version > 0 && NameOf(version) == name
             ? version
             : 0;
}

// Calls fn(name) for each entry of a folder, until it returns an error. A
// missing folder has none.
template <typename Fn>
Status ForEachEntry(const std::string& path, const Fn& fn) {
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) {
    return errno == ENOENT ? Status() : FileError(path, "open", errno);
  }
  Status status;
  while (status.ok()) {
    errno = 0;
    const dirent* const entry = readdir(folder);
    if (entry == nullptr) {
      if (errno != 0) status = FileError(path, "list", errno);
      break;
    }
    status = fn(entry->d_name);
  }
  closedir(folder);
  return status;
}

Status Inspect(const std::string& path, struct stat* found) {
  return lstat(path.c_str(), found) == 0 ? Status()
                                         : FileError(path, "inspect", errno);
}

// Reads at most the last `tail` bytes of a regular file without following links
// or blocking.
Status ReadRegular(const std::string& path, int64_t limit, int64_t tail,
                   std::string* content) {
  const int file =
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) {
    if (errno == ELOOP) return DataLoss(path, ": is not a regular file");
    return FileError(path, "open", errno);
  }
  struct stat found = {};
  Status status;
  if (fstat(file, &found) != 0) {
    status = FileError(path, "inspect", errno);
  } else if (!S_ISREG(found.st_mode)) {
    status = DataLoss(path, ": is not a regular file");
  } else if (found.st_size > limit) {
    status = DataLoss(path, ": must have at most ", limit, " bytes, got ",
                      found.st_size);
  } else {
    content->resize(std::min<int64_t>(found.st_size, tail));
    const int64_t begin = found.st_size - content->size();
    size_t done = 0;
    while (done < content->size()) {
      const ssize_t got = pread(file, content->data() + done,
                                content->size() - done, begin + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) status = FileError(path, "read", errno);
      if (got <= 0) break;
      done += got;
    }
    content->resize(done);
  }
  close(file);
  return status;
}

std::string TextOf(const ManifestTable* table) {
  if (table == nullptr) return "no rows";
  return StrCat("dim ", table->dim, " and dtype ", table->dtype, " in ",
                table->parts, table->parts == 1 ? " part" : " parts");
}

}  // namespace

std::string SnapshotFolder::VersionPath(int64_t version) const {
  return StrCat(path_, "/", NameOf(version));
}

std::string SnapshotFolder::FilePath(int64_t version,
                                     std::string_view file) const {
  return StrCat(VersionPath(version), "/", file);
}

Status SnapshotFolder::ListVersions(std::vector<int64_t>* versions) const {
  versions->clear();
  const Status status =
      ForEachEntry(path_, [&](std::string_view name) -> Status {
        const int64_t version = VersionOf(name);
        if (version == 0) return Status();
        struct stat found = {};
        const Status status = Inspect(FilePath(version, kManifest), &found);
        if (status.code() == StatusCode::kNotFound) return Status();
        if (status.ok()) versions->push_back(version);
        return status;
      });
  if (!status.ok()) versions->clear();
  std::sort(versions->begin(), versions->end());
  return status;
}

std::string SnapshotFolder::StampOf(int64_t version) const {
  std::vector<std::string> files;
  const Status status =
      ForEachEntry(VersionPath(version), [&](std::string_view name) {
        struct stat found = {};
        const Status status = Inspect(FilePath(version, name), &found);
        // The folder's own times may change without a change of its files.
        if (status.ok() && S_ISDIR(found.st_mode)) return Status();
        files.push_back(StrCat(name, " ", found.st_ino, " ", found.st_size, " ",
                               found.st_mtim.tv_sec, ".", found.st_mtim.tv_nsec,
                               status.message()));
        return Status();
      });
  std::sort(files.begin(), files.end());
  return StrCat(version, ": ", Join(files), status.message(), "\n");
}

Status SnapshotFolder::ReadManifest(
    int64_t version, std::shared_ptr<const Manifest>* manifest) const {
  const std::string path = FilePath(version, kManifest);
  std::string checksum;
  LODESTAR_RETURN_IF_ERROR(
      ReadRegular(path, kMaxManifestBytes, kManifestChecksum, &checksum));
  MutexLock lock(&mutex_);
  const auto known = known_.find(version);
  if (known != known_.end() && known->second.checksum == checksum) {
    *manifest = known->second.manifest;
    return Status();
  }
  std::string content;
  LODESTAR_RETURN_IF_ERROR(
      ReadRegular(path, kMaxManifestBytes, kMaxManifestBytes, &content));
  auto parsed = std::make_shared<Manifest>();
  LODESTAR_RETURN_IF_ERROR(ParseManifest(content, path, parsed.get()));
  if (parsed->id.version != version) {
    return DataLoss(path, ": `version` must be ", version,
                    ", as in the folder's name, got ", parsed->id.version);
  }
  known_[version] = {std::move(checksum), parsed};
  *manifest = std::move(parsed);
  return Status();
}

Status SnapshotFolder::ReadChain(int64_t version, ManifestChain* chain) const {
  chain->assign(1, nullptr);
  LODESTAR_RETURN_IF_ERROR(ReadManifest(version, &chain->back()));
  while (chain->back()->parent.version != 0) {
    const Manifest& child = *chain->back();
    std::shared_ptr<const Manifest> parent;
    const Status status = ReadManifest(child.parent.version, &parent);
    if (status.code() == StatusCode::kNotFound) {
      return DataLoss(FilePath(version, kManifest), ": needs version ",
                      child.parent.version, ", which is missing");
    }
    LODESTAR_RETURN_IF_ERROR(status);
    LODESTAR_RETURN_IF_ERROR(CheckParent(child, *parent));
    chain->push_back(std::move(parent));
  }
  std::reverse(chain->begin(), chain->end());
  std::map<int64_t, Known> used;
  MutexLock lock(&mutex_);
  for (const auto& manifest : *chain) {
    const auto known = known_.find(manifest->id.version);
    if (known != known_.end()) used.insert(*known);
  }
  known_ = std::move(used);
  return Status();
}

Status SnapshotFolder::CheckParent(const Manifest& child,
                                   const Manifest& parent) const {
  const std::string path = FilePath(child.id.version, kManifest);
  if (!(parent.id == child.parent)) {
    return DataLoss(path, ": is a delta on version ", child.parent.version,
                    " with mark ", child.parent.mark, ", but this version has ",
                    "mark ", parent.id.mark,
                    " here: the two have different histories");
  }
  for (const auto& [name, indices] : child.parts) {
    const std::vector<const ManifestTable*> before = parent.PartsOf(name);
    const std::string other = TextOf(before.empty() ? nullptr : before[0]);
    const std::string own = TextOf(&child.tables[indices[0]]);
    const bool whole =
        std::all_of(indices.begin(), indices.end(),
                    [&](size_t index) { return child.tables[index].whole; });
    if (whole || own == other) continue;
    return DataLoss(path, ": the changes of the table '", name, "' have ", own,
                    ", but in version ", parent.id.version, " it has ", other);
  }
  return Status();
}

Status SnapshotFolder::TableFiles(const ManifestChain& chain,
                                  std::string_view name,
                                  std::vector<PartFiles>* parts) const {
  // Parts that need files of older versions.
  std::vector<size_t> open;
  parts->clear();
  for (const ManifestTable* last : chain.back()->PartsOf(name)) {
    open.push_back(parts->size());
    parts->push_back({last->part, last->parts, {}, 0});
  }
  for (auto manifest = chain.rbegin();
       manifest != chain.rend() && !open.empty(); ++manifest) {
    const std::vector<const ManifestTable*> entries =
        (*manifest)->PartsOf(name);
    std::vector<size_t> still_open;
    for (const size_t part : open) {
      LODESTAR_RETURN_IF_ERROR(CheckFile(**manifest, *entries[part],
                                         &(*parts)[part].files.emplace_back()));
      (*parts)[part].bytes += entries[part]->bytes;
      if (!entries[part]->whole) still_open.push_back(part);
    }
    open = std::move(still_open);
  }
  for (PartFiles& part : *parts) {
    std::reverse(part.files.begin(), part.files.end());
  }
  return Status();
}

Status SnapshotFolder::CheckFile(const Manifest& manifest,
                                 const ManifestFile& entry,
                                 ListedFile* file) const {
  const std::string path = FilePath(manifest.id.version, entry.file);
  *file = {path, {entry.crc32c, entry.rows, entry.removed}};
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) {
    const Status status = FileError(path, "inspect", errno);
    return status.code() == StatusCode::kNotFound
               ? DataLoss(path, ": is missing")
               : status;
  }
  if (found.st_size != entry.bytes) {
    return DataLoss(path, ": must have ", entry.bytes, " bytes, got ",
                    found.st_size);
  }
  std::unique_ptr<SnapshotFileReader> reader;
  LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(path, &reader));
  if (reader->label() == entry.label) return Status();
  return DataLoss(path,
                  ": is another file: its label is not the one of its "
                  "manifest");
}

Status SnapshotFolder::ReadFile(const Manifest& manifest,
                                const ManifestFile& file,
                                std::string* content) const {
  const std::string path = FilePath(manifest.id.version, file.file);
  const Status status = ReadRegular(path, file.bytes, file.bytes, content);
  if (status.code() == StatusCode::kNotFound) {
    return DataLoss(path, ": is missing");
  }
  LODESTAR_RETURN_IF_ERROR(status);
  const int64_t size = static_cast<int64_t>(content->size());
  if (size == file.bytes && Crc32c(content->data(), size) == file.crc32c) {
    return Status();
  }
  return DataLoss(path, ": its ", size,
                  " bytes do not have the size and checksum of its manifest");
}

}  // namespace lodestar
