#include "tf_ops/core/records/line_cutter.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

struct Cuts {
  std::vector<int64_t> bytes;
  std::vector<int64_t> records;
  Status status;
};

// Cuts `text` like a reader that gets `step` more bytes each time.
Cuts CutAll(const std::string& text, size_t step) {
  Cuts cuts;
  LineCutter cutter;
  size_t begin = 0;
  size_t end = 0;
  while (true) {
    end = std::min(text.size(), end + step);
    const bool at_end = end == text.size();
    RecordCut cut;
    cuts.status =
        cutter.Next(text.data() + begin, text.data() + end, at_end, &cut);
    if (!cuts.status.ok() || (cut.records == 0 && at_end)) return cuts;
    if (cut.records == 0) continue;
    EXPECT_EQ(cut.header, 0);
    cuts.bytes.push_back(cut.bytes);
    cuts.records.push_back(cut.records);
    begin += cut.bytes;
  }
}

TEST(LineCutterTest, CutsAfterTheLastCompleteLine) {
  const Cuts cuts = CutAll("a\nbc\ndefgh\n", 6);
  EXPECT_EQ(cuts.bytes, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(cuts.records, (std::vector<int64_t>{2, 1}));
  EXPECT_TRUE(cuts.status.ok());
}

TEST(LineCutterTest, TheLastLineMayLackItsNewline) {
  const Cuts cuts = CutAll("a\nbc", 100);
  EXPECT_EQ(cuts.bytes, (std::vector<int64_t>{4}));
  EXPECT_EQ(cuts.records, (std::vector<int64_t>{2}));
}

TEST(LineCutterTest, RejectsAnEmptyFile) {
  EXPECT_EQ(CutAll("", 8).status.message(), "the file has no records");
  EXPECT_TRUE(CutAll("\n", 8).status.ok());
}

TEST(LineCutterTest, RejectsALineThatIsTooLong) {
  const std::string text = "a\nb\n" + std::string((64 << 20) + 1, 'x');
  EXPECT_EQ(CutAll(text, text.size()).status.message(),
            "line 3: not a text file: no newline within 67108864 bytes");
}

TEST(CountNewlinesTest, EqualsACountOfBytes) {
  std::mt19937 random(7);
  const char bytes[] = {'\n', '\n', 'a', 0, 11, 9, '\x8a', '\xff', '\x0b'};
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 40, 0);
    for (char& c : text) c = bytes[random() % sizeof(bytes)];
    EXPECT_EQ(CountNewlines(text.data(), text.data() + text.size()),
              std::count(text.begin(), text.end(), '\n'));
  }
}

}  // namespace
}  // namespace lodestar
