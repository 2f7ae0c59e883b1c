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

// The lines of a text with the line end of each, and where each begins.
struct Lines {
  explicit Lines(const std::string& text) {
    std::string line;
    for (size_t i = 0; i < text.size(); ++i) {
      if (line.empty()) begins.push_back(i);
      line += text[i];
      const bool ends = text[i] == '\n' ||
                        (text[i] == '\r' && text.compare(i + 1, 1, "\n") != 0);
      if (ends || i + 1 == text.size()) {
        while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) {
          line.pop_back();
        }
        texts.push_back(line);
        line.clear();
      }
    }
    begins.push_back(text.size());
  }
  // The number of the line of a byte, from 1.
  int64_t Of(size_t at) const {
    return std::upper_bound(begins.begin(), begins.end() - 1, at) -
           begins.begin();
  }
  std::vector<std::string> texts;
  std::vector<size_t> begins;
};

// Adds the text in chunks that end at `ends`, and then the rest.
Index IndexChunks(const std::string& text, int64_t block_bytes,
                  const TextLayout& layout, const std::vector<size_t>& ends) {
  TextIndex index(block_bytes, layout);
  size_t begin = 0;
  const auto add = [&](size_t end) {
    // A copy, so that a sanitizer finds a read past the end.
    const std::vector<char> chunk(text.begin() + begin, text.begin() + end);
    begin = end;
    return index.Add(chunk.data(), chunk.data() + chunk.size());
  };
  bool good = true;
  for (size_t i = 0; i < ends.size() && good; ++i) good = add(ends[i]);
  good = good && add(text.size());
  EXPECT_TRUE(!good || index.size() == static_cast<int64_t>(text.size()));
  if (!good || !index.Finish()) {
    const Lines lines(text);
    const Status status = index.Explain([&](int64_t offset, int64_t* line) {
      *line = lines.Of(std::min<size_t>(offset, text.size() - 1));
      return Status();
    });
    return {{}, {}, true, status.message()};
  }
  return {index.offsets(), index.records(), index.ends_with_newline(), ""};
}

Index IndexSteps(const std::string& text, int64_t block_bytes,
                 const TextLayout& layout, size_t step) {
  std::vector<size_t> ends;
  for (size_t end = step; end < text.size(); end += step) ends.push_back(end);
  return IndexChunks(text, block_bytes, layout, ends);
}

Index IndexAll(const std::string& text, int64_t block_bytes = 1 << 20) {
  return IndexChunks(text, block_bytes, TextLayout(), {});
}

TextLayout Quote(char quote) {
  TextLayout layout;
  layout.quote = quote;
  return layout;
}

TextLayout Fields(int64_t num_fields) {
  TextLayout layout;
  layout.num_fields = num_fields;
  return layout;
}

TextLayout Skip(int64_t lines) {
  TextLayout layout;
  layout.skip_lines = lines;
  return layout;
}

constexpr char kNotClosed[] =
    ": the quote of a field is not closed. Pass `quote=\"\"` if quotes are "
    "ordinary characters";

std::string BadClose(int64_t line, int64_t first, const std::string& found) {
  return StrCat("line ", line, ": a quoted field ",
                first == line ? "" : StrCat("from line ", first, " "),
                "ends before ", found,
                ", expected the delimiter or a line end. Double a quote inside "
                "quotes, or pass `quote=\"\"` if quotes are ordinary "
                "characters");
}

std::string TwoReadings(int64_t first, int64_t last, int64_t fields) {
  return StrCat("line ", first, ": a quoted field goes on to line ", last,
                ", but each of these lines is a row of ", fields,
                " fields if quotes are ordinary characters. Pass `quote=\"\"` "
                "if they are, or `quote='\"'` if the field spans lines");
}

// The expected index, computed one line and field at a time.
Index Reference(const std::string& text, int64_t block_bytes,
                const TextLayout& layout) {
  const Lines lines(text);
  const size_t size = text.size();
  const char quote = layout.quote;
  Index index;
  size_t at = text.compare(0, 3, "\xef\xbb\xbf") == 0 ? 3 : 0;
  int64_t records = 0;
  if (layout.skip_lines > 0) {
    const size_t last = lines.begins.size() - 1;
    at = lines.begins[std::min<size_t>(layout.skip_lines, last)];
  }
  index.offsets = {layout.skip_lines > 0 ? static_cast<int64_t>(at) : 0};
  while (at < size) {
    const size_t first = at;
    size_t spans_from = size;  // the quotes that hold the first line end
    bool in_line = true;
    while (in_line) {  // a field
      if (quote != TextLayout::kNoQuote && at < size && text[at] == quote) {
        const size_t open = at++;
        while (true) {
          if (at == size) {
            return {{}, {}, true, StrCat("line ", lines.Of(open), kNotClosed)};
          }
          if (text[at] == '\n' || text[at] == '\r') {
            spans_from = std::min(spans_from, open);
          }
          if (text[at++] != quote) continue;
          if (at == size || text[at] != quote) break;
          ++at;
        }
        if (at < size && text[at] != ',' && text[at] != '\r' &&
            text[at] != '\n') {
          return {{},
                  {},
                  true,
                  BadClose(lines.Of(at), lines.Of(open),
                           std::string("'") + text[at] + "'")};
        }
      }
      while (at < size && text[at] != ',' && text[at] != '\r' &&
             text[at] != '\n') {
        ++at;
      }
      in_line = at < size && text[at] == ',';
      at += in_line;
    }
    if (spans_from < size && layout.num_fields > 0) {
      const int64_t last = lines.Of(at == size ? at - 1 : at);
      bool all = true;
      for (int64_t i = lines.Of(first); i <= last; ++i) {
        const std::string& line = lines.texts[i - 1];
        const int64_t fields = 1 + std::count(line.begin(), line.end(), ',');
        all &= line.empty() || fields == layout.num_fields;
      }
      if (all) {
        return {{},
                {},
                true,
                TwoReadings(lines.Of(spans_from), last, layout.num_fields)};
      }
    }
    records += at > first;
    index.ends_with_newline = at < size;
    if (text.compare(at, 2, "\r\n") == 0) ++at;
    if (at < size) ++at;
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

TEST(TextIndexTest, EmptyLinesAreNotRecords) {
  EXPECT_EQ(IndexAll("\n\r\n\r\r\n"), (Index{{0, 6}, {0}, true, ""}));
  EXPECT_EQ(IndexAll("\n\na\n\n\nb\n\n"), (Index{{0, 9}, {2}, true, ""}));
  EXPECT_EQ(IndexAll("a\n\n\n", 2), (Index{{0, 2, 4}, {1, 0}, true, ""}));
  // These have fields.
  EXPECT_EQ(IndexAll("\"\"\n,\n \n"), (Index{{0, 7}, {3}, true, ""}));
}

TEST(TextIndexTest, RejectsQuotesThatCloseBeforeOtherText) {
  EXPECT_EQ(IndexAll("a\n\"b\"c\n").error, BadClose(2, 2, "'c'"));
  EXPECT_EQ(IndexAll("a,\"b\n\r\nc\" ,d\n").error,
            BadClose(3, 1, "the byte 32"));
  EXPECT_EQ(IndexAll("\"b\"\xff\n").error, BadClose(1, 1, "the byte 255"));
  // Lines of a tab-separated file whose values begin with a quote.
  TextLayout layout = Fields(2);
  layout.delimiter = '\t';
  const std::string text =
      "id\ttext\n1\t\"heroes\n2\tbeans\n3\tsoup\n4\t\"low\n5\ttea\n";
  for (size_t step = 1; step < 40; ++step) {
    EXPECT_EQ(IndexSteps(text, 9, layout, step).error, BadClose(5, 2, "'l'"));
  }
  layout.quote = TextLayout::kNoQuote;
  EXPECT_EQ(IndexSteps(text, 99, layout, 7).records, (std::vector<int64_t>{6}));
}

TEST(TextIndexTest, RejectsRecordsWithTwoReadings) {
  const std::string text = "a,b\n1,\"x\n\n2,y\"\n3,z\n";
  for (size_t step = 1; step < 20; ++step) {
    EXPECT_EQ(IndexSteps(text, 3, Fields(2), step).error, TwoReadings(2, 4, 2));
    EXPECT_EQ(IndexSteps(text, 99, Fields(3), step).records,
              (std::vector<int64_t>{3}));
    EXPECT_EQ(IndexSteps(text, 99, Fields(0), step).records,
              (std::vector<int64_t>{3}));
  }
  EXPECT_EQ(IndexChunks("\"a\nb\"", 9, Fields(1), {}).error,
            TwoReadings(1, 2, 1));
  // A line of another number of fields belongs to a quoted field.
  EXPECT_EQ(IndexChunks("1,\"x\n2\ny,z\"\n", 99, Fields(2), {}).records,
            (std::vector<int64_t>{1}));
  EXPECT_EQ(IndexChunks("1,\"x,\n2,y\"\n", 99, Fields(2), {}).records,
            (std::vector<int64_t>{1}));
}

TEST(TextIndexTest, SkipsLinesOfAnyContent) {
  for (size_t step = 1; step < 12; ++step) {
    EXPECT_EQ(IndexSteps("\"sep\r\n\r\na\nb\n", 1, Skip(2), step),
              (Index{{8, 10, 12}, {1, 1}, true, ""}));
    EXPECT_EQ(IndexSteps("x\r\"b", 99, Skip(1), step).error,
              StrCat("line 2", kNotClosed));
    EXPECT_EQ(IndexSteps("x\r\n", 1, Skip(1), step),
              (Index{{3}, {}, true, ""}));
    EXPECT_EQ(IndexSteps("xy", 1, Skip(1), step), (Index{{2}, {}, true, ""}));
    EXPECT_EQ(IndexSteps("xy\n", 1, Skip(3), step), (Index{{3}, {}, true, ""}));
  }
}

TEST(TextIndexTest, WithoutQuotesEveryLineEndCounts) {
  EXPECT_EQ(IndexChunks("\"a\nb\"\n", 1 << 20, Quote(TextLayout::kNoQuote), {}),
            (Index{{0, 6}, {2}, true, ""}));
  const std::string zeros("\0a\n\0\n", 5);
  EXPECT_EQ(IndexChunks(zeros, 1 << 20, Quote(TextLayout::kNoQuote), {}),
            (Index{{0, 5}, {2}, true, ""}));
}

TEST(TextIndexTest, AByteOrderMarkIsBeforeTheFirstField) {
  for (size_t step = 1; step < 6; ++step) {
    EXPECT_EQ(IndexSteps("\xef\xbb\xbf\"a\nb\"\n", 1 << 20, TextLayout(), step),
              (Index{{0, 9}, {1}, true, ""}));
    EXPECT_EQ(IndexSteps("\xef\xbb\xbf", 1, TextLayout(), step),
              (Index{{0, 3}, {0}, true, ""}));
    EXPECT_EQ(IndexSteps("\xef\xbb\n\"\n", 1 << 20, TextLayout(), step).error,
              StrCat("line 2", kNotClosed));
    EXPECT_EQ(IndexSteps("\xef\xbb", 1 << 20, TextLayout(), step),
              (Index{{0, 2}, {1}, false, ""}));
  }
}

TEST(TextIndexTest, RejectsAnUnclosedQuote) {
  EXPECT_EQ(IndexAll("a\n\nbc\nd,\"e\nf\n", 2).error,
            StrCat("line 4", kNotClosed));
  EXPECT_EQ(IndexAll("a,\"").error, StrCat("line 1", kNotClosed));
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
        TextLayout layout = Fields(number % 3);
        layout.skip_lines = number % 7 == 0 ? 1 + number % 2 : 0;
        const Index expected = Reference(text, block_bytes, layout);
        for (const size_t step : {1, 2, 3, 100}) {
          ASSERT_EQ(IndexSteps(text, block_bytes, layout, step), expected)
              << testing::PrintToString(text) << ", blocks of " << block_bytes
              << ", chunks of " << step;
        }
      }
    }
  }
}

TEST(TextIndexTest, EqualsTheReferenceOnRandomTexts) {
  std::mt19937 random(11);
  int num_good = 0;
  for (int i = 0; i < 30000; ++i) {
    // Few special characters, or many; short texts, or long ones.
    const size_t plain = random() % 3 == 0 ? 60 : 1;
    std::string text;
    const size_t size = random() % (i % 10 == 0 ? 2000 : 60);
    while (text.size() < size) {
      const size_t number = random() % (4 + plain);
      text += number < 4 ? kAlphabet[1 + number] : 'a';
      // Without well-formed fields, most texts have errors.
      if (i % 2 == 0 && text.back() == '"') {
        text.back() = ',';
        text += random() % 2 ? "\"a\"\"\n,\"" : "\"\"";
        text += random() % 2 ? "," : "\r\n";
      }
    }
    if (random() % 4 == 0) {
      text.insert(0, "\xef\xbb\xbf", 1 + random() % 3);
    }
    TextLayout layout = Fields(random() % 4);
    if (random() % 8 == 0) layout.quote = TextLayout::kNoQuote;
    if (random() % 8 == 0) layout.skip_lines = random() % 4;
    const int64_t block_bytes = 1 + random() % (2 + text.size());
    std::vector<size_t> ends(random() % 8);
    for (size_t& end : ends) end = random() % (text.size() + 1);
    std::sort(ends.begin(), ends.end());
    const Index expected = Reference(text, block_bytes, layout);
    num_good += expected.error.empty();
    ASSERT_EQ(IndexChunks(text, block_bytes, layout, ends), expected)
        << testing::PrintToString(text) << ", blocks of " << block_bytes
        << ", chunks up to " << testing::PrintToString(ends);
  }
  EXPECT_GT(num_good, 10000);
  EXPECT_LT(num_good, 25000);
}

}  // namespace
}  // namespace lodestar
