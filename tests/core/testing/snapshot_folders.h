// Makes snapshot folders of one table `t` of dim 2.

#ifndef LODESTAR_TESTS_CORE_TESTING_SNAPSHOT_FOLDERS_H_
#define LODESTAR_TESTS_CORE_TESTING_SNAPSHOT_FOLDERS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/snapshot/manifest.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {

// A vector to write. `code` is the NPY code of its dtype.
struct MadeArray {
  MadeArray(const std::vector<float>& values)
      : MadeArray("float32", "<f4", values) {}
  MadeArray(const std::vector<int64_t>& values)
      : MadeArray("int64", "<i8", values) {}
  MadeArray(const std::string& text)
      : MadeArray("uint8", "|u1", std::vector<char>(text.begin(), text.end())) {
  }
  template <typename T>
  MadeArray(std::string dtype_name, std::string dtype_code,
            const std::vector<T>& values)
      : dtype(std::move(dtype_name)),
        code(std::move(dtype_code)),
        count(static_cast<int64_t>(values.size())),
        bytes(reinterpret_cast<const char*>(values.data()),
              values.size() * sizeof(T)) {}

  std::string dtype;
  std::string code;
  int64_t count;
  std::string bytes;
};

// Returns the NPY bytes of a vector.
inline std::string NpyOf(const MadeArray& array) {
  std::string header =
      StrCat("{'descr': '", array.code,
             "', 'fortran_order': ", "False, 'shape': (", array.count, ",), }");
  header.resize(118, ' ');
  std::string npy("\x93NUMPY\x01\x00\x76\x00", 10);
  return npy + header + array.bytes;
}

// Returns a manifest of this line of JSON.
inline std::string WithChecksum(const std::string& json) {
  const uint32_t crc = Crc32c(json.data(), static_cast<int64_t>(json.size()));
  return StrCat(json, "\n", HexOf(crc), "\n");
}

// A version to write. Setters return the object.
struct MadeVersion {
  explicit MadeVersion(int64_t number) : id(IdOf(number, 'a')) {}

  // An incremental version, on the version of this number and history.
  MadeVersion& Parent(int64_t number, char history = 'a') {
    parent = IdOf(number, history);
    whole = false;
    return *this;
  }
  MadeVersion& SameAs(int64_t number) {
    same_as = IdOf(number, 'a');
    return *this;
  }
  // id -> both of its values
  MadeVersion& Rows(std::map<int64_t, float> values) {
    rows = std::move(values);
    return *this;
  }
  MadeVersion& Removed(std::vector<int64_t> ids) {
    removed = std::move(ids);
    return *this;
  }
  // Path -> values of a weight that is a vector.
  MadeVersion& Weights(
      const std::map<std::string, std::vector<float>>& values) {
    for (const auto& [path, vector] : values) Array("weight/" + path, vector);
    return *this;
  }
  MadeVersion& Array(const std::string& name, const MadeArray& array) {
    arrays.insert_or_assign(name, array);
    return *this;
  }
  MadeVersion& Schema(std::string yaml) {
    schema = std::move(yaml);
    return *this;
  }
  MadeVersion& Dim(int64_t number) {
    dim = number;
    return *this;
  }
  // Versions of different histories have different marks.
  MadeVersion& History(char letter) {
    id = IdOf(id.version, letter);
    return *this;
  }
  // All rows, also in an incremental version.
  MadeVersion& Whole() {
    whole = true;
    return *this;
  }

  VersionId id;
  VersionId parent;
  VersionId same_as;
  std::map<int64_t, float> rows;
  std::vector<int64_t> removed;
  std::map<std::string, MadeArray> arrays;
  std::string schema;
  int64_t dim = 2;
  bool whole = true;

 private:
  static VersionId IdOf(int64_t version, char history) {
    const std::string digits = StrCat(version);
    return {version, std::string(32 - digits.size(), history) + digits};
  }
};

class FolderMaker {
 public:
  FolderMaker() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ =
        StrCat(testing::TempDir(), test->test_suite_name(), ".", test->name());
    std::filesystem::remove_all(path_);
  }

  const std::string& path() const { return path_; }
  std::string VersionPath(int64_t version) const {
    const std::string digits = StrCat(version);
    return StrCat(path_, "/", std::string(8 - digits.size(), '0'), digits);
  }
  std::string FilePath(int64_t version, const std::string& file) const {
    return StrCat(VersionPath(version), "/", file);
  }

  // Replaces the version, if it exists.
  void Add(const MadeVersion& made) const {
    std::filesystem::remove_all(VersionPath(made.id.version));
    std::filesystem::create_directories(VersionPath(made.id.version));
    const std::string table = AddTable(made);
    std::string files;
    std::string blobs;
    AddArrays(made, &files, &blobs);
    if (!made.schema.empty()) {
      std::ofstream(FilePath(made.id.version, "schema.yaml")) << made.schema;
      if (!files.empty()) files += ", ";
      files += File("schema.yaml", static_cast<int64_t>(made.schema.size()),
                    Crc32c(made.schema.data(), made.schema.size())) +
               "}";
    }
    const auto or_null = [](const VersionId& id) {
      if (id.version == 0) return std::string("null");
      return StrCat("{\"version\": ", id.version, ", \"mark\": \"", id.mark,
                    "\"}");
    };
    WriteManifest(
        made.id.version,
        StrCat("{\"format\": 4, \"version\": ", made.id.version,
               ", \"parent\": ", or_null(made.parent),
               ", \"same_as\": ", or_null(made.same_as), ", \"kind\": \"",
               made.parent.version == 0 ? "full" : "delta", "\", \"step\": ",
               10 * made.id.version, ", \"time\": \"now\", \"tables\": [",
               table, "], \"blobs\": [", blobs, "], \"files\": [", files,
               "], \"metadata\": {\"x\": ", "1e400}, \"mark\": \"",
               made.id.mark, "\", \"lodestar\": \"1\"}"));
  }

  void WriteManifest(int64_t version, const std::string& json) const {
    // A new file, because a change must change more than its time.
    std::filesystem::remove(FilePath(version, "MANIFEST"));
    std::ofstream(FilePath(version, "MANIFEST")) << WithChecksum(json);
  }

  // Replaces the first `text` of a manifest.
  void ChangeManifest(int64_t version, const std::string& text,
                      const std::string& other) const {
    std::ifstream file(FilePath(version, "MANIFEST"));
    std::string json;
    std::getline(file, json);
    const size_t at = json.find(text);
    ASSERT_NE(at, std::string::npos) << json;
    WriteManifest(version, json.replace(at, text.size(), other));
  }

 private:
  static std::string File(const std::string& name, int64_t bytes,
                          uint32_t crc) {
    return StrCat("{\"file\": \"", name, "\", \"bytes\": ", bytes,
                  ", \"crc32c\": ", crc);
  }

  std::string AddTable(const MadeVersion& made) const {
    SnapshotTable table;
    table.dim = static_cast<int>(made.dim);
    table.whole = made.whole;
    table.step = made.id.version;
    std::string records;
    for (const auto& [id, value] : made.rows) {
      const SnapshotRowLayout layout = table.layout();
      std::string record(layout.bytes(), '\0');
      const SnapshotRowHead head = {id, 0, 1, 0};
      std::memcpy(record.data(), &head, sizeof(head));
      const std::vector<float> values(made.dim, value);
      std::memcpy(record.data() + layout.values(), values.data(),
                  layout.value_bytes());
      records += record;
    }
    std::unique_ptr<SnapshotFileWriter> file;
    Must(SnapshotFileWriter::Create(FilePath(made.id.version, "table-00000"),
                                    MakeLabel(made.id, "t"), &file));
    const std::string head = EncodeTable(table);
    Must(file->Append(BlockKind::kTable, 1, head.data(), head.size()));
    if (!made.removed.empty()) {
      Must(file->Append(BlockKind::kRemoved, made.removed.size(),
                        made.removed.data(), made.removed.size() * 8));
    }
    if (!made.rows.empty()) {
      Must(file->Append(BlockKind::kRows, made.rows.size(), records.data(),
                        records.size()));
    }
    Must(file->Finish());
    return StrCat(
        File("table-00000", file->bytes(), file->crc()),
        ", \"name\": \"t\", \"whole\": ", made.whole ? "true" : "false",
        ", \"dim\": ", made.dim,
        ", \"dtype\": \"float32\", \"optimizer\": \"\", \"slot_names\": [], "
        "\"rows\": ",
        made.rows.size(), ", \"removed\": ", made.removed.size(),
        ", \"part\": 0, \"parts\": 1}");
  }

  void AddArrays(const MadeVersion& made, std::string* files,
                 std::string* blobs) const {
    if (made.arrays.empty()) return;
    std::string payload;
    for (const auto& [name, array] : made.arrays) {
      const std::string npy = NpyOf(array);
      if (!blobs->empty()) *blobs += ", ";
      *blobs += StrCat("{\"name\": \"", name, "\", \"file\": \"blobs\", ",
                       "\"offset\": ", payload.size(),
                       ", \"bytes\": ", npy.size(), ", \"dtype\": \"",
                       array.dtype, "\", \"shape\": [", array.count, "]}");
      payload += npy;
    }
    std::unique_ptr<SnapshotFileWriter> file;
    Must(SnapshotFileWriter::Create(FilePath(made.id.version, "blobs"),
                                    MakeLabel(made.id, "blobs"), &file));
    Must(file->Append(BlockKind::kBlob, payload.size(), payload.data(),
                      payload.size()));
    Must(file->Finish());
    *files = File("blobs", file->bytes(), file->crc()) + "}";
  }

  static void Must(const Status& status) {
    EXPECT_TRUE(status.ok()) << status.message();
  }

  std::string path_;
};

// Flips a byte in the middle of a file.
inline void FlipByte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto middle = static_cast<int64_t>(file.tellg()) / 2;
  file.seekg(middle);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(middle);
  file.put(byte);
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_SNAPSHOT_FOLDERS_H_
