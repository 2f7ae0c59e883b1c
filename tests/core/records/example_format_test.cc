#include "tf_ops/core/records/example_format.h"

#include <string>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

bool IsExample(const std::string& bytes) {
  return lodestar::IsExample(bytes.data(), bytes.data() + bytes.size());
}

std::string Field(char number, const std::string& bytes) {
  std::string field(1, static_cast<char>(number << 3 | 2));
  return field + static_cast<char>(bytes.size()) + bytes;
}

const std::string kFeature = Field(3, Field(1, "\x05"));
const std::string kEntry = Field(1, "id") + Field(2, kFeature);
const std::string kExample = Field(1, Field(1, kEntry) + Field(1, kEntry));

TEST(ExampleFormatTest, AcceptsExamples) {
  EXPECT_TRUE(IsExample(""));
  EXPECT_TRUE(IsExample(Field(1, "")));
  EXPECT_TRUE(IsExample(kExample));
  // Two concatenated messages are merged.
  EXPECT_TRUE(IsExample(kExample + kExample));
  // A map entry has its fields in any order; both are optional.
  EXPECT_TRUE(IsExample(
      Field(1, Field(1, Field(2, kFeature) + Field(1, "id")) + Field(1, ""))));
  // Unknown fields are skipped: bytes, a varint, 8 and 4 bytes.
  EXPECT_TRUE(IsExample(kExample + Field(7, "\xff")));
  EXPECT_TRUE(IsExample(std::string("\x38\xff\x01", 3) + kExample));
  EXPECT_TRUE(IsExample(std::string("\x39", 1) + std::string(8, '\xff')));
  EXPECT_TRUE(IsExample(std::string("\x3d", 1) + std::string(4, '\xff')));
}

TEST(ExampleFormatTest, RejectsOtherBytes) {
  for (const std::string bytes :
       {"\xff\xff\xff", "\n\x05", "text", "\x03\x04", "\x08"}) {
    EXPECT_FALSE(IsExample(bytes)) << bytes;
  }
  EXPECT_FALSE(IsExample(std::string(1, '\0')));
  EXPECT_FALSE(IsExample(std::string(11, '\xff')));
  EXPECT_FALSE(IsExample(std::string("\x39", 1) + std::string(7, '\1')));
  // Damage in features, a map entry, and its key.
  EXPECT_FALSE(IsExample(Field(1, "\xff\xff")));
  EXPECT_FALSE(IsExample(Field(1, Field(1, "\xff\xff"))));
  EXPECT_FALSE(IsExample(Field(1, Field(1, Field(3, "id")))));
}

TEST(ExampleFormatTest, NeverReadsBeyondTheEnd) {
  for (size_t size = 1; size < kExample.size(); ++size) {
    EXPECT_FALSE(IsExample(kExample.substr(0, size))) << size;
  }
}

}  // namespace
}  // namespace lodestar
