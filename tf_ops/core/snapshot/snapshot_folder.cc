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
constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;
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

// Calls fn(name) for each entry of a folder. A missing folder has none.
template <typename Fn>
Status ForEachEntry(const std::string& path, const Fn& fn) {
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) {
    return errno == ENOENT ? Status() : FileError(path, "open", errno);
  }
  while (const dirent* entry = readdir(folder)) fn(entry->d_name);
  closedir(folder);
  return Status();
}

// Reads a regular file without following links or blocking.
Status ReadRegular(const std::string& path, int64_t limit,
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
    content->resize(found.st_size);
    size_t done = 0;
    while (done < content->size()) {
      const ssize_t got =
          pread(file, content->data() + done, content->size() - done, done);
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
  LODESTAR_RETURN_IF_ERROR(ForEachEntry(path_, [&](std::string_view name) {
    const int64_t version = VersionOf(name);
    struct stat found = {};
    if (version > 0 &&
        lstat(FilePath(version, kManifest).c_str(), &found) == 0) {
      versions->push_back(version);
    }
  }));
  std::sort(versions->begin(), versions->end());
  return Status();
}

std::string SnapshotFolder::StampOf(int64_t version) const {
  std::vector<std::string> files;
  const Status status =
      ForEachEntry(VersionPath(version), [&](std::string_view name) {
        struct stat found = {};
        if (lstat(FilePath(version, name).c_str(), &found) != 0) return;
        // The folder's own times may change without a change of its files.
        if (S_ISDIR(found.st_mode)) return;
        files.push_back(StrCat(name, " ", found.st_ino, " ", found.st_size, " ",
                               found.st_mtim.tv_sec, ".",
                               found.st_mtim.tv_nsec));
      });
  std::sort(files.begin(), files.end());
  return StrCat(version, ": ", Join(files), status.message(), "\n");
}

Status SnapshotFolder::ReadManifest(int64_t version, Manifest* manifest) const {
  const std::string path = FilePath(version, kManifest);
  std::string content;
  LODESTAR_RETURN_IF_ERROR(ReadRegular(path, kMaxManifestBytes, &content));
  LODESTAR_RETURN_IF_ERROR(ParseManifest(content, path, manifest));
  if (manifest->version == version) return Status();
  return DataLoss(path, ": `version` must be ", version,
                  ", as in the folder's name, got ", manifest->version);
}

Status SnapshotFolder::ReadChain(int64_t version,
                                 std::vector<Manifest>* chain) const {
  chain->assign(1, Manifest());
  LODESTAR_RETURN_IF_ERROR(ReadManifest(version, &chain->back()));
  while (chain->back().parent != 0) {
    const Manifest& child = chain->back();
    const std::string path = FilePath(child.version, kManifest);
    Manifest parent;
    const Status status = ReadManifest(child.parent, &parent);
    if (status.code() == StatusCode::kNotFound) {
      return DataLoss(path, ": is a delta on version ", child.parent,
                      ", which is missing");
    }
    LODESTAR_RETURN_IF_ERROR(status);
    if (parent.root != child.root) {
      return DataLoss(path, ": is a delta on version ", child.parent,
                      " of another folder");
    }
    LODESTAR_RETURN_IF_ERROR(CheckSameTables(child, parent));
    chain->push_back(std::move(parent));
  }
  std::reverse(chain->begin(), chain->end());
  return Status();
}

Status SnapshotFolder::CheckSameTables(const Manifest& child,
                                       const Manifest& parent) const {
  for (const ManifestTable& table : child.tables) {
    if (table.whole) continue;
    const std::vector<const ManifestTable*> parts = parent.PartsOf(table.name);
    const std::string own = TextOf(&table);
    const std::string other = TextOf(parts.empty() ? nullptr : parts[0]);
    if (own != other) {
      return DataLoss(FilePath(child.version, kManifest),
                      ": the changes of the table '", table.name, "' have ",
                      own, ", but in version ", parent.version, " it has ",
                      other);
    }
  }
  return Status();
}

Status SnapshotFolder::TableFiles(const std::vector<Manifest>& chain,
                                  std::string_view name,
                                  std::vector<PartFiles>* parts) const {
  parts->clear();
  for (const ManifestTable* last : chain.back().PartsOf(name)) {
    PartFiles& files = parts->emplace_back();
    files.part = last->part;
    files.parts = last->parts;
    for (auto manifest = chain.rbegin(); manifest != chain.rend(); ++manifest) {
      const ManifestTable& entry = *manifest->PartsOf(name)[last->part];
      LODESTAR_RETURN_IF_ERROR(
          CheckFile(*manifest, entry, &files.paths.emplace_back()));
      if (entry.whole) break;
    }
    std::reverse(files.paths.begin(), files.paths.end());
  }
  return Status();
}

Status SnapshotFolder::CheckFile(const Manifest& manifest,
                                 const ManifestTable& table,
                                 std::string* path) const {
  *path = FilePath(manifest.version, table.file);
  return CheckSizeAndLabel(*path, table.bytes, manifest.LabelOf(table));
}

Status SnapshotFolder::CheckFile(const Manifest& manifest,
                                 const ManifestFile& blobs,
                                 std::string* path) const {
  *path = FilePath(manifest.version, blobs.file);
  return CheckSizeAndLabel(*path, blobs.bytes, manifest.LabelOf(blobs));
}

Status SnapshotFolder::CheckSizeAndLabel(const std::string& path, int64_t bytes,
                                         const std::string& label) const {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) {
    const Status status = FileError(path, "inspect", errno);
    return status.code() == StatusCode::kNotFound
               ? DataLoss(path, ": is missing")
               : status;
  }
  if (found.st_size != bytes) {
    return DataLoss(path, ": must have ", bytes, " bytes, got ", found.st_size);
  }
  if (label.empty()) return Status();
  std::unique_ptr<SnapshotFileReader> file;
  LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(path, &file));
  SnapshotFileReader::Block block;
  LODESTAR_RETURN_IF_ERROR(
      file->ReadBlock(SnapshotFileReader::kFirstBlock, &block));
  if (block.kind == BlockKind::kLabel &&
      std::string_view(block.payload.data(), block.payload.size()) == label) {
    return Status();
  }
  return DataLoss(path,
                  ": is another file: its label is not the one of its "
                  "manifest");
}

Status SnapshotFolder::ReadFile(const Manifest& manifest,
                                const ManifestFile& file,
                                std::string* content) const {
  const std::string path = FilePath(manifest.version, file.file);
  const Status status = ReadRegular(path, file.bytes, content);
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
