#include "tf_ops/core/records/raw_format.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/records/record_files.h"

namespace lodestar {
namespace {

using Strings = std::vector<std::string>;
using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;
using Words = std::vector<int32_t>;

// A label, dense values and the keys of as many slots as nnz has entries.
std::vector<ColumnSpec> Specs(int64_t dense, const Ints& nnz) {
  std::vector<ColumnSpec> specs = {{"click", false, 1, 2},
                                   {"I", true, dense, 0}};
  for (size_t s = 0; s < nnz.size(); ++s) {
    specs.push_back({StrCat("C", s + 1), false, -1, 0});
  }
  return specs;
}

RawOptions Options(NumberType label, NumberType dense, KeyType key,
                   const Ints& nnz) {
  RawOptions options;
  options.layout.kinds = {FieldKind::kLabel, FieldKind::kDense};
  options.layout.kinds.resize(2 + nnz.size(), FieldKind::kKeys);
  options.layout.label = label;
  options.layout.dense = dense;
  options.layout.key = key;
  options.layout.nnz = nnz;
  return options;
}

RawOptions IntOptions() {
  return Options(NumberType::kInt, NumberType::kLogOfInt, KeyType::kUint32,
                 {1, 1, 1});
}

TEST(RawFormatTest, WorkedExampleOfIntegers) {
  const RawFormat format(Specs(2, {1, 1, 1}), IntOptions());
  EXPECT_EQ(format.stride(), 24);
  const ReadFile read = ReadRecords(
      format, FromHex("01 00 00 00 00 00 00 00 09 00 00 00 05 00 00 00 "
                      "70 11 01 00 ff ff ff ff"));
  EXPECT_EQ(read.messages, Strings());
  const auto& columns = read.rows.columns();
  EXPECT_EQ(columns[0].ints, (Ints{1}));
  EXPECT_EQ(columns[1].floats, (Floats{0, 2.3025851f}));
  EXPECT_EQ(columns[2].ints, (Ints{5}));
  EXPECT_EQ(columns[3].ints, (Ints{70000}));
  EXPECT_EQ(columns[4].ints, (Ints{4294967295}));
  EXPECT_EQ(columns[4].row_splits, (Ints{0, 1}));
}

TEST(RawFormatTest, LogarithmsUseTheFloat32Sum) {
  const RawFormat format(
      Specs(1, {}),
      Options(NumberType::kInt, NumberType::kLogOfInt, KeyType::kUint32, {}));
  for (const int32_t x : {0, 1, 9, 1023, 1024, 123456, 16777216, INT32_MAX}) {
    const ReadFile read = ReadRecords(format, BytesOf(Words{0, x}));
    EXPECT_EQ(read.rows.columns()[1].floats,
              Floats{std::log(static_cast<float>(x) + 1.0f)});
  }
}

TEST(RawFormatTest, AnIntegerSlotIsNotTheLogarithm) {
  std::vector<ColumnSpec> specs = Specs(2, {1, 1, 1});
  specs[1].is_float = false;
  const ReadFile read = ReadRecords(RawFormat(specs, IntOptions()),
                                    BytesOf(Words{1, -4, 9, 5, 6, 7}));
  EXPECT_EQ(read.messages, Strings());
  EXPECT_EQ(read.rows.columns()[1].ints, (Ints{-4, 9}));
}

TEST(RawFormatTest, ColumnsInAnyOrderAndOnesNotUsed) {
  std::vector<ColumnSpec> specs = {{"C1", false, 1, 10},
                                   {"C2", false, -1, 0},
                                   {"I", true, 1, 0},
                                   {"click", true, 1, 0}};
  specs[1].used = false;
  RawOptions options;
  options.layout.kinds = {FieldKind::kKeys, FieldKind::kKeys, FieldKind::kDense,
                          FieldKind::kLabel};
  options.layout.label = NumberType::kInt;
  options.layout.nnz = {1, 3};
  std::string file;
  for (int32_t i = 0; i < 200; ++i) {
    file += BytesOf(i) + BytesOf(.5f) + BytesOf(Words{i % 10, 7, 7, 7});
  }
  for (const int64_t chunk : {1, 100, 1 << 20}) {
    const ReadFile read = ReadRecords(RawFormat(specs, options), file, chunk);
    EXPECT_EQ(read.messages, Strings());
    ASSERT_EQ(read.rows.num_rows(), 200);
    EXPECT_EQ(read.rows.columns()[0].ints[199], 9);
    EXPECT_TRUE(read.rows.columns()[1].ints.empty());
    EXPECT_EQ(read.rows.columns()[2].floats, Floats(200, .5));
    EXPECT_EQ(read.rows.columns()[3].floats[199], 199);
  }
}

TEST(RawFormatTest, OffsetsAreAddedToCheckedKeys) {
  std::vector<ColumnSpec> specs = Specs(2, {1, 1, 1});
  specs[2].limit = 10;
  specs[3].limit = 20;
  RawOptions options = IntOptions();
  options.layout.key_offsets = {0, 10, 30};
  const RawFormat format(specs, options);
  const ReadFile read = ReadRecords(format, BytesOf(Words{1, 0, 0, 9, 19, 5}));
  EXPECT_EQ(read.messages, Strings());
  EXPECT_EQ(read.rows.columns()[2].ints, (Ints{9}));
  EXPECT_EQ(read.rows.columns()[3].ints, (Ints{29}));
  EXPECT_EQ(read.rows.columns()[4].ints, (Ints{35}));
  EXPECT_EQ(ReadRecords(format, BytesOf(Words{1, 0, 0, 9, 20, 5})).messages,
            Strings{"f: record 0 at byte 0: slot 'C2': value 1 of 1 is 20, "
                    "expected an integer in [0, 20)"});
}

TEST(RawFormatTest, ErrorsDescribePositionAndValue) {
  RawOptions three = IntOptions();
  three.num_samples = 3;
  const std::vector<ColumnSpec> specs = Specs(2, {1, 1, 1});
  const std::string good = BytesOf(Words{1, 0, 9, 5, 6, 7});
  const struct {
    RawOptions options;
    std::string file;
    std::string message;
  } cases[] = {
      {IntOptions(), "", "f: the file has no records"},
      {IntOptions(), good + good + "abc",
       "f: its size is 51 bytes, expected a multiple of the 24 of a sample: "
       "found 3 bytes after record 1 at byte 48; check the layout, the key "
       "type and the slots"},
      {three, good + good,
       "f: its size is 48 bytes, 2 samples of 24, expected 3 samples"},
      {IntOptions(), good + BytesOf(Words{1, 3, -1, 5, 6, 7}),
       "f: record 1 at byte 24: slot 'I': value 2 of 2 is -1, expected 0 or "
       "more, because it is read as log(x + 1)"},
      {IntOptions(), good + BytesOf(Words{2, 3, 1, 5, 6, 7}) + good,
       "f: record 1 at byte 24: slot 'click': value 1 of 1 is 2, expected 0 or "
       "1"},
      // A float label instead of an integer.
      {IntOptions(), BytesOf(1.0f) + good.substr(4),
       "f: record 0 at byte 0: slot 'click': value 1 of 1 is 1065353216, "
       "expected 0 or 1"},
  };
  for (const auto& bad : cases) {
    for (const int64_t chunk : {1, 7, 1000}) {
      const RawFormat format(specs, bad.options);
      EXPECT_EQ(ReadRecords(format, bad.file, chunk).messages,
                Strings{bad.message});
    }
  }
}

TEST(RawFormatTest, RejectsUnsupportedSlots) {
  const auto message = [](const RawOptions& options, const Ints& nnz) {
    return RawFormat::Check(Specs(2, nnz), options).message();
  };
  RawOptions options = IntOptions();
  EXPECT_EQ(message(options, {1, 1, 1}), "");
  options.layout.nnz = {1, 1};
  EXPECT_EQ(message(options, {1, 1, 1}), "found nnz for 2 slots, expected 3");
  options.layout.nnz = {1, -1, 1};
  EXPECT_EQ(message(options, {1, 1, 1}),
            "slot 'C2': found -1 values in a sample, expected 0 to 16777212");
  options.layout.nnz = {1, 1, 1};
  options.layout.key_offsets = {0};
  EXPECT_EQ(message(options, {1, 1, 1}),
            "found key offsets for 1 slots, expected 3");
  std::vector<ColumnSpec> one_hot = Specs(2, {1, 1, 1});
  one_hot[2].size = 1;
  options = IntOptions();
  options.layout.nnz = {2, 1, 1};
  EXPECT_EQ(RawFormat::Check(one_hot, options).message(),
            "slot 'C1': found 2 keys in a sample, expected 1");
  RawOptions empty;
  empty.layout.kinds = {FieldKind::kKeys};
  empty.layout.nnz = {0};
  EXPECT_EQ(RawFormat::Check({{"C1", false, -1, 0}}, empty).message(),
            "found samples of 0 bytes, expected 1 or more");
}

TEST(RawFormatTest, NumSamplesOverSeveralPieces) {
  RawOptions options = IntOptions();
  options.num_samples = 3;
  const RawFormat format(Specs(2, {1, 1, 1}), options);
  const std::string file(5 * format.stride() + 1, 0);
  for (const int64_t chunk : {1, 24, 48, 72, 100, 1000}) {
    const ReadFile read = ReadRecords(format, file, chunk);
    EXPECT_EQ(read.messages, Strings());
    EXPECT_EQ(read.rows.num_rows(), 3) << chunk;
    EXPECT_EQ(read.num_cut, 3) << chunk;
  }
}

}  // namespace
}  // namespace lodestar
