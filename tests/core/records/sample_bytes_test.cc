#include "tf_ops/core/records/sample_bytes.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/records/slot_samples.h"
#include "tf_ops/core/base/crc32c.h"

namespace lodestar {
namespace {

Status Decode(const std::string& bytes, SlotRows* rows,
              const std::vector<ColumnSpec>& specs = Specs()) {
  return DecodeSamples(specs, bytes.data(), static_cast<int64_t>(bytes.size()),
                       rows);
}

// Returns `bytes` with the correct checksum.
std::string WithChecksum(std::string bytes) {
  const uint32_t crc =
      Crc32c(bytes.data() + 12, static_cast<int64_t>(bytes.size()) - 12);
  std::memcpy(&bytes[8], &crc, sizeof(crc));
  return bytes;
}

TEST(SampleBytesTest, RoundTripsSamples) {
  for (const int64_t count : {0, 1, 2, 1024, 3000}) {
    const SlotRows rows = MakeRows(0, count);
    SlotRows decoded;
    ASSERT_TRUE(Decode(EncodeSamples(Specs(), rows), &decoded).ok());
    ExpectEqual(decoded, rows);
  }
}

TEST(SampleBytesTest, RoundTripsStringsAndUnusedColumns) {
  std::vector<ColumnSpec> specs(2);
  specs[0].is_text = true;
  specs[1].used = false;
  SlotRows rows(specs);
  rows.mutable_column(0)->text = std::string("a\0bc", 4);
  rows.mutable_column(0)->row_splits = {0, 3, 3, 4};
  rows.AddRows(3);
  SlotRows decoded;
  ASSERT_TRUE(Decode(EncodeSamples(specs, rows), &decoded, specs).ok());
  ExpectEqual(decoded, rows);
  EXPECT_EQ(decoded.columns()[0].text, rows.columns()[0].text);
}

TEST(SampleBytesTest, DetectsEveryChangedOrMissingByte) {
  const std::string bytes = EncodeSamples(Specs(), MakeRows(0, 5));
  SlotRows rows;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] ^= 1;
    EXPECT_FALSE(Decode(changed, &rows).ok()) << i;
    EXPECT_FALSE(Decode(bytes.substr(0, i), &rows).ok()) << i;
  }
  EXPECT_EQ(Decode(bytes.substr(0, 30), &rows).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Decode("", &rows).code(), StatusCode::kInvalidArgument);
}

TEST(SampleBytesTest, RejectsOtherSlots) {
  const std::string bytes = EncodeSamples(Specs(), MakeRows(0, 5));
  const std::string names[] = {"m", Specs()[1].name, Specs()[3].name};
  for (int change = 0; change < 4; ++change) {
    std::vector<ColumnSpec> specs = Specs();
    if (change == 0) specs[0].name = "m";
    if (change == 1) specs[1].size = 1;
    if (change == 2) specs[3].weighs = 2;
    if (change == 3) specs.pop_back();
    SlotRows rows;
    const Status status = Decode(bytes, &rows, specs);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              StrCat("the samples have other slots: ",
                     change == 3 ? "found 4 slots, expected 3"
                                 : "slot '" + names[change] + "' differs"));
  }
}

TEST(SampleBytesTest, NeverReadsBeyondTheBytes) {
  const std::string bytes = EncodeSamples(Specs(), MakeRows(0, 5));
  SlotRows rows;
  ASSERT_TRUE(Decode(WithChecksum(bytes), &rows).ok());
  for (size_t at = 16; at + 8 <= bytes.size(); at += 8) {
    for (const int64_t value : {INT64_MIN, int64_t{-1}, int64_t{1} << 40,
                                int64_t{1} << 62, INT64_MAX}) {
      std::string changed = bytes;
      std::memcpy(&changed[at], &value, sizeof(value));
      const Status status = Decode(WithChecksum(changed), &rows);
      if (at == 16) {
        EXPECT_EQ(status.code(), StatusCode::kDataLoss);
      }
      if (status.ok()) {
        EXPECT_EQ(rows.num_rows(), 5);
      }
    }
  }
  EXPECT_EQ(Decode(WithChecksum(bytes + "x"), &rows).code(),
            StatusCode::kDataLoss);
}

}  // namespace
}  // namespace lodestar
