#include "tf_ops/core/records/instant_format.h"

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

std::string Count(int count) { return BytesOf(static_cast<uint16_t>(count)); }

// A binary label, ids and two floats.
std::vector<ColumnSpec> Specs() {
  return {{"click", false, 1, 2}, {"ids", false, -1, 0}, {"I", true, 2, 0}};
}

const std::vector<bool> kBatchSizes = {true, false, true};

std::string Sample(int64_t click, const Ints& ids, const Floats& dense,
                   int64_t batch_size = 7) {
  return Count(2) + BytesOf(batch_size) + BytesOf(click) +
         Count(static_cast<int>(ids.size())) + BytesOf(ids) +
         Count(static_cast<int>(dense.size()) + 1) + BytesOf(batch_size) +
         BytesOf(dense);
}

TEST(InstantFormatTest, WorkedExample) {
  const InstantFormat format(Specs(), kBatchSizes);
  const std::string file =
      FromHex(
          "02 00 02 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 "
          "01 00 ff ff ff ff ff ff ff ff "
          "03 00 02 00 00 00 00 00 00 00 00 00 00 3f 00 00 00 c0") +
      Sample(0, {5, 6}, {1, 2});
  for (const int64_t chunk : {1, 46, 1000}) {
    const ReadFile read = ReadRecords(format, file, chunk);
    EXPECT_EQ(read.messages, Strings());
    EXPECT_EQ(read.rows.num_rows(), 2);
    EXPECT_EQ(read.num_cut, 2);
    const auto& columns = read.rows.columns();
    EXPECT_EQ(columns[0].ints, (Ints{1, 0}));
    EXPECT_EQ(columns[1].ints, (Ints{-1, 5, 6}));
    EXPECT_EQ(columns[1].row_splits, (Ints{0, 1, 3}));
    EXPECT_EQ(columns[2].floats, (Floats{.5, -2, 1, 2}));
  }
}

TEST(InstantFormatTest, AnUnusedSlotWithoutABatchSize) {
  std::vector<ColumnSpec> specs = Specs();
  specs[2].used = false;
  const ReadFile read =
      ReadRecords(InstantFormat(specs, {true, false, false}),
                  Count(2) + BytesOf(Ints{4, 1}) + Count(1) + BytesOf(Ints{9}) +
                      Count(2) + BytesOf(Floats{1, 2}));
  EXPECT_EQ(read.messages, Strings());
  EXPECT_EQ(read.rows.columns()[1].ints, Ints{9});
  EXPECT_TRUE(read.rows.columns()[2].floats.empty());
}

TEST(InstantFormatTest, LargestCounts) {
  const Ints ids(UINT16_MAX, 3);
  const std::string file = Sample(1, ids, {1, 2});
  for (const int64_t chunk : {int64_t{100000}, int64_t{1} << 20}) {
    const ReadFile read =
        ReadRecords(InstantFormat(Specs(), kBatchSizes), file + file, chunk);
    EXPECT_EQ(read.messages, Strings());
    EXPECT_EQ(read.rows.num_rows(), 2);
    EXPECT_EQ(read.rows.columns()[1].ints, Ints(2 * ids.size(), 3));
  }
}

TEST(InstantFormatTest, ErrorsDescribePositionAndValue) {
  std::vector<ColumnSpec> weights = Specs();
  weights[2] = {"w", true, -1, 0};
  weights[2].weighs = 1;
  const std::string good = Sample(1, {5, 6}, {1, 2});
  ASSERT_EQ(good.size(), 54u);
  const std::string label = good.substr(0, 18);
  const struct {
    std::vector<ColumnSpec> specs;
    std::string file;
    std::string message;
  } cases[] = {
      {Specs(), "", "f: the file has no records"},
      {Specs(), good + good.substr(0, 1),
       "f: record 1 at byte 54: slot 'click' at its byte 0: found 1 bytes, "
       "expected 2: the file is truncated"},
      {Specs(), good + good.substr(0, 53),
       "f: record 1 at byte 54: slot 'I' at its byte 36: found 17 bytes, "
       "expected 18: the file is truncated"},
      {Specs(), good + Count(1) + good.substr(2),
       "f: record 1 at byte 54: slot 'click' at its byte 0: count is 1, "
       "expected 2, including a batch size; check the slots and their order"},
      {Specs(), label + Count(0) + good,
       "f: record 0 at byte 0: slot 'ids' at its byte 18: count is 0, expected "
       "1 or more; check the slots and their order"},
      {Specs(), good + Sample(1, {5}, {1, 2, 3}) + good,
       "f: record 1 at byte 54: slot 'I' at its byte 28: count is 4, expected "
       "3, including a batch size; check the slots and their order"},
      {Specs(), good + Sample(2, {5}, {1, 2}) + good,
       "f: record 1 at byte 54: slot 'click' at its byte 0: value 1 of 1 is 2, "
       "expected 0 or 1"},
      {weights,
       label + Count(2) + BytesOf(Ints{5, 6}) + Count(1) + BytesOf(Floats{1}),
       "f: record 0 at byte 0: slot 'w': found 1 weights, expected "
       "one for each of the 2 ids of slot 'ids'"},
  };
  for (const auto& bad : cases) {
    for (const int64_t chunk : {1, 7, 1000}) {
      const bool dense = bad.specs[2].size > 0;
      const InstantFormat format(bad.specs, {true, false, dense});
      EXPECT_EQ(ReadRecords(format, bad.file, chunk).messages,
                Strings{bad.message});
    }
  }
}

TEST(InstantFormatTest, ContinuesAfterABadValueButNotAfterABadCount) {
  const std::string good = Sample(1, {5, 6}, {1, 2});
  const std::string bad = Sample(2, {5}, {1, 2});
  std::string file = bad + good + bad + good;
  for (const int64_t chunk : {1, 100, 1000}) {
    ReadFile read = ReadRecords(InstantFormat(Specs(), kBatchSizes), file,
                                chunk, /*skip=*/true);
    EXPECT_EQ(read.num_rejected, 2);
    EXPECT_EQ(read.rows.num_rows(), 2);
    read = ReadRecords(InstantFormat(Specs(), kBatchSizes),
                       file + Count(0) + file, chunk,
                       /*skip=*/true);
    EXPECT_EQ(read.num_rejected, 3);
    EXPECT_EQ(read.rows.num_rows(), 2);
    EXPECT_EQ(read.num_cut, 5);
  }
}

}  // namespace
}  // namespace lodestar
