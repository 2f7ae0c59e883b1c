#include "tf_ops/core/records/multislot_format.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

ColumnSpec Ids(std::string name) { return {std::move(name), false, -1, 0}; }
ColumnSpec Floats(std::string name, int64_t size) {
  return {std::move(name), true, size, 0};
}
ColumnSpec Label(std::string name) { return {std::move(name), false, 1, 2}; }

Status ParseText(const MultiSlotFormat& format, const std::string& text,
                 SlotRows* rows, BadRecord* bad) {
  return format.Parse(0, text.data(), text.data() + text.size(), rows, bad);
}

Status Parse(const MultiSlotFormat& format, const std::string& line,
             SlotRows* rows) {
  BadRecord bad;
  return ParseText(format, line + "\n", rows, &bad);
}

// The slots of the format's documented examples.
std::vector<ColumnSpec> WordsAndLabel() {
  return {Ids("words"), Label("label")};
}

TEST(MultiSlotFormatTest, WorkedBatch) {
  const MultiSlotFormat format(WordsAndLabel());
  SlotRows rows(format.specs());
  ASSERT_TRUE(Parse(format, "3 1926 8 17 1 1", &rows).ok());
  ASSERT_TRUE(Parse(format, "2 0 5 1 0", &rows).ok());
  EXPECT_EQ(rows.num_rows(), 2);
  EXPECT_EQ(rows.columns()[0].ints, (std::vector<int64_t>{1926, 8, 17, 0, 5}));
  EXPECT_EQ(rows.columns()[0].row_splits, (std::vector<int64_t>{0, 3, 5}));
  EXPECT_EQ(rows.columns()[1].ints, (std::vector<int64_t>{1, 0}));
}

TEST(MultiSlotFormatTest, IdsKeepTheirBitsAndFloatsMayBeHexadecimal) {
  const MultiSlotFormat format({Floats("d", 2), Ids("a"), Ids("b")});
  SlotRows rows(format.specs());
  ASSERT_TRUE(Parse(format, "2 .5 2.0 0 1 7", &rows).ok());
  ASSERT_TRUE(
      Parse(format, "2 1e3 -0x1p1 2 18446744073709551615 -2 0", &rows).ok());
  EXPECT_EQ(rows.columns()[0].floats,
            (std::vector<float>{0.5f, 2.0f, 1000.0f, -2.0f}));
  EXPECT_EQ(rows.columns()[1].ints, (std::vector<int64_t>{-1, -2}));
  EXPECT_EQ(rows.columns()[1].row_splits, (std::vector<int64_t>{0, 0, 2}));
  EXPECT_EQ(rows.columns()[2].row_splits, (std::vector<int64_t>{0, 1, 1}));
}

TEST(MultiSlotFormatTest, BlanksTabsAndCarriageReturnsMayEndALine) {
  const MultiSlotFormat format(WordsAndLabel());
  SlotRows rows(format.specs());
  EXPECT_TRUE(Parse(format, "1 5 1 0\t", &rows).ok());
  EXPECT_TRUE(Parse(format, "1 5 1 0 \r", &rows).ok());
  EXPECT_TRUE(Parse(format, "1\t5  1 0", &rows).ok());
  EXPECT_EQ(rows.num_rows(), 3);
}

struct BadLine {
  std::string line;
  std::string message;
};

TEST(MultiSlotFormatTest, ErrorsDescribeSlotAndPosition) {
  const MultiSlotFormat format(
      {Label("click"), Floats("I", 2), Ids("C1"), {"color", false, 1, 5}});
  const BadLine cases[] = {
      {"", "slot 'click' at byte 1: the line ends before its count"},
      {"1 1 2 .5", "slot 'I' at byte 9: the line ends after 1 of 2 values"},
      {"1 1 2 .5 1", "slot 'C1' at byte 11: the line ends before its count"},
      {"1 1 2 .5 1 3 7 8",
       "slot 'C1' at byte 17: the line ends after 2 of 3 values"},
      // A missing last value must not be parsed as 0.
      {"1 1 2 .5 1 2 7 1 1",
       "slot 'color' at byte 19: the line ends after 0 of 1 values"},
      {"-1 1", "slot 'click' at byte 1: count is '-1', expected 0 or more"},
      {"x 1", "slot 'click' at byte 1: count is 'x', expected an integer"},
      {"1.5 1", "count is '1.5', expected an integer"},
      {"+1 1", "count is '+1', expected an integer"},
      {"99999999999999999999999 1", "expected an integer"},
      {"0 2 .5 1", "slot 'click' at byte 1: count is 0, expected 1"},
      {"1 1 3 1 2 3 0 1 1", "slot 'I' at byte 5: count is 3, expected 2"},
      {"1 2 2 .5 1 0 1 1",
       "slot 'click' at byte 3: value 1 of 1 is '2', expected 0 or 1"},
      {"1 -1 2 .5 1 0 1 1", "is '-1', expected 0 or 1"},
      {"1 1 2 .5 abc 0 1 1",
       "slot 'I' at byte 10: value 2 of 2 is 'abc', expected a number"},
      {"1 1 2 .5 1e39 0 1 1", "is '1e39', out of the range of float"},
      {"1 1 2 .5 -16777217 0 1 1",
       "slot 'I' at byte 10: value 2 of 2 is '-16777217', which float32 does "
       "not hold: the nearest is -16777216. Store ids and dates as integers or "
       "smaller numbers"},
      {"1 1 2 .5 1e20 0 1 1", "the nearest is 100000002004087734272. Store"},
      {"1 1 2 .5 1 1 1.5 1 1",
       "slot 'C1' at byte 14: value 1 of 1 is '1.5', expected an integer"},
      {"1 1 2 .5 1 1 18446744073709551616 1 1", "out of the range of uint64"},
      {"1 1 2 .5 1 0 1 5",
       "slot 'color' at byte 16: value 1 of 1 is '5', expected an integer in "
       "[0, 5)"},
      {"1 1 2 .5 1 0 1 4 9",
       "byte 18: found '9' after the last slot 'color', expected the end of "
       "the line"},
      {"1 1 2 .5 1 1 \xff\x01"
       "a 1 1",
       "is '\\xff\\x01a', expected an integer"},
      {std::string("1 1\0 2", 6), "not a text file: a NUL byte at byte 4"},
      {"1 1 2 .5 1 1 " + std::string(100, 'z') + " 1 1",
       "is '" + std::string(32, 'z') + "'..., expected"},
  };
  SlotRows rows(format.specs());
  ASSERT_TRUE(Parse(format, "1 1 2 .5 1 2 7 8 1 4", &rows).ok());
  for (const BadLine& bad : cases) {
    const Status status = Parse(format, bad.line, &rows);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad.line;
    EXPECT_NE(status.message().find(bad.message), std::string::npos)
        << bad.line << "\n  gives " << status.message() << "\n  not   "
        << bad.message;
    EXPECT_EQ(rows.num_rows(), 1);
    EXPECT_EQ(rows.columns()[0].ints, (std::vector<int64_t>{1}));
    EXPECT_EQ(rows.columns()[1].floats, (std::vector<float>{.5f, 1.f}));
    EXPECT_EQ(rows.columns()[2].ints, (std::vector<int64_t>{7, 8}));
    EXPECT_EQ(rows.columns()[2].row_splits, (std::vector<int64_t>{0, 2}));
    EXPECT_EQ(rows.columns()[3].ints, (std::vector<int64_t>{4}));
  }
}

TEST(MultiSlotFormatTest, AFloatLabelMustBeZeroOrOne) {
  const MultiSlotFormat format({{"click", true, 1, 2}});
  SlotRows rows(format.specs());
  EXPECT_TRUE(Parse(format, "1 1.0", &rows).ok());
  EXPECT_TRUE(Parse(format, "1 0", &rows).ok());
  for (const char* line : {"1 0.5", "1 2", "1 nan", "1 -1", "1 inf"}) {
    const Status status = Parse(format, line, &rows);
    EXPECT_NE(status.message().find("expected 0 or 1"), std::string::npos)
        << line << status.message();
  }
}

TEST(MultiSlotFormatTest, AWrongCountDoesNotAllocate) {
  const MultiSlotFormat format({Ids("a")});
  SlotRows rows(format.specs());
  const Status status = Parse(format, "9000000000000000000 1 2", &rows);
  EXPECT_EQ(status.message(),
            "slot 'a' at byte 24: the line ends after 2 of "
            "9000000000000000000 values");
  EXPECT_LT(rows.columns()[0].ints.capacity(), 100u);
}

TEST(MultiSlotFormatTest, StopsAtTheFirstBadLine) {
  const MultiSlotFormat format(WordsAndLabel());
  SlotRows rows(format.specs());
  const std::string text = "1 5 1 0\n1 6 1 1\n1 7 1 3\n1 8 1 1\n";
  BadRecord bad;
  const Status status = ParseText(format, text, &rows, &bad);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(bad.record, 2);
  EXPECT_EQ(bad.offset, 16);
  EXPECT_EQ(bad.next, 24);
  EXPECT_EQ(rows.num_rows(), 2);
  EXPECT_EQ(rows.columns()[0].ints, (std::vector<int64_t>{5, 6}));
}

TEST(MultiSlotFormatTest, TheLastLineNeedsItsNewline) {
  const MultiSlotFormat format({Label("label"), Ids("words")});
  SlotRows rows(format.specs());
  const std::string text = "1 0 1 5\n1 1 2 6 12";  // the file had 123456
  BadRecord bad;
  const Status status = ParseText(format, text, &rows, &bad);
  EXPECT_NE(status.message().find("no newline at its end"), std::string::npos);
  EXPECT_EQ(bad.record, 1);
  EXPECT_EQ(rows.num_rows(), 1);
  EXPECT_EQ(rows.columns()[1].ints, (std::vector<int64_t>{5}));
}

MultiSlotFormat WithFields() {
  LineFields fields;
  fields.ins_id = fields.content = fields.logkey = true;
  std::vector<ColumnSpec> specs = FieldColumns(fields);
  specs.push_back(Ids("ids"));
  ColumnSpec weights{"weights", true, -1, 0};
  weights.weighs = static_cast<int64_t>(specs.size()) - 1;
  specs.push_back(weights);
  return MultiSlotFormat(specs, fields);
}

constexpr char kFields[] =
    "1 id-7 1 text 1 0123456789a0ab0cffffffffffffffff 2 5 6 2 1 2";

TEST(MultiSlotFormatTest, FieldsBeforeTheSlots) {
  const MultiSlotFormat format = WithFields();
  SlotRows rows(format.specs());
  ASSERT_TRUE(Parse(format, kFields, &rows).ok());
  ASSERT_TRUE(Parse(format, std::string("1 x") + (kFields + 6), &rows).ok());
  EXPECT_EQ(rows.FindUnfit(format.specs()), -1);
  EXPECT_EQ(rows.columns()[0].text, "id-7x");
  EXPECT_EQ(rows.columns()[0].row_splits, (std::vector<int64_t>{0, 4, 5}));
  EXPECT_EQ(rows.columns()[1].text, "texttext");
  EXPECT_EQ(rows.columns()[2].ints, (std::vector<int64_t>{-1, -1}));
  EXPECT_EQ(rows.columns()[3].ints, (std::vector<int64_t>{0xab, 0xab}));
  EXPECT_EQ(rows.columns()[4].ints, (std::vector<int64_t>{0xc, 0xc}));
  SlotRows copy(format.specs());
  copy.Append(rows, 1, 1);
  EXPECT_EQ(copy.columns()[0].text, "x");
  EXPECT_EQ(copy.columns()[0].row_splits, (std::vector<int64_t>{0, 1}));
  rows.TruncateTo(1);
  EXPECT_EQ(rows.columns()[0].text, "id-7");
  EXPECT_EQ(rows.FindUnfit(format.specs()), -1);
}

TEST(MultiSlotFormatTest, TruncatedLinesWithFieldsAddNothing) {
  const MultiSlotFormat format = WithFields();
  const std::string whole = kFields;
  for (size_t size = 0; size + 1 < whole.size(); ++size) {
    SlotRows rows(format.specs());
    const Status status = Parse(format, whole.substr(0, size), &rows);
    ASSERT_FALSE(status.ok()) << size;
    ASSERT_EQ(rows.num_rows(), 0);
    ASSERT_EQ(rows.FindUnfit(format.specs()), -1) << status.message();
  }
}

TEST(MultiSlotFormatTest, RejectsAShortLogkey) {
  const MultiSlotFormat format = WithFields();
  const std::string digits(32, 'a');
  for (const size_t size : {32, 31, 1}) {
    SlotRows rows(format.specs());
    BadRecord bad;
    const std::string line = "1 i 1 t 1 " + digits.substr(0, size) + " 0 0\n";
    const Status status =
        format.Parse(0, line.data(), line.data() + line.size(), &rows, &bad);
    EXPECT_EQ(status.ok(), size == 32) << size;
    EXPECT_EQ(rows.num_rows(), size == 32);
  }
}

TEST(MultiSlotFormatTest, WithoutMessagesTheSameRecordsAreBad) {
  const MultiSlotFormat format({Ids("a"), Ids("b")});
  const std::string text = "1 7 0\n1 x 0\n\n1 8 0\n1 7 0 9\n";
  for (const bool wants_message : {true, false}) {
    SlotRows rows(format.specs());
    std::vector<int64_t> starts;
    for (size_t begin = 0; begin < text.size();) {
      BadRecord bad;
      bad.wants_message = wants_message;
      const Status status = format.Parse(
          0, text.data() + begin, text.data() + text.size(), &rows, &bad);
      if (status.ok()) break;
      EXPECT_EQ(status.message().empty(), !wants_message);
      starts.push_back(static_cast<int64_t>(begin) + bad.offset);
      begin += bad.next;
    }
    EXPECT_EQ(starts, (std::vector<int64_t>{6, 12, 19}));
    EXPECT_EQ(rows.num_rows(), 2);
  }
}

}  // namespace
}  // namespace lodestar
