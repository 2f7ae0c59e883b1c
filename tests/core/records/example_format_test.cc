#include "tf_ops/core/records/example_format.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

std::string Field(char number, const std::string& bytes) {
  std::string field(1, static_cast<char>(number << 3 | 2));
  return field + static_cast<char>(bytes.size()) + bytes;
}

std::string Entry(const std::string& name, const std::string& feature) {
  return Field(1, Field(1, name) + Field(2, feature));
}

std::string Int64s(const std::string& packed) {
  return Field(kInt64List, Field(1, packed));
}

std::string Bytes(const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += Field(1, value);
  return Field(kBytesList, list);
}

std::string Example(const std::string& entries) { return Field(1, entries); }

std::string Steps(const std::vector<std::string>& features) {
  std::string list;
  for (const std::string& feature : features) list += Field(1, feature);
  return list;
}

const std::string kExample =
    Example(Entry("id", Int64s("\x05")) + Entry("city", Bytes({"Oslo"})));

template <typename T>
std::vector<T> ValuesOf(const FeatureColumn& column) {
  std::vector<T> values;
  for (size_t i = 0; i < column.data().size(); i += sizeof(T)) {
    std::memcpy(&values.emplace_back(), &column.data()[i], sizeof(T));
  }
  return values;
}

using Splits = std::vector<int64_t>;

// Parses records to one column of int64 "id".
struct Ids {
  explicit Ids(const std::vector<std::string>& records,
               FeatureKind kind = kNoValues, bool is_nested = false) {
    ExampleParser parser;
    parser.AddColumn("id", kind, is_nested);
    for (const std::string& record : records) {
      messages.push_back(parser.AddRecord(record).message());
    }
    const FeatureColumn& column = parser.columns()[0];
    values = ValuesOf<int64_t>(column);
    rows = column.row_splits();
    lists = column.list_splits();
  }

  std::vector<std::string> messages;
  std::vector<int64_t> values;
  Splits rows;
  Splits lists;
};

std::string ErrorOf(const std::string& record) {
  return Ids({record}).messages[0];
}

bool IsExample(const std::string& record) {
  return ErrorOf(record).find("is not a tf.Example") == std::string::npos;
}

TEST(ExampleFormatTest, AcceptsExamples) {
  EXPECT_EQ(ErrorOf(""), "");
  EXPECT_EQ(ErrorOf(Example("")), "");
  // The last of equal names counts, as in the maps of protocol buffers.
  const Ids twice({kExample + Example(Entry("id", Int64s("\x06")))});
  EXPECT_EQ(twice.values, std::vector<int64_t>{6});
  // A map entry has its fields in any order; both are optional.
  const std::string turned =
      Field(1, Field(2, Int64s("\x07")) + Field(1, "id"));
  const Ids ids({Example(turned + Field(1, "")), Example(Entry("id", ""))});
  EXPECT_EQ(ids.values, std::vector<int64_t>{7});
  EXPECT_EQ(ids.rows, (Splits{0, 1, 1}));
  // Unknown fields are skipped: bytes, a varint, 8 and 4 bytes.
  EXPECT_TRUE(IsExample(kExample + Field(7, "\xff")));
  EXPECT_TRUE(IsExample(std::string("\x38\xff\x01", 3) + kExample));
  EXPECT_TRUE(IsExample(std::string("\x39", 1) + std::string(8, '\xff')));
  EXPECT_TRUE(IsExample(std::string("\x3d", 1) + std::string(4, '\xff')));
}

TEST(ExampleFormatTest, RejectsOtherBytes) {
  for (const std::string bytes :
       {"\xff\xff\xff", "\n\x05", "text", "\x03\x04", "\x08"}) {
    EXPECT_FALSE(IsExample(bytes)) << bytes;
  }
  EXPECT_FALSE(IsExample(std::string(1, '\0')));
  EXPECT_FALSE(IsExample(std::string(11, '\xff')));
  EXPECT_FALSE(IsExample(std::string("\x39", 1) + std::string(7, '\1')));
  // Damage in features, a map entry, and its key.
  EXPECT_FALSE(IsExample(Field(1, "\xff\xff")));
  EXPECT_FALSE(IsExample(Field(1, Field(1, "\xff\xff"))));
  EXPECT_FALSE(IsExample(Field(1, Field(1, Field(3, "id")))));
  // Damage in a feature.
  for (const std::string& feature :
       {std::string("\xff"), Field(3, "\xff"), Field(3, Field(1, "\xff")),
        Field(2, Field(1, "abc")), Field(1, "\x08\x01"),
        Int64s("\x05") + Int64s("\x05")}) {
    EXPECT_EQ(ErrorOf(Example(Entry("id", feature))),
              "column 'id': its bytes are not those of a protocol buffer");
  }
}

TEST(ExampleFormatTest, NeverReadsBeyondTheEnd) {
  for (size_t size = 1; size < kExample.size(); ++size) {
    // A buffer of the exact size, so that a sanitizer detects reads beyond it.
    const std::vector<char> bytes(kExample.begin(), kExample.begin() + size);
    ExampleParser parser;
    parser.AddColumn("id", kNoValues, false);
    EXPECT_FALSE(parser.AddRecord({bytes.data(), bytes.size()}).ok()) << size;
  }
}

TEST(ExampleFormatTest, ReadsPackedAndSingleNumbers) {
  const std::string largest(9, '\xff');
  const Ids ids({
      Example(Entry("id", Int64s("\x01\xac\x02" + largest + "\x01"))),
      kExample,
      Example(""),
      // Not packed, then both.
      Example(Entry("id", Field(3, std::string("\x08\x03\x08\x04", 4) +
                                       Field(1, "\x05")))),
  });
  EXPECT_EQ(ids.messages, std::vector<std::string>(4));
  EXPECT_EQ(ids.values, (std::vector<int64_t>{1, 300, -1, 5, 3, 4, 5}));
  EXPECT_EQ(ids.rows, (Splits{0, 3, 4, 4, 7}));

  ExampleParser parser;
  parser.AddColumn("x", kNoValues, false);
  const std::string half("\0\0\0\x3f", 4);
  const std::string one("\0\0\x80\x3f", 4);
  EXPECT_TRUE(parser
                  .AddRecord(Example(Entry(
                      "x", Field(2, Field(1, half + one) + "\x0d" + half))))
                  .ok());
  EXPECT_EQ(parser.columns()[0].kind(), kFloatList);
  EXPECT_EQ(ValuesOf<float>(parser.columns()[0]),
            (std::vector<float>{0.5f, 1, 0.5f}));
}

TEST(ExampleFormatTest, ReadsBytes) {
  ExampleParser parser;
  parser.AddColumn("city", kNoValues, false);
  EXPECT_TRUE(parser.AddRecord(kExample).ok());
  EXPECT_TRUE(
      parser.AddRecord(Example(Entry("city", Bytes({"", "Rom"})))).ok());
  parser.AddMissing();
  const FeatureColumn& column = parser.columns()[0];
  EXPECT_EQ(column.data(), "OsloRom");
  EXPECT_EQ(column.value_splits(), (Splits{0, 4, 4, 7}));
  EXPECT_EQ(column.row_splits(), (Splits{0, 1, 3, 3}));
}

TEST(ExampleFormatTest, RejectsAnotherKind) {
  const std::string text = Example(Entry("id", Bytes({"7"})));
  const Ids ids({Example(Entry("id", Bytes({}))), kExample, text, kExample});
  EXPECT_EQ(ids.messages[0] + ids.messages[1] + ids.messages[3], "");
  EXPECT_EQ(ids.messages[2],
            "column 'id': found a bytes_list, expected an int64_list as in the "
            "first records");
  EXPECT_EQ(ids.rows, (Splits{0, 0, 1, 1, 2}));
  EXPECT_NE(Ids({kExample}, kFloatList).messages[0], "");
  // A rejected first value does not determine the kind.
  const Ids after({Example(Entry("id", Field(2, Field(1, "abc")))), kExample});
  EXPECT_EQ(after.messages[1], "");
}

TEST(ExampleFormatTest, ReadsFeatureLists) {
  const std::vector<std::string> records = {
      Field(2, Entry("id", Steps({Int64s("\x01"), Int64s("\x02")}))),
      Field(2, Entry("id", Steps({Int64s("\x03\x04"), Int64s("")}))),
      Field(2, Entry("id", "")),
  };
  const Ids flat(records);
  EXPECT_EQ(flat.messages[0] + flat.messages[2], "");
  EXPECT_EQ(flat.messages[1],
            "column 'id': found 2 values in step 0 of a feature list, expected "
            "1, unless the column has `depth` 2");
  EXPECT_EQ(flat.values, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(flat.rows, (Splits{0, 2, 2, 2}));

  const Ids nested(records, kInt64List, true);
  EXPECT_EQ(nested.messages, std::vector<std::string>(3));
  EXPECT_EQ(nested.values, (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(nested.lists, (Splits{0, 1, 2, 4, 4}));
  EXPECT_EQ(nested.rows, (Splits{0, 2, 4, 4}));

  EXPECT_NE(Ids({kExample}, kInt64List, true).messages[0], "");
  EXPECT_EQ(ErrorOf(kExample + records[0]),
            "column 'id': found both a feature and a feature list");
}

TEST(ExampleFormatTest, SummarizesFeatures) {
  std::map<std::string, FeatureSummary> features;
  for (const std::string& record :
       {Example(Entry("id", "") + Entry("none", "")), kExample,
        Example(Entry("city", Int64s("\x01\x02"))), std::string("\xff"),
        Field(2, Entry("flat", Steps({Int64s("\x01"), Int64s("\x02")})) +
                     Entry("deep", Steps({Bytes({"a", "b"})})))}) {
    SummarizeExample(record, &features);
  }
  const auto expect = [&](const char* name, FeatureKind kind, int64_t levels) {
    EXPECT_EQ(features[name].kind, kind) << name;
    EXPECT_EQ(features[name].levels, levels) << name;
  };
  EXPECT_EQ(features.size(), 5);
  expect("id", kInt64List, 0);
  expect("none", kNoValues, 0);
  expect("city", kBytesList, 1);
  expect("flat", kInt64List, 1);
  expect("deep", kBytesList, 2);
}

}  // namespace
}  // namespace lodestar
