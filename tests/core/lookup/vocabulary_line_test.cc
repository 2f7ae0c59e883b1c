#include "tf_ops/core/lookup/vocabulary_line.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace lodestar {
namespace {

TEST(VocabularyLineTest, LineEnds) {
  EXPECT_EQ(WithoutLineEnd("a\n"), "a");
  EXPECT_EQ(WithoutLineEnd("a\r\n"), "a");
  EXPECT_EQ(WithoutLineEnd("a"), "a");
  EXPECT_EQ(WithoutLineEnd("a\rb\n"), "a\rb");
  EXPECT_EQ(WithoutLineEnd("\r\n"), "");
  EXPECT_EQ(WithoutLineEnd(""), "");
}

TEST(VocabularyLineTest, ByteOrderMarks) {
  std::string_view line =
      "\xef\xbb\xbf"
      "a\xef\xbb\xbf";
  ASSERT_TRUE(SkipByteOrderMark(&line).ok());
  EXPECT_EQ(line, "a\xef\xbb\xbf");
  for (const std::string_view other : {"", "\xef\xbb", "\xff", "\xfe\xfe"}) {
    line = other;
    ASSERT_TRUE(SkipByteOrderMark(&line).ok());
    EXPECT_EQ(line, other);
  }
  for (const std::string_view mark : {"\xff\xfe"
                                      "a",
                                      "\xfe\xff"}) {
    line = mark;
    EXPECT_EQ(SkipByteOrderMark(&line).message(),
              "the file begins with the byte order mark of UTF-16. Convert it "
              "to UTF-8.");
  }
}

TEST(VocabularyLineTest, Columns) {
  std::string_view text;
  const std::string_view line = "a,,c c";
  const char* const wanted[] = {"a", "", "c c"};
  for (int64_t column = 0; column < 3; ++column) {
    ASSERT_TRUE(ColumnOf(line, column, ',', &text).ok());
    EXPECT_EQ(text, wanted[column]);
  }
  ASSERT_TRUE(ColumnOf(line, kWholeLine, ',', &text).ok());
  EXPECT_EQ(text, line);
  EXPECT_EQ(ColumnOf(line, 3, ',', &text).message(),
            "the line must have at least 4 columns, got 3.");
  EXPECT_EQ(ColumnOf("a", 1, ',', &text).message(),
            "the line must have at least 2 columns, got 1.");
}

TEST(VocabularyLineTest, Integers) {
  int64_t wide = 0;
  for (const char* text : {"-7", " -7", "-7 ", "\t-7\r"}) {
    ASSERT_TRUE(ParseInteger(text, "int64", &wide).ok()) << text;
    EXPECT_EQ(wide, -7);
  }
  ASSERT_TRUE(ParseInteger("+7", "int64", &wide).ok());
  EXPECT_EQ(wide, 7);
  ASSERT_TRUE(ParseInteger("-9223372036854775808", "int64", &wide).ok());
  EXPECT_EQ(wide, INT64_MIN);
  for (const char* text : {"", " ", "x", "7x", "0x7", "7.0", "+-7", "+", "- 7",
                           "9223372036854775808"}) {
    EXPECT_EQ(ParseInteger(text, "int64", &wide).message(),
              "'" + std::string(text) + "' is not a valid int64.");
  }
  uint8_t narrow = 0;
  ASSERT_TRUE(ParseInteger("255", "uint8", &narrow).ok());
  EXPECT_EQ(narrow, 255);
  EXPECT_EQ(ParseInteger("256", "uint8", &narrow).message(),
            "'256' is not a valid uint8.");
  EXPECT_EQ(ParseInteger("-1", "uint8", &narrow).message(),
            "'-1' is not a valid uint8.");
}

}  // namespace
}  // namespace lodestar
