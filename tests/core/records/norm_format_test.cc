#include "tf_ops/core/records/norm_format.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/records/record_files.h"
#include "tf_ops/core/records/sample_fields.h"

namespace lodestar {
namespace {

using Strings = std::vector<std::string>;
using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;

constexpr FieldKind kLabel = FieldKind::kLabel;
constexpr FieldKind kDense = FieldKind::kDense;
constexpr FieldKind kKeys = FieldKind::kKeys;

// The format's documented example, without and with checksums.
const char kNone[] =
    "00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 "
    "01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 "
    "02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
    "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
    "00 00 80 3f 00 00 00 3f 00 00 00 c0 01 00 00 00 "
    "07 00 00 00 02 00 00 00 2c 01 00 00 2d 01 00 00 "
    "00 00 00 00 00 00 40 40 00 00 80 3e 01 00 00 00 "
    "08 00 00 00 00 00 00 00";
const char kSum[] =
    "40 00 00 00 01 00 00 00 00 00 00 00 02 00 00 00 "
    "00 00 00 00 01 00 00 00 00 00 00 00 02 00 00 00 "
    "00 00 00 00 02 00 00 00 00 00 00 00 00 00 00 00 "
    "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
    "00 00 00 00 08 20 00 00 00 00 00 80 3f 00 00 00 "
    "3f 00 00 00 c0 01 00 00 00 07 00 00 00 02 00 00 "
    "00 2c 01 00 00 2d 01 00 00 23 18 00 00 00 00 00 "
    "00 00 00 00 40 40 00 00 80 3e 01 00 00 00 08 00 "
    "00 00 00 00 00 00 47";

ColumnSpec Label() { return {"click", false, 1, 2}; }
ColumnSpec Dense(int64_t size) { return {"I", true, size, 0}; }
ColumnSpec Ids(std::string name) { return {std::move(name), false, -1, 0}; }

NormFormat Example() {
  return NormFormat({Label(), Dense(2), Ids("C1"), Ids("C2")},
                    {{{kLabel, kDense, kKeys, kKeys}}});
}

std::string Header(int64_t check, int64_t records, int64_t label_dim,
                   int64_t dense_dim, int64_t slot_num) {
  return BytesOf(std::vector<int64_t>{check, records, label_dim, dense_dim,
                                      slot_num, 0, 0, 0});
}

std::string Framed(const std::string& payload) {
  uint8_t sum = 0;
  for (const char c : payload) sum += static_cast<uint8_t>(c);
  return BytesOf(static_cast<int32_t>(payload.size())) + payload + BytesOf(sum);
}

template <typename Key>
std::string Keys(const std::vector<Key>& keys) {
  return BytesOf(static_cast<int32_t>(keys.size())) + BytesOf(keys);
}

// A click and the keys of C1 and C2.
std::string Sample(float click, const std::vector<uint32_t>& c1,
                   const std::vector<uint32_t>& c2) {
  return BytesOf(click) + BytesOf(Floats{.5, 2}) + Keys(c1) + Keys(c2);
}

// The samples of a valid file of Example().
std::vector<std::string> Samples() {
  return {Sample(1, {7}, {300, 301}), Sample(0, {8}, {}), Sample(1, {}, {9})};
}

std::string File(bool framed, const Strings& samples, int64_t records = -1) {
  const std::string header =
      Header(framed, records < 0 ? samples.size() : records, 1, 2, 2);
  std::string file = framed ? Framed(header) : header;
  for (const std::string& sample : samples) {
    file += framed ? Framed(sample) : sample;
  }
  return file;
}

TEST(NormFormatTest, WorkedExamples) {
  const NormFormat format = Example();
  for (const char* hex : {kNone, kSum}) {
    for (const int64_t chunk : {1, 3, 64, 70, 1000}) {
      const ReadFile read = ReadRecords(format, FromHex(hex), chunk);
      EXPECT_EQ(read.messages, Strings());
      ASSERT_EQ(read.rows.num_rows(), 2);
      const auto& columns = read.rows.columns();
      EXPECT_EQ(columns[0].ints, (Ints{1, 0}));
      EXPECT_EQ(columns[1].floats, (Floats{.5, -2, 3, .25}));
      EXPECT_EQ(columns[2].ints, (Ints{7, 8}));
      EXPECT_EQ(columns[2].row_splits, (Ints{0, 1, 2}));
      EXPECT_EQ(columns[3].ints, (Ints{300, 301}));
      EXPECT_EQ(columns[3].row_splits, (Ints{0, 2, 2}));
    }
  }
  EXPECT_EQ(FromHex(kNone).size(), 120u);
  EXPECT_EQ(FromHex(kSum).size(), 135u);
}

TEST(NormFormatTest, ColumnsInAnyOrderAndOnesNotUsed) {
  ColumnSpec unused = Ids("C2");
  unused.used = false;
  // One-hot, dense integers, keys, a float label, dense, another label.
  const NormFormat format({{"color", false, 1, 5},
                           {"counts", false, 2, 0},
                           unused,
                           {"price", true, 1, 0},
                           {"I", true, 1, 0},
                           {"click", false, 1, 2}},
                          {{{kKeys, kDense, kKeys, kLabel, kDense, kLabel}}});
  const std::string sample = BytesOf(Floats{2.5, 1, -3, 16777216, .125}) +
                             Keys<uint32_t>({4}) + Keys<uint32_t>({1, 2});
  std::string file = Header(0, 100, 2, 3, 2);
  for (int i = 0; i < 100; ++i) file += sample;
  const ReadFile read = ReadRecords(format, file);
  EXPECT_EQ(read.messages, Strings());
  ASSERT_EQ(read.rows.num_rows(), 100);
  const auto& columns = read.rows.columns();
  EXPECT_EQ(columns[0].ints, Ints(100, 4));
  ASSERT_EQ(columns[1].ints.size(), 200u);
  EXPECT_EQ(columns[1].ints[198], -3);
  EXPECT_EQ(columns[1].ints[199], 16777216);
  EXPECT_TRUE(columns[2].ints.empty() && columns[2].row_splits.empty());
  EXPECT_EQ(columns[3].floats, Floats(100, 2.5));
  EXPECT_EQ(columns[4].floats, Floats(100, .125));
  EXPECT_EQ(columns[5].ints, Ints(100, 1));
}

TEST(NormFormatTest, AFileWithoutRecordsIsValid) {
  for (const bool framed : {false, true}) {
    const ReadFile read = ReadRecords(Example(), File(framed, {}));
    EXPECT_EQ(read.messages, Strings());
    EXPECT_EQ(read.rows.num_rows(), 0);
  }
}

struct BadFile {
  std::string file;
  std::string message;
};

void ExpectMessages(const NormFormat& format,
                    const std::vector<BadFile>& cases) {
  for (const BadFile& bad : cases) {
    for (const int64_t chunk : {1, 50, 1 << 20}) {
      const ReadFile read = ReadRecords(format, bad.file, chunk);
      ASSERT_EQ(read.messages.size(), 1u) << bad.message;
      // The number of following bytes is unknown until they are read.
      const std::string& found = read.messages[0];
      if (chunk < 1 << 20 && found.find("or more bytes") < found.size()) {
        continue;
      }
      EXPECT_EQ(found, bad.message);
    }
  }
}

TEST(NormFormatTest, HeaderErrors) {
  const std::string good = File(false, Samples());
  std::string bad_sum = File(true, Samples());
  bad_sum[68] ^= 1;
  std::string other = File(true, Samples());
  other[4] = 2;
  ExpectMessages(
      Example(),
      {{"", "f: not a Norm file: it is empty"},
       {"1 1 1\n",
        "f: not a Norm file: begins with 31 20 31 20 31 0a, expected eight "
        "zero bytes (no checksums), or the int32 64 and the int64 1 "
        "(checksums)"},
       {other,
        "f: not a Norm file: begins with 40 00 00 00 02 00 00 00 00 00 00 00, "
        "expected eight zero bytes (no checksums), or the int32 64 and the "
        "int64 1 (checksums)"},
       {good.substr(0, 63),
        "f: the header has 63 bytes, expected 64: the file is truncated"},
       {File(true, {}).substr(0, 68),
        "f: the header has 68 bytes, expected 69: the file is truncated"},
       {bad_sum,
        "f: header: checksum is 8, expected 9 for the sum of its 64 bytes "
        "modulo 256"},
       {Header(0, 1, 2, 2, 2) + std::string(100, 0),
        "f: header: label_dim is 2, expected 1 for the slots"},
       {Header(0, 1, 1, 13, 2) + std::string(100, 0),
        "f: header: dense_dim is 13, expected 2 for the slots"},
       {Header(0, 1, 1, 2, 26) + std::string(100, 0),
        "f: header: slot_num is 26, expected 2 for the slots"},
       {Header(0, -1, 1, 2, 2) + std::string(100, 0),
        "f: header: number_of_records is -1, expected 0 to 368934881474191032"},
       {Header(0, INT64_MAX, 1, 2, 2) + std::string(100, 0),
        "f: header: number_of_records is 9223372036854775807, expected 0 to "
        "368934881474191032"}});
}

TEST(NormFormatTest, RecordCountErrors) {
  ExpectMessages(Example(),
                 {{File(false, Samples(), 4),
                   "f: the file ends at byte 144 after 3 records, expected 4 "
                   "according to its header: it is truncated"},
                  {File(true, Samples(), 5),
                   "f: the file ends at byte 164 after 3 records, expected 5 "
                   "according to its header: it is truncated"},
                  {File(false, {}, 2),
                   "f: the file ends at byte 64 after 0 records, expected 2 "
                   "according to its header: it is truncated"},
                  {File(false, Samples(), 2),
                   "f: found 24 bytes after the last of 2 records, at byte "
                   "120, expected the end of the file"},
                  {File(true, Samples()) + "\n",
                   "f: found 1 bytes after the last of 3 records, at byte 164, "
                   "expected the end of the file"},
                  {File(false, {}) + "x",
                   "f: found 1 bytes after the last of 0 records, at byte 64, "
                   "expected the end of the file"}});
}

TEST(NormFormatTest, RecordErrorsWithoutChecksums) {
  const auto with = [](const std::string& bad) {
    return File(false, {Sample(1, {7}, {300, 301}), bad, Sample(0, {8}, {})});
  };
  const std::string whole = File(false, Samples());
  const std::string start = BytesOf(Floats{1, 0, 0});
  ExpectMessages(
      Example(),
      {{with(start + BytesOf(int32_t{-3})),
        "f: record 1 at byte 96: slot 'C1': nnz is -3, expected 0 to 16777216; "
        "check the key type and the slots"},
       {with(start + BytesOf(int32_t{0}) + BytesOf(int32_t{1 << 29})),
        "f: record 1 at byte 96: slot 'C2': nnz is 536870912, expected 0 to "
        "16777216; check the key type and the slots"},
       {with(Sample(2, {}, {})),
        "f: record 1 at byte 96: slot 'click': value 1 of 1 is 2, expected 0 "
        "or 1"},
       {with(Sample(.5, {}, {})),
        "f: record 1 at byte 96: slot 'click': value 1 of 1 is 0.5, expected 0 "
        "or 1"},
       {whole.substr(0, 96 + 11),
        "f: record 1 at byte 96: found 11 bytes, expected 12 or more; check "
        "the slots and that the file is complete"},
       {whole.substr(0, 96 + 14),
        "f: record 1 at byte 96: slot 'C1': found 2 bytes, expected 4 for its "
        "nnz; check the key type and that the file is complete"},
       {whole.substr(0, 96 + 19),
        "f: record 1 at byte 96: slot 'C1': nnz is 1, expected 0 to 0 because "
        "3 bytes are left; check the key type and that the file is complete"}});
}

TEST(NormFormatTest, RecordErrorsWithChecksums) {
  const auto with = [](const std::string& bad) {
    return File(true, {Sample(1, {7}, {300, 301})}, 3) + bad +
           Framed(Sample(0, {8}, {}));
  };
  const std::string start = BytesOf(Floats{1, 0, 0});
  std::string bad_sum = Framed(Sample(1, {5}, {6}));
  bad_sum.back() += 3;
  ExpectMessages(
      Example(),
      {{with(bad_sum),
        "f: record 1 at byte 106: checksum is 78, expected 75 for the sum of "
        "its 28 bytes modulo 256"},
       {with(Framed(start + BytesOf(int32_t{-1}) + BytesOf(int32_t{0}))),
        "f: record 1 at byte 106: slot 'C1': nnz is -1, expected 0 to "
        "16777216; check the key type and the slots"},
       {with(Framed(Sample(1, {5}, {6}) + "xyz")),
        "f: record 1 at byte 106: its slots take 28 bytes, found 31: check the "
        "key type and the slots"},
       // The last key would be the checksum and three bytes of the next record.
       {with(Framed(start + Keys<uint32_t>({}) + BytesOf(int32_t{2}) +
                    BytesOf(uint32_t{5}))),
        "f: record 1 at byte 106: slot 'C2': nnz is 2, expected 0 to 1 because "
        "4 bytes are left; check the key type and that the file is complete"},
       {with(Framed(start + Keys<uint32_t>({1, 2, 3}))),
        "f: record 1 at byte 106: slot 'C2': found 0 bytes, expected 4 for its "
        "nnz; check the key type and that the file is complete"},
       {with(BytesOf(int32_t{19}) + Sample(1, {}, {}) + "\n"),
        "f: record 1 at byte 106: length is 19, expected 20 to 67108864: check "
        "the slots and the key type"},
       {with(BytesOf(int32_t{-1}) + Sample(1, {}, {}) + "\n"),
        "f: record 1 at byte 106: length is -1, expected 20 to 67108864: check "
        "the slots and the key type"},
       {with("").substr(0, 106 + 28),
        "f: record 1 at byte 106: found 28 bytes, expected 29 for its length "
        "of 24: the file is truncated"},
       {with("").substr(0, 106 + 3),
        "f: record 1 at byte 106: found 3 bytes, expected 25 or more: the file "
        "is truncated"},
       {with("").substr(0, 106 + 4),
        "f: record 1 at byte 106: found 4 bytes, expected 29 for its length of "
        "24: the file is truncated"}});
}

TEST(NormFormatTest, ACheckModeMayBeRequired) {
  NormOptions options = {{{kLabel, kDense, kKeys, kKeys}}};
  options.wants_check = true;
  const std::vector<ColumnSpec> specs = {Label(), Dense(2), Ids("C1"),
                                         Ids("C2")};
  const NormFormat none(specs, options);
  options.check = NormCheck::kSum;
  const NormFormat sum(specs, options);
  EXPECT_EQ(ReadRecords(none, FromHex(kNone)).messages, Strings());
  EXPECT_EQ(ReadRecords(sum, FromHex(kSum)).messages, Strings());
  EXPECT_EQ(ReadRecords(none, FromHex(kSum)).messages,
            Strings{"f: the header declares checksums, expected no checksums"});
  EXPECT_EQ(ReadRecords(sum, FromHex(kNone)).messages,
            Strings{"f: the header declares no checksums, expected checksums"});
}

// A bad nnz without a frame costs the rest of the file.
TEST(NormFormatTest, ContinuesAfterABadRecordThatEnds) {
  std::string bad_sum = File(true, Samples());
  bad_sum[69 + 4 + 16] ^= 1;  // the key of the first sample
  const std::string bad_nnz = BytesOf(Floats{1, 0, 0}) + BytesOf(int32_t{-3});
  const struct {
    std::string file;
    Ints keys;
  } cases[] = {
      {bad_sum, {8}},
      {File(false,
            {Sample(1, {1}, {}), Sample(7, {2}, {}), Sample(0, {3}, {})}),
       {1, 3}},
      {File(false, {Sample(1, {1}, {}), bad_nnz, Sample(0, {3}, {})}), {1}},
  };
  for (const auto& one : cases) {
    for (const int64_t chunk : {1, 90, 1000}) {
      const ReadFile read = ReadRecords(Example(), one.file, chunk, true);
      EXPECT_EQ(read.messages.size(), 1u);
      EXPECT_EQ(read.num_cut, 3);
      EXPECT_EQ(read.rows.columns()[2].ints, one.keys);
    }
  }
}

TEST(NormFormatTest, OneHotSlotsHaveOneKey) {
  const NormFormat format({Label(), Dense(2), {"C1", false, 1, 9}, Ids("C2")},
                          {{{kLabel, kDense, kKeys, kKeys}}});
  ExpectMessages(format,
                 {{File(false, {Sample(1, {8}, {300}), Sample(1, {}, {300})}),
                   "f: record 1 at byte 92: slot 'C1': nnz is 0, expected 1"},
                  {File(true, {Sample(1, {1, 2}, {})}),
                   "f: record 0 at byte 69: slot 'C1': nnz is 2, expected 1"},
                  {File(true, {Sample(1, {9}, {})}),
                   "f: record 0 at byte 69: slot 'C1': value 1 of 1 is 9, "
                   "expected an integer in [0, 9)"}});
}

TEST(NormFormatTest, IntegersMustBeWhole) {
  const NormFormat format({{"n", false, 1, 0}, {"counts", false, 2, 0}},
                          {{{kLabel, kDense}}});
  const auto file = [](Floats numbers) {
    return Header(0, 1, 1, 2, 0) + BytesOf(numbers);
  };
  EXPECT_EQ(ReadRecords(format, file({-2, 0, 5e9})).messages, Strings());
  ExpectMessages(format, {{file({1.5, 0, 0}),
                           "f: record 0 at byte 64: slot 'n': value 1 of 1 is "
                           "1.5, expected an integer"},
                          {file({1, 0, 1e30f}),
                           "f: record 0 at byte 64: slot 'counts': value 2 of "
                           "2 is 1e+30, expected an integer"},
                          {file({1, __builtin_nanf(""), 0}),
                           "f: record 0 at byte 64: slot 'counts': value 1 of "
                           "2 is nan, expected an integer"}});
}

TEST(NormFormatTest, AWrongNnzDoesNotAllocate) {
  const std::string lie = BytesOf(Floats{1, 0, 0}) + BytesOf(INT32_MAX);
  const ReadFile read = ReadRecords(Example(), File(false, {lie}, 1 << 30));
  ASSERT_EQ(read.messages.size(), 1u);
  for (const SlotColumn& column : read.rows.columns()) {
    EXPECT_LT(column.ints.capacity(), 100u);
  }
}

TEST(NormFormatTest, RejectsUnsupportedSlots) {
  const auto message = [](ColumnSpec spec, FieldKind kind) {
    return NormFormat::Check({spec}, {{{kind}}}).message();
  };
  EXPECT_EQ(message(Label(), kLabel), "");
  EXPECT_EQ(message({"w", true, -1, 0}, kKeys),
            "slot 'w': found floats, but the file has keys here");
  EXPECT_EQ(message({"C1", false, 2, 0}, kKeys),
            "slot 'C1': found a size of 2, expected one key or any number");
  EXPECT_EQ(message({"I", true, -1, 0}, kDense),
            "slot 'I': found any number of values, expected a fixed number: "
            "only slots of keys may vary");
  EXPECT_EQ(message({"l", true, 2, 0}, kLabel),
            "slot 'l': found 2 values in a label, expected 1");
  EXPECT_EQ(message({"I", true, int64_t{1} << 40, 0}, kDense),
            "slot 'I': found 1099511627776 values in a sample, expected 0 to "
            "16777216");
  EXPECT_EQ(NormFormat::Check({Label()}, {{}}).message(),
            "found kinds for 0 slots, expected 1");
}

TEST(NormFormatTest, LostRecordsAreCountedFromTheHeader) {
  std::string file = Header(0, 100, 1, 2, 2);
  for (int i = 0; i < 3; ++i) file += Sample(1, {7}, {});
  file += BytesOf(Floats{1, .5, 2}) + BytesOf(int32_t{-1}) + std::string(50, 0);
  for (const int64_t chunk : {1, 100, 1000}) {
    const ReadFile read = ReadRecords(Example(), file, chunk, /*skip=*/true);
    EXPECT_EQ(read.rows.num_rows(), 3);
    EXPECT_EQ(read.num_cut, 100);
    EXPECT_EQ(read.num_rejected, 97);
    EXPECT_EQ(read.messages.size(), 1u);
  }
}

}  // namespace
}  // namespace lodestar
