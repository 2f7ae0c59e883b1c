#include "tf_ops/core/snapshot/manifest.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/testing/snapshot_folders.h"

namespace lodestar {
namespace {

const std::string kOther(32, 'a');
const std::string kMark = "00112233445566778899aabbccddeeff";

std::string IdJson(int version) {
  return StrCat("{\"version\": ", version, ", \"mark\": \"", kOther, "\"}");
}

std::string TableJson(const std::string& more = "") {
  return "{\"file\": \"table-0\", \"bytes\": 8, \"crc32c\": 9, \"name\": "
         "\"t\", \"whole\": true, \"dim\": 4, \"dtype\": \"float32\", "
         "\"optimizer\": \"\", \"rows\": 7, \"removed\": 1, \"part\": 0, "
         "\"parts\": 1" +
         more + "}";
}

// Returns a manifest with `value` in place of a field.
std::string Json(const std::string& field = "", const std::string& value = "") {
  std::vector<std::pair<std::string, std::string>> fields = {
      {"format", "4"},
      {"version", "3"},
      {"parent", "null"},
      {"same_as", IdJson(2)},
      {"kind", "\"full\""},
      {"step", "-5"},
      {"time", "\"2026\""},
      {"tables", "[" + TableJson() + "]"},
      {"blobs",
       "[{\"name\": \"weight/a\", \"file\": \"blobs\", \"offset\": 0, "
       "\"bytes\": 1, \"dtype\": \"float32\", \"shape\": [2, 3]}]"},
      {"files", "[{\"file\": \"blobs\", \"bytes\": 1, \"crc32c\": 2}]"},
      {"mark", "\"" + kMark + "\""},
      {"unknown", "[{}]"},
  };
  std::string json = "{";
  for (const auto& [name, text] : fields) {
    const std::string& found = name == field ? value : text;
    if (found.empty()) continue;
    if (json.size() > 1) json += ", ";
    json += "\"" + name + "\": " + found;
  }
  return json + "}";
}

Status Read(const std::string& content, Manifest* manifest) {
  return ParseManifest(content, "PATH", manifest);
}

TEST(ManifestTest, ReadsAllFields) {
  Manifest found;
  const Status status = Read(WithChecksum(Json()), &found);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(found.id, (VersionId{3, kMark}));
  EXPECT_EQ(found.parent, VersionId());
  EXPECT_EQ(found.same_as, (VersionId{2, kOther}));
  EXPECT_TRUE(found.Equals({3, kMark}));
  EXPECT_TRUE(found.Equals({2, kOther}));
  EXPECT_FALSE(found.Equals({3, kOther}));
  EXPECT_EQ(found.step, -5);
  EXPECT_EQ(found.time, "2026");
  ASSERT_EQ(found.PartsOf("t").size(), 1);
  EXPECT_TRUE(found.PartsOf("u").empty());
  const ManifestTable& table = *found.PartsOf("t")[0];
  EXPECT_EQ(table.file, "table-0");
  EXPECT_EQ(table.bytes, 8);
  EXPECT_EQ(table.crc32c, 9);
  EXPECT_TRUE(table.whole);
  EXPECT_EQ(table.dim, 4);
  EXPECT_EQ(table.dtype, "float32");
  EXPECT_EQ(table.rows, 7);
  EXPECT_EQ(table.removed, 1);
  EXPECT_EQ(table.parts, 1);
  ASSERT_EQ(found.blobs.size(), 1);
  EXPECT_EQ(found.blobs[0].name, "weight/a");
  EXPECT_EQ(found.blobs[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(found.FindFile("blobs")->crc32c, 2);
  EXPECT_EQ(found.FindFile("other"), nullptr);
}

TEST(ManifestTest, LabelsAreThoseOfTheWriter) {
  Manifest manifest;
  ASSERT_TRUE(Read(WithChecksum(Json()), &manifest).ok());
  const std::string label = manifest.LabelOf(manifest.tables[0]);
  ASSERT_EQ(label.size(), 32);
  EXPECT_EQ(label.substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(static_cast<unsigned char>(label[8 + i]), 17 * i);
  }
  EXPECT_EQ(label.substr(24), std::string("\x01\0\0\0t\0\0\0", 8));
  EXPECT_EQ(manifest.LabelOf(manifest.files[0]).substr(24),
            std::string("\x05\0\0\0blobs\0\0\0", 12));
  ManifestTable part = manifest.tables[0];
  part.part = 1;
  part.parts = 3;
  EXPECT_EQ(manifest.LabelOf(part).substr(32),
            std::string("\x01\0\0\0\x03\0\0\0", 8));
}

std::string ManyParts(int tables, int parts) {
  std::string json = "[";
  for (int t = 0; t < tables; ++t) {
    for (int part = 0; part < parts; ++part) {
      if (json.size() > 1) json += ", ";
      json += StrCat("{\"file\": \"table-", t, "-part-", part,
                     "\", \"bytes\": 123456, \"crc32c\": 12345678, "
                     "\"name\": \"table_",
                     t,
                     "\", \"whole\": true, \"dim\": 16, \"dtype\": "
                     "\"float32\", \"optimizer\": \"adagrad\", "
                     "\"slot_names\": [\"accumulator\"], \"rows\": 1000, "
                     "\"removed\": 0, \"part\": ",
                     part, ", \"parts\": ", parts, "}");
    }
  }
  return json + "]";
}

// Quadratic in the number of files, it took more than ten seconds.
TEST(ManifestTest, TimeIsLinearInTheNumberOfParts) {
  const std::string content = WithChecksum(Json("tables", ManyParts(26, 1024)));
  const auto began = std::chrono::steady_clock::now();
  Manifest manifest;
  const Status status = Read(content, &manifest);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(manifest.PartsOf("table_25").size(), 1024);
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - began;
  RecordProperty("milliseconds", static_cast<int>(1000 * seconds.count()));
  // Leaves room for sanitizers.
  EXPECT_LT(seconds.count(), 3);
}

TEST(ManifestTest, RefusesInvalidFields) {
  const auto expect = [](const std::string& field, const std::string& value,
                         const std::string& message) {
    Manifest manifest;
    const Status status = Read(WithChecksum(Json(field, value)), &manifest);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << field << value;
    EXPECT_EQ(status.message().rfind("PATH: ", 0), 0) << status.message();
    EXPECT_NE(status.message().find(message), std::string::npos)
        << field << value << ": " << status.message();
  };
  for (const char* field : {"format", "version", "parent", "same_as", "kind",
                            "step", "time", "tables", "mark"}) {
    expect(field, "", StrCat("has no `", field, "`"));
  }
  expect("mark", "\"aa\"", "`mark` must be 32 hex digits");
  expect("parent", "2", "`parent` must be an object");
  expect("parent", "{\"version\": 2}", "has no `mark`");
  expect("version", "0", "`version` must be an integer in [1, ");
  expect("version", "1.0", "`version` must be an integer");
  expect("parent", IdJson(3), "must be versions before 3");
  expect("same_as", IdJson(4), "must be versions before 3");
  expect("parent", IdJson(1), "`kind` and `parent` contradict each other");
  expect("kind", "\"half\"", "`kind` must be 'full' or 'delta'");
  expect("tables", "{}", "`tables` must be a list");
  expect("tables", "[1]", "a table must be an object");
  expect("tables", "[" + TableJson() + ", " + TableJson() + "]",
         "the table 't' must have the 1 parts of its first file once");
  expect("tables", "[" + TableJson(", \"dim\": 1") + "]", "a second time");
  expect("files", "[]", "which is not in `files`");
  expect("files", "[{\"file\": \"../x\", \"bytes\": 1, \"crc32c\": 2}]",
         "`file` must be the plain name of a file");
  expect("files", "[{\"file\": \"MANIFEST\", \"bytes\": 1, \"crc32c\": 2}]",
         "`file` must be the plain name of a file");
}

TEST(ManifestTest, PartsMustBeComplete) {
  const auto table = [](const std::string& file, int part, int parts, int dim) {
    return StrCat("{\"file\": \"", file,
                  "\", \"bytes\": 8, \"crc32c\": 9, \"name\": \"t\", "
                  "\"whole\": true, \"dim\": ",
                  dim,
                  ", \"dtype\": \"float32\", \"rows\": 1, \"removed\": 0, "
                  "\"part\": ",
                  part, ", \"parts\": ", parts, "}");
  };
  const auto read = [&](const std::string& tables, Manifest* manifest) {
    return Read(WithChecksum(Json("tables", "[" + tables + "]")), manifest);
  };
  Manifest manifest;
  ASSERT_TRUE(
      read(table("a", 0, 2, 4) + "," + table("b", 1, 2, 4), &manifest).ok());
  EXPECT_EQ(manifest.PartsOf("t")[1]->file, "b");
  EXPECT_FALSE(read(table("a", 0, 2, 4), &manifest).ok());
  EXPECT_FALSE(
      read(table("a", 0, 2, 4) + "," + table("b", 0, 2, 4), &manifest).ok());
  EXPECT_FALSE(
      read(table("a", 0, 2, 4) + "," + table("b", 1, 2, 5), &manifest).ok());
}

TEST(ManifestTest, RefusesADamagedFile) {
  const std::string content = WithChecksum(Json());
  Manifest manifest;
  for (size_t size = 0; size < content.size(); ++size) {
    EXPECT_EQ(Read(content.substr(0, size), &manifest).code(),
              StatusCode::kDataLoss);
  }
  for (size_t at = 0; at < content.size(); ++at) {
    std::string damaged = content;
    damaged[at] ^= 1;
    EXPECT_EQ(Read(damaged, &manifest).code(), StatusCode::kDataLoss) << at;
  }
  EXPECT_EQ(Read(content + "x", &manifest).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Read(WithChecksum(Json("format", "5")), &manifest).code(),
            StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace lodestar
