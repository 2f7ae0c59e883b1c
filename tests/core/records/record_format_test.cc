// Reads mutated files of every record format in pieces of any size. Expects an
// error or samples, no reads out of bounds (run under --config=asan), and no
// partial columns.

#include "tf_ops/core/records/record_format.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/records/record_files.h"
#include "tf_ops/core/records/instant_format.h"
#include "tf_ops/core/records/multislot_format.h"
#include "tf_ops/core/records/norm_format.h"
#include "tf_ops/core/records/raw_format.h"

namespace lodestar {
namespace {

constexpr int kInputsOfOneCase = 12000;
// Relative to the root of the checkout, where Bazel runs tests.
constexpr char kCorpus[] = "tests/core/records/corpus";

// A format and a valid file of it.
struct Case {
  std::string name;
  std::shared_ptr<RecordFormat> format;
  // The parts of the file: lines, or samples after a header.
  std::vector<std::string> parts;
  bool framed = false;  // whether each part has its length and checksum
};

std::string Join(const Case& c, const std::vector<std::string>& parts) {
  std::string file;
  for (const std::string& part : parts) {
    if (!c.framed) {
      file += part;
      continue;
    }
    uint8_t sum = 0;
    for (const char byte : part) sum += static_cast<uint8_t>(byte);
    file += BytesOf(static_cast<int32_t>(part.size())) + part + BytesOf(sum);
  }
  return file;
}

// A label, two dense values, one-hot C1, and C2, C3 with any number of values.
std::vector<ColumnSpec> Plain(bool with_limits) {
  return {{"click", false, 1, with_limits ? 2 : 0},
          {"I", true, 2, 0},
          {"C1", false, 1, 9},
          {"C2", false, -1, with_limits ? 1000 : 0},
          {"C3", false, -1, 0}};
}

// The same with C2 in pairs, equally many values in C3, and unused slots.
std::vector<ColumnSpec> Bound() {
  std::vector<ColumnSpec> specs = Plain(false);
  specs[1].used = false;
  specs[3].multiple = 2;
  specs[4].weighs = 3;
  return specs;
}

std::vector<ColumnSpec> Unused() {
  std::vector<ColumnSpec> specs = Plain(true);
  for (const int c : {0, 2, 3}) specs[c].used = false;
  return specs;
}

const std::vector<FieldKind> kKinds = {FieldKind::kLabel, FieldKind::kDense,
                                       FieldKind::kKeys, FieldKind::kKeys,
                                       FieldKind::kKeys};

Case MultiSlotCase(const std::string& name, std::vector<ColumnSpec> specs) {
  for (ColumnSpec& spec : specs) spec.is_float |= spec.weighs >= 0;
  return {name,
          std::make_shared<MultiSlotFormat>(specs),
          {"1 1 2 .5 1e3 1 8 2 5 999 2 1 2\n", "1 0 2 -1 nan 1 0 0 0\n",
           "1 1 2 0x1p1 7 1 3 4 1 2 3 4 4 9 8 7 6\t\r\n"}};
}

template <typename Key>
std::string Sample(float click, const std::vector<std::vector<Key>>& slots) {
  std::string bytes = BytesOf(std::vector<float>{click, .5, -2});
  for (const std::vector<Key>& keys : slots) {
    bytes += BytesOf(static_cast<int32_t>(keys.size())) + BytesOf(keys);
  }
  return bytes;
}

template <typename Key>
Case NormCase(const std::string& name, std::vector<ColumnSpec> specs,
              bool framed) {
  const KeyType type = sizeof(Key) == 8 ? KeyType::kInt64 : KeyType::kUint32;
  const NormOptions options = {{kKinds, type}};
  EXPECT_TRUE(NormFormat::Check(specs, options).ok());
  Case c = {name,
            std::make_shared<NormFormat>(specs, options),
            {BytesOf(std::vector<int64_t>{framed, 70, 1, 2, 3, 0, 0, 0})},
            framed};
  // More than one block of samples.
  for (int i = 0; i < 70; ++i) {
    const std::vector<Key> keys(i % 3 == 0 ? 2 * (i % 5) : 2, i);
    c.parts.push_back(
        Sample<Key>(i % 2, {{static_cast<Key>(i % 9)}, keys, keys}));
  }
  return c;
}

Case RawCase(const std::string& name, std::vector<ColumnSpec> specs,
             NumberType label, NumberType dense, KeyType key,
             int64_t num_samples) {
  RawOptions options;
  options.layout.kinds = kKinds;
  options.layout.label = label;
  options.layout.dense = dense;
  options.layout.key = key;
  options.layout.nnz = {1, 2, 2};
  options.num_samples = num_samples;
  EXPECT_TRUE(RawFormat::Check(specs, options).ok());
  Case c = {name, std::make_shared<RawFormat>(specs, options), {}};
  for (int i = 0; i < 70; ++i) {
    std::string part = label == NumberType::kFloat
                           ? BytesOf(static_cast<float>(i % 2))
                           : BytesOf(int32_t{i % 2});
    for (int k = 0; k < 2; ++k) {
      part += dense == NumberType::kFloat ? BytesOf(.5f) : BytesOf(int32_t{i});
    }
    for (int64_t k : {i % 9, i, 2, 3, 4}) {
      part += key == KeyType::kInt64 ? BytesOf(k)
                                     : BytesOf(static_cast<int32_t>(k));
    }
    c.parts.push_back(part);
  }
  return c;
}

Case InstantCase(const std::string& name, std::vector<ColumnSpec> specs) {
  std::vector<bool> batch_sizes;
  for (const ColumnSpec& spec : specs) {
    batch_sizes.push_back(spec.used && spec.size >= 0);
  }
  Case c = {name, std::make_shared<InstantFormat>(specs, batch_sizes), {}};
  for (int i = 0; i < 70; ++i) {
    std::string part;
    const auto add = [&](int column, const std::string& values, int count) {
      const bool sized = batch_sizes[column];
      part += BytesOf(static_cast<uint16_t>(count + sized));
      if (sized) part += BytesOf(int64_t{32});
      part += values;
    };
    add(0, BytesOf(int64_t{i % 2}), 1);
    add(1, BytesOf(std::vector<float>{.5, -2}), 2);
    add(2, BytesOf(int64_t{i % 9}), 1);
    const std::vector<int64_t> ids(i % 3 == 0 ? 4 : 2, i);
    add(3, BytesOf(ids), static_cast<int>(ids.size()));
    add(4, BytesOf(ids), static_cast<int>(ids.size()));
    c.parts.push_back(part);
  }
  return c;
}

std::vector<Case> Cases() {
  return {
      InstantCase("instant", Plain(true)),
      InstantCase("instant_bound", Bound()),
      InstantCase("instant_unused", Unused()),
      MultiSlotCase("multislot", Plain(true)),
      MultiSlotCase("multislot_bound", Bound()),
      NormCase<uint32_t>("norm_none", Plain(true), false),
      NormCase<uint32_t>("norm_sum", Plain(true), true),
      NormCase<int64_t>("norm_none_int64", Bound(), false),
      NormCase<int64_t>("norm_sum_int64", Bound(), true),
      NormCase<uint32_t>("norm_none_unused", Unused(), false),
      NormCase<int64_t>("norm_sum_unused", Unused(), true),
      RawCase("raw_float", Plain(true), NumberType::kFloat, NumberType::kFloat,
              KeyType::kUint32, 0),
      RawCase("raw_int", Bound(), NumberType::kInt, NumberType::kLogOfInt,
              KeyType::kInt32, 70),
      RawCase("raw_int64", Unused(), NumberType::kInt, NumberType::kFloat,
              KeyType::kInt64, 20),
  };
}

const Case& CaseOf(const std::vector<Case>& cases, const std::string& name) {
  for (const Case& c : cases) {
    if (c.name == name) return c;
  }
  ADD_FAILURE() << "no case is called " << name;
  return cases[0];
}

void Mutate(std::mt19937* random, std::string* bytes) {
  const auto below = [random](size_t n) { return (*random)() % n; };
  if (bytes->empty()) *bytes = "\n";
  const size_t at = below(bytes->size());
  static const int32_t kWords[] = {
      0, 1, -1, 2, 64, INT32_MAX, INT32_MIN, 1 << 24, 1 << 29, 0x3f800000};
  switch (below(7)) {
    case 0:
      (*bytes)[at] = static_cast<char>((*random)());
      break;
    case 1:
      (*bytes)[at] ^= 1 << below(8);
      break;
    case 2:
      bytes->resize(at);
      break;
    case 3:
      bytes->erase(at, 1 + below(8));
      break;
    case 4:
      bytes->insert(at, bytes->substr(below(bytes->size()), 1 + below(16)));
      break;
    case 5:
      bytes->insert(at, 1, " 0-e\n"[below(5)]);
      break;
    default: {
      const std::string word = BytesOf(kWords[below(std::size(kWords))]);
      const size_t aligned = at / 4 * 4;
      bytes->replace(aligned, std::min<size_t>(4, bytes->size() - aligned),
                     word);
    }
  }
}

// Checks invariants of the result, whatever the bytes were.
void CheckRead(const RecordFormat& format, const ReadFile& read, bool skip) {
  const int64_t rows = read.rows.num_rows();
  for (size_t c = 0; c < format.specs().size(); ++c) {
    const ColumnSpec& spec = format.specs()[c];
    const SlotColumn& column = read.rows.columns()[c];
    const auto num_values =
        static_cast<int64_t>(column.ints.size() + column.floats.size());
    ASSERT_TRUE((spec.is_float ? column.ints.size() : column.floats.size()) ==
                0);
    if (!spec.used) {
      ASSERT_EQ(num_values, 0);
      continue;
    }
    if (spec.size >= 0) {
      ASSERT_EQ(num_values, rows * spec.size);
    } else {
      ASSERT_EQ(static_cast<int64_t>(column.row_splits.size()), rows + 1);
      ASSERT_EQ(column.row_splits.front(), 0);
      ASSERT_EQ(column.row_splits.back(), num_values);
      ASSERT_TRUE(
          std::is_sorted(column.row_splits.begin(), column.row_splits.end()));
    }
    for (const int64_t value : column.ints) {
      ASSERT_TRUE(spec.limit == 0 || (value >= 0 && value < spec.limit));
    }
  }
  if (skip) {
    ASSERT_EQ(rows + read.num_rejected, read.num_cut);
  } else {
    ASSERT_LE(read.messages.size(), 1u);
    ASSERT_LE(rows, read.num_cut);
    if (read.messages.empty()) {
      ASSERT_EQ(rows, read.num_cut);
    }
  }
  for (const std::string& message : read.messages) {
    ASSERT_GT(message.size(), 10u);
  }
}

void CheckFile(const RecordFormat& format, const std::string& file,
               int64_t chunk) {
  const ReadFile whole = ReadRecords(format, file);
  CheckRead(format, whole, false);
  // Other piece boundaries do not change the result.
  const ReadFile pieces = ReadRecords(format, file, chunk);
  CheckRead(format, pieces, false);
  ASSERT_EQ(pieces.messages.size(), whole.messages.size());
  ASSERT_EQ(pieces.rows.num_rows(), whole.rows.num_rows());
  for (size_t c = 0; c < format.specs().size(); ++c) {
    ASSERT_EQ(pieces.rows.columns()[c].ints, whole.rows.columns()[c].ints);
  }
  if (!whole.messages.empty()) {
    CheckRead(format, ReadRecords(format, file, 1 << 20, true), true);
  }
}

TEST(RecordFormatTest, UnmutatedFilesAreGood) {
  for (const Case& c : Cases()) {
    for (const int64_t chunk : {1, 5, 100, 1 << 20}) {
      const ReadFile read = ReadRecords(*c.format, Join(c, c.parts), chunk);
      CheckRead(*c.format, read, false);
      EXPECT_TRUE(read.messages.empty()) << c.name << read.messages[0];
      EXPECT_GE(read.rows.num_rows(), 3) << c.name;
    }
  }
}

TEST(RecordFormatTest, SurvivesMutatedFiles) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(20 + c.name.size());
    int good = 0;
    std::set<std::string> kinds_of_error;
    for (int i = 0; i < kInputsOfOneCase; ++i) {
      std::vector<std::string> parts = c.parts;
      // Usually only a few samples around the damage.
      if (random() % 8 != 0) parts.resize(std::min<size_t>(parts.size(), 6));
      const int edits = random() % 3;
      // With a valid checksum, so that the code behind the check is reached.
      for (int e = 0; e < edits; ++e) {
        Mutate(&random, &parts[random() % parts.size()]);
      }
      if (c.name.find("norm") == 0 && parts[0].size() >= 16 &&
          random() % 4 != 0) {
        parts[0].replace(8, 8, BytesOf(static_cast<int64_t>(parts.size() - 1)));
      }
      std::string file = Join(c, parts);
      for (int e = random() % 3 - (edits > 0); e > 0; --e) {
        Mutate(&random, &file);
      }
      const int64_t chunk =
          file.size() > 1000 ? 200 + random() % 400 : 1 + random() % 100;
      CheckFile(*c.format, file, chunk);
      if (HasFatalFailure()) {
        const std::string path = testing::TempDir() + c.name + ".bad-fuzz";
        std::ofstream(path, std::ios::binary) << file;
        FAIL() << "input " << i << " with pieces of " << chunk
               << " bytes is kept as " << path;
      }
      const ReadFile read = ReadRecords(*c.format, file);
      good += read.messages.empty();
      for (const std::string& message : read.messages) {
        std::string kind;
        for (const char letter : message) {
          if (letter < '0' || letter > '9') kind += letter;
        }
        kinds_of_error.insert(kind);
      }
    }
    // Neither all rejected at the first byte nor all accepted.
    EXPECT_GT(good, kInputsOfOneCase / 100);
    EXPECT_LT(good, kInputsOfOneCase * 9 / 10);
    EXPECT_GT(kinds_of_error.size(), 3u);
  }
}

// Files are named <case>.good-* or <case>.bad-*.
TEST(RecordFormatTest, Corpus) {
  const std::vector<Case> cases = Cases();
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
    const std::string name = entry.path().filename().string();
    const size_t dot = name.find('.');
    if (name == "README.md") continue;
    SCOPED_TRACE(name);
    const Case& c = CaseOf(cases, name.substr(0, dot));
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(stream), {}};
    for (const int64_t chunk : {1, 2, 13, 64, 1 << 20}) {
      CheckFile(*c.format, file, chunk);
    }
    EXPECT_EQ(ReadRecords(*c.format, file).messages.empty(),
              name.compare(dot, 6, ".good-") == 0);
    ++num_files;
  }
  EXPECT_GT(num_files, 30);
}

}  // namespace
}  // namespace lodestar
