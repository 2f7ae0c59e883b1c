#include "tf_ops/core/snapshot/manifest.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/core/testing/cpu_time.h"
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
         "\"optimizer\": \"\", \"slot_names\": [\"m\"], \"rows\": 7, "
         "\"removed\": 1, \"part\": 0, "
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
      {"metadata", "{\"a\": [1e400, {}]}"},
      {"lodestar", "\"9.9\""},
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
  const std::string& label = manifest.tables[0].label;
  ASSERT_EQ(label.size(), 32);
  EXPECT_EQ(label.substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(static_cast<unsigned char>(label[8 + i]), 17 * i);
  }
  EXPECT_EQ(label.substr(24), std::string("\x01\0\0\0t\0\0\0", 8));
  EXPECT_EQ(manifest.files[0].label.substr(24),
            std::string("\x05\0\0\0blobs\0\0\0", 12));
  EXPECT_EQ(MakeLabel(manifest.id, "t", 1, 3),
            label + std::string("\x01\0\0\0\x03\0\0\0", 8));
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

TEST(ManifestTest, TimeIsLinearInTheNumberOfParts) {
  const auto seconds = [](int parts) {
    const std::string content =
        WithChecksum(Json("tables", ManyParts(26, parts)));
    return CpuSecondsOf([&] {
      Manifest manifest;
      const Status status = Read(content, &manifest);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(manifest.PartsOf("table_25").size(), parts);
    });
  };
  // Of 16 times the parts, a quadratic reader would take 256 times as long.
  EXPECT_LT(seconds(640), 64 * seconds(40));
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
  for (const char* field :
       {"format", "version", "parent", "same_as", "kind", "step", "time",
        "tables", "blobs", "files", "mark", "metadata", "lodestar"}) {
    expect(field, "", StrCat("has no `", field, "`"));
  }
  expect("format", "0", "`format` must be an integer in [1, ");
  expect("mark", "\"aa\"", "`mark` must be 32 hex digits, got \"aa\"");
  expect("parent", "2", "`parent` must be an object, got 2");
  expect("parent", "{\"version\": 2}", "has no `mark`");
  expect("version", "0", "`version` must be an integer in [1, ");
  expect("version", "3.0", "9223372036854775807], got 3.0");
  expect("version", "9223372036854775808", "got 9223372036854775808");
  expect("parent", IdJson(3), "`parent` must be a version before 3, got 3");
  expect("same_as", IdJson(4), "`same_as` must be a version before 3, got 4");
  expect("parent", IdJson(1), "`kind` is 'full', but `parent` is 1");
  expect("kind", "\"delta\"", "`kind` is 'delta', but `parent` is null");
  expect("kind", "\"half\"", "`kind` must be 'full' or 'delta', got \"half\"");
  expect("time", "5", "`time` must be a string, got 5");
  expect("lodestar", "null", "`lodestar` must be a string, got null");
  expect("metadata", "[]", "`metadata` must be an object, got []");
  expect("metadata", "NaN", "expected a value");
  expect("tables", "{}", "`tables` must be a list, got {}");
  expect("tables", "[1]", "a table must be an object, got 1");
  expect("tables", "[" + TableJson(", \"dim\": 1") + "]", "a second time");
  expect("files", "[]", "which is not in `files`");
  const auto expect_entry = [&](const char* field, std::string entry,
                                const std::string& member,
                                const std::string& value,
                                const std::string& message) {
    const size_t at = entry.find(": ", entry.find("\"" + member + "\"")) + 2;
    size_t end = entry.find_first_of(",}", at);
    if (entry[at] == '[') end = entry.find(']', at) + 1;
    entry.replace(at, end - at, value);
    expect(field, "[" + entry + "]",
           StrCat("`", member, "` must ", message, ", got ", value));
  };
  const auto table = [&](const char* member, const std::string& value,
                         const std::string& message) {
    expect_entry("tables", TableJson(), member, value, message);
  };
  for (const char* name :
       {"\"../x\"", "\"a/b\"", "\"..\"", "\"MANIFEST\"", "\"\"", "3"}) {
    table("file", name, "be the plain name of a file");
  }
  table("bytes", "-1", "be an integer in [0, 9223372036854775807]");
  table("crc32c", "4294967296", "be an integer in [0, 4294967295]");
  table("name", "\"\"", "be a name");
  table("whole", "1", "be true or false");
  table("dim", "0", "be an integer in [1, 65536]");
  table("dim", "65537", "be an integer in [1, 65536]");
  table("dtype", "\"int8\"", "be a dtype of rows");
  table("optimizer", "1", "be a string");
  table("slot_names", "1", "be a list");
  table("rows", "-1", "be an integer in [0, 9223372036854775807]");
  table("removed", "\"2\"", "be an integer in [0, 9223372036854775807]");
  table("part", "-1", "be an integer in [0, 2147483647]");
  table("parts", "0", "be an integer in [1, 2147483647]");
  const std::string blob =
      "{\"name\": \"a\", \"file\": \"blobs\", \"offset\": 0, \"bytes\": 1, "
      "\"dtype\": \"float32\", \"shape\": [2]}";
  expect_entry("blobs", blob, "offset", "-1",
               "be an integer in [0, 9223372036854775807]");
  expect_entry("blobs", blob, "bytes", "0",
               "be an integer in [1, 9223372036854775807]");
  expect_entry("blobs", blob, "shape", "3", "be a list");
  expect("blobs", "[" + blob + ", " + blob + "]",
         "has several entries of the blob 'a'");
  std::string slots = TableJson();
  slots.replace(slots.find("[\"m\"]"), 5, "[3]");
  expect("tables", "[" + slots + "]", "`slot_names` must have strings, got 3");
  std::string shape = blob;
  shape.replace(shape.find("[2]"), 3, "[-3]");
  expect("blobs", "[" + shape + "]", "integers of at least 0, got -3");
  std::string delta = TableJson();
  delta.replace(delta.find("true"), 4, "false");
  expect("tables", "[" + delta + "]", "'full', but the table 't' is not whole");
  std::string other = TableJson();
  other.replace(other.find("table-0"), 7, "blobs");
  expect("tables", "[" + other + "]",
         "has several entries of the file 'blobs'");
}

TEST(ManifestTest, PartsMustBeComplete) {
  using Part = std::tuple<int, int, int>;  // its number, their number, dim
  const auto read = [](const std::vector<Part>& parts, Manifest* manifest) {
    std::string tables;
    for (const auto& [part, count, dim] : parts) {
      std::string table = TableJson();
      table.replace(table.find("\"part\": 0, \"parts\": 1"), 21,
                    StrCat("\"part\": ", part, ", \"parts\": ", count));
      table.replace(table.find("\"dim\": 4"), 8, StrCat("\"dim\": ", dim));
      table.insert(table.find("table-0"), StrCat("f", tables.size()));
      tables += (tables.empty() ? "[" : ", ") + table;
    }
    return Read(WithChecksum(Json("tables", tables + "]")), manifest);
  };
  Manifest manifest;
  const Status status = read({{0, 2, 4}, {1, 2, 4}}, &manifest);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(manifest.PartsOf("t")[1]->part, 1);
  const std::string order = "PATH: the table 't' must have the parts 0 to ";
  const std::pair<std::vector<Part>, std::string> cases[] = {
      {{{0, 2, 4}}, "PATH: the table 't' must have 2 parts, got 1"},
      {{{1, 2, 4}, {0, 2, 4}}, order + "1 of 2 in order, got 1 of 2 after 0"},
      {{{0, 2, 4}, {0, 2, 4}}, order + "1 of 2 in order, got 0 of 2 after 1"},
      {{{0, 2, 4}, {1, 3, 4}}, order + "1 of 2 in order, got 1 of 3 after 1"},
      {{{0, 1, 4}, {0, 1, 4}}, order + "0 of 1 in order, got 0 of 1 after 1"},
      {{{0, 2, 4}, {1, 2, 5}},
       "PATH: the table 't' has parts of dim 4 and dtype float32, and of 5 "},
  };
  for (const auto& [parts, message] : cases) {
    const Status refused = read(parts, &manifest);
    EXPECT_EQ(refused.code(), StatusCode::kDataLoss);
    EXPECT_EQ(refused.message().rfind(message, 0), 0) << refused.message();
  }
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
  const Status later = Read(WithChecksum(Json("format", "5")), &manifest);
  EXPECT_EQ(later.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(later.message(),
            "PATH: has format 5, but this Lodestar reads format 4. Use the "
            "Lodestar that wrote it, '9.9'.");
}

}  // namespace
}  // namespace lodestar
