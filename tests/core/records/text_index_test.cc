#include "tf_ops/core/records/text_index.h"

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

struct Index {
  std::vector<int64_t> offsets;
  std::vector<int64_t> records;
  bool ends_with_newline = true;
  std::string error;
};

bool operator==(const Index& a, const Index& b) {
  return a.offsets == b.offsets && a.records == b.records &&
         a.ends_with_newline == b.ends_with_newline && a.error == b.error;
}

std::ostream& operator<<(std::ostream& stream, const Index& index) {
  stream << "offsets";
  for (const int64_t offset : index.offsets) stream << " " << offset;
  stream << "; records";
  for (const int64_t records : index.records) stream << " " << records;
  return stream << "; ends_with_newline " << index.ends_with_newline << "; "
                << index.error;
}

// Adds the text in chunks that end at `ends`, and then the rest.
Index IndexChunks(const std::string& text, int64_t block_bytes, char quote,
                  const std::vector<size_t>& ends) {
  TextIndex index(block_bytes, ',', quote);
  size_t begin = 0;
  const auto add = [&](size_t end) {
    // A copy, so that a sanitizer finds a read past the end.
    const std::vector<char> chunk(text.begin() + begin, text.begin() + end);
    index.Add(chunk.data(), chunk.data() + chunk.size());
    begin = end;
  };
  for (const size_t end : ends) add(end);
  add(text.size());
  EXPECT_EQ(index.size(), text.size());
  const Status status = index.Finish();
  if (!status.ok()) return {{}, {}, true, status.message()};
  return {index.offsets(), index.records(), index.ends_with_newline(), ""};
}

Index IndexSteps(const std::string& text, int64_t block_bytes, char quote,
                 size_t step) {
  std::vector<size_t> ends;
  for (size_t end = step; end < text.size(); end += step) ends.push_back(end);
  return IndexChunks(text, block_bytes, quote, ends);
}

Index IndexAll(const std::string& text, int64_t block_bytes = 1 << 20) {
  return IndexChunks(text, block_bytes, '"', {});
}

// The expected index, computed one line and field at a time.
Index Reference(const std::string& text, int64_t block_bytes, char quote) {
  Index index;
  index.offsets = {0};
  const size_t size = text.size();
  int64_t records = 0;
  int64_t all_records = 0;
  size_t at = text.compare(0, 3, "\xef\xbb\xbf") == 0 ? 3 : 0;
  size_t begin = 0;
  while (at < size) {
    const size_t first = at;
    bool in_line = true;
    while (in_line) {  // a field
      if (quote != TextIndex::kNoQuote && at < size && text[at] == quote) {
        ++at;
        while (true) {
          if (at == size) {
            return {{},
                    {},
                    true,
                    StrCat("record ", all_records, " at byte ", begin,
                           ": the quote is not closed")};
          }
          if (text[at++] != quote) continue;
          if (at == size || text[at] != quote) break;
          ++at;
        }
      }
      while (at < size && text[at] != ',' && text[at] != '\r' &&
             text[at] != '\n') {
        ++at;
      }
      in_line = at < size && text[at] == ',';
      at += in_line;
    }
    records += at > first;
    all_records += at > first;
    index.ends_with_newline = at < size;
    if (text.compare(at, 2, "\r\n") == 0) ++at;
    if (at < size) ++at;
    begin = at;
    if (static_cast<int64_t>(at) - index.offsets.back() >= block_bytes ||
        at == size) {
      index.offsets.push_back(at);
      index.records.push_back(records);
      records = 0;
    }
  }
  if (static_cast<size_t>(index.offsets.back()) < size) {
    index.offsets.push_back(size);
    index.records.push_back(records);
  }
  return index;
}

TEST(TextIndexTest, CutsAfterTheFirstLineEndAtOrBeyondBlockBytes) {
  EXPECT_EQ(IndexAll("ab\ncd\nef\ngh\n", 5),
            (Index{{0, 6, 12}, {2, 2}, true, ""}));
  EXPECT_EQ(IndexAll("ab\ncd\nef\ngh\n", 6),
            (Index{{0, 6, 12}, {2, 2}, true, ""}));
  EXPECT_EQ(IndexAll("ab\ncd\nef\ngh\n", 7),
            (Index{{0, 9, 12}, {3, 1}, true, ""}));
  EXPECT_EQ(IndexAll("ab\ncd\n", INT64_MAX), (Index{{0, 6}, {2}, true, ""}));
}

TEST(TextIndexTest, ALongRecordIsABlock) {
  EXPECT_EQ(IndexAll("a\nbbbbbbbbbb\nc\n", 2),
            (Index{{0, 2, 13, 15}, {1, 1, 1}, true, ""}));
}

TEST(TextIndexTest, AnEmptyFileHasNoBlocks) {
  EXPECT_EQ(IndexAll(""), (Index{{0}, {}, true, ""}));
}

TEST(TextIndexTest, EmptyLinesAreNotRecords) {
  EXPECT_EQ(IndexAll("\n\r\n\r\r\n"), (Index{{0, 6}, {0}, true, ""}));
  EXPECT_EQ(IndexAll("\n\na\n\n\nb\n\n"), (Index{{0, 9}, {2}, true, ""}));
  EXPECT_EQ(IndexAll("a\n\n\n", 2), (Index{{0, 2, 4}, {1, 0}, true, ""}));
  // These have fields.
  EXPECT_EQ(IndexAll("\"\"\n,\n \n"), (Index{{0, 7}, {3}, true, ""}));
}

TEST(TextIndexTest, TheLastRecordMayLackItsLineEnd) {
  EXPECT_EQ(IndexAll("a\nb"), (Index{{0, 3}, {2}, false, ""}));
  EXPECT_EQ(IndexAll("a\n\"b\n\""), (Index{{0, 6}, {2}, false, ""}));
}

TEST(TextIndexTest, NeverCutsInsideACrLf) {
  const Index expected = {{0, 3, 6, 7}, {1, 1, 1}, false, ""};
  for (size_t step = 1; step < 8; ++step) {
    EXPECT_EQ(IndexSteps("a\r\nb\r\nc", 1, '"', step), expected) << step;
    EXPECT_EQ(IndexSteps("a\r\nb\r\nc", 2, '"', step), expected) << step;
  }
}

TEST(TextIndexTest, ALoneCrEndsALine) {
  for (size_t step = 1; step < 6; ++step) {
    EXPECT_EQ(IndexSteps("a\rb\r", 1, '"', step),
              (Index{{0, 2, 4}, {1, 1}, true, ""}))
        << step;
  }
}

TEST(TextIndexTest, QuotesHoldLineEndsAndDelimiters) {
  EXPECT_EQ(IndexAll("\"a\n,\r\n\",1\nb\n", 1),
            (Index{{0, 10, 12}, {1, 1}, true, ""}));
  EXPECT_EQ(IndexAll("x,\"a\"\"\n\"\"\"\ny\n", 1),
            (Index{{0, 11, 13}, {1, 1}, true, ""}));
}

TEST(TextIndexTest, OnlyTheStartOfAFieldOpensQuotes) {
  EXPECT_EQ(IndexAll("a\"\nb\"c\"\n"), (Index{{0, 8}, {2}, true, ""}));
  // After the closing quote, everything is literal up to the delimiter.
  EXPECT_EQ(IndexAll("\"a\"b\"\n\"c\n\"\n"), (Index{{0, 11}, {2}, true, ""}));
}

TEST(TextIndexTest, WithoutQuotesEveryLineEndCounts) {
  EXPECT_EQ(IndexChunks("\"a\nb\"\n", 1 << 20, TextIndex::kNoQuote, {}),
            (Index{{0, 6}, {2}, true, ""}));
  const std::string zeros("\0a\n\0\n", 5);
  EXPECT_EQ(IndexChunks(zeros, 1 << 20, TextIndex::kNoQuote, {}),
            (Index{{0, 5}, {2}, true, ""}));
}

TEST(TextIndexTest, AByteOrderMarkIsBeforeTheFirstField) {
  for (size_t step = 1; step < 6; ++step) {
    EXPECT_EQ(IndexSteps("\xef\xbb\xbf\"a\nb\"\n", 1 << 20, '"', step),
              (Index{{0, 9}, {1}, true, ""}));
    EXPECT_EQ(IndexSteps("\xef\xbb\xbf", 1, '"', step),
              (Index{{0, 3}, {0}, true, ""}));
    EXPECT_EQ(IndexSteps("\xef\xbb\n\"\n", 1 << 20, '"', step).error,
              "record 1 at byte 3: the quote is not closed");
    EXPECT_EQ(IndexSteps("\xef\xbb", 1 << 20, '"', step),
              (Index{{0, 2}, {1}, false, ""}));
  }
}

TEST(TextIndexTest, RejectsAnUnclosedQuote) {
  EXPECT_EQ(IndexAll("a\n\nbc\nd,\"e\nf\n", 2).error,
            "record 2 at byte 6: the quote is not closed");
  EXPECT_EQ(IndexAll("a,\"").error,
            "record 0 at byte 0: the quote is not closed");
}

constexpr char kAlphabet[] = "a,\"\r\n";

TEST(TextIndexTest, EqualsTheReferenceOnAllShortTexts) {
  for (int length = 0; length <= 6; ++length) {
    int64_t count = 1;
    for (int i = 0; i < length; ++i) count *= 5;
    for (int64_t number = 0; number < count; ++number) {
      std::string text;
      for (int64_t rest = number; static_cast<int>(text.size()) < length;) {
        text.push_back(kAlphabet[rest % 5]);
        rest /= 5;
      }
      for (const int64_t block_bytes : {1, 2, 3, 100}) {
        const Index expected = Reference(text, block_bytes, '"');
        for (const size_t step : {1, 2, 3, 100}) {
          ASSERT_EQ(IndexSteps(text, block_bytes, '"', step), expected)
              << testing::PrintToString(text) << ", blocks of " << block_bytes
              << ", chunks of " << step;
        }
      }
    }
  }
}

TEST(TextIndexTest, EqualsTheReferenceOnRandomTexts) {
  std::mt19937 random(11);
  for (int i = 0; i < 20000; ++i) {
    // Few special characters, or many; short texts, or long ones.
    const size_t plain = random() % 3 == 0 ? 60 : 1;
    std::string text(random() % (i % 10 == 0 ? 2000 : 60), 'a');
    for (char& c : text) {
      const size_t number = random() % (4 + plain);
      if (number < 4) c = kAlphabet[1 + number];
    }
    if (random() % 4 == 0) {
      text.insert(0, "\xef\xbb\xbf", 1 + random() % 3);
    }
    const char quote = random() % 8 == 0 ? TextIndex::kNoQuote : '"';
    const int64_t block_bytes = 1 + random() % (2 + text.size());
    std::vector<size_t> ends(random() % 8);
    for (size_t& end : ends) end = random() % (text.size() + 1);
    std::sort(ends.begin(), ends.end());
    ASSERT_EQ(IndexChunks(text, block_bytes, quote, ends),
              Reference(text, block_bytes, quote))
        << testing::PrintToString(text) << ", blocks of " << block_bytes
        << ", chunks up to " << testing::PrintToString(ends);
  }
}

}  // namespace
}  // namespace lodestar
