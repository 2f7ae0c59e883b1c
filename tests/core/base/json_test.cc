#include "tf_ops/core/base/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace lodestar {
namespace {

using Kind = JsonValue::Kind;

JsonValue Parse(const std::string& text) {
  JsonValue value;
  const Status status = ParseJson(text, &value);
  EXPECT_TRUE(status.ok()) << text << ": " << status.message();
  return value;
}

TEST(JsonTest, ReadsEveryKindOfValue) {
  const JsonValue value = Parse(
      " {\"a\" : [1, -2.5e+3, true, false, null, \"x\", {}, []],\n"
      "\"b\": {\"c\": 0}} ");
  ASSERT_EQ(value.kind, Kind::kObject);
  ASSERT_EQ(value.members.size(), 2);
  const JsonValue& items = *value.Find("a");
  ASSERT_EQ(items.kind, Kind::kArray);
  ASSERT_EQ(items.items.size(), 8);
  EXPECT_EQ(items.items[0].text, "1");
  EXPECT_EQ(items.items[1].text, "-2.5e+3");
  EXPECT_TRUE(items.items[2].boolean);
  EXPECT_EQ(items.items[3].kind, Kind::kBool);
  EXPECT_FALSE(items.items[3].boolean);
  EXPECT_EQ(items.items[4].kind, Kind::kNull);
  EXPECT_EQ(items.items[5].text, "x");
  EXPECT_EQ(items.items[6].kind, Kind::kObject);
  EXPECT_EQ(items.items[7].kind, Kind::kArray);
  EXPECT_EQ(value.Find("b")->Find("c")->text, "0");
  EXPECT_EQ(value.Find("c"), nullptr);
}

TEST(JsonTest, IntegersHave64Bits) {
  int64_t integer = 0;
  EXPECT_TRUE(Parse("9223372036854775807").ReadInteger(&integer));
  EXPECT_EQ(integer, INT64_MAX);
  EXPECT_TRUE(Parse("-9223372036854775808").ReadInteger(&integer));
  EXPECT_EQ(integer, INT64_MIN);
  for (const char* text :
       {"9223372036854775808", "1.0", "1e3", "\"1\"", "true", "null"}) {
    EXPECT_FALSE(Parse(text).ReadInteger(&integer)) << text;
  }
}

TEST(JsonTest, StringsHaveEscapes) {
  EXPECT_EQ(Parse(R"("\"\\\/\b\f\n\r\t")").text, "\"\\/\b\f\n\r\t");
  EXPECT_EQ(Parse(R"("\u0041\u00e9\u20AC\ud83d\ude00")").text,
            "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  // Single surrogates, as Python writes them for undecodable bytes.
  EXPECT_EQ(Parse(R"("\udc80")").text, "\xed\xb2\x80");
  EXPECT_EQ(Parse(R"("\ud83dA")").text,
            "\xed\xa0\xbd"
            "A");
  EXPECT_EQ(Parse(R"("\ud83d\u0041")").text,
            "\xed\xa0\xbd"
            "A");
  EXPECT_EQ(Parse("\"\xc3\xa9\"").text, "\xc3\xa9");
  EXPECT_EQ(Parse(R"("\u0000")").text, std::string(1, '\0'));
}

TEST(JsonTest, RefusesOtherText) {
  const auto expect = [](const std::string& text, const std::string& message) {
    JsonValue value;
    const Status status = ParseJson(text, &value);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(message), std::string::npos)
        << text << ": " << status.message();
  };
  expect("", "the text ends at byte 0, expected a value");
  expect("{} x", "byte 3 is 'x', expected the end");
  expect("[1,]", "byte 3 is ']', expected a value");
  expect("[1", "the text ends at byte 2, expected ',' or ']'");
  expect("{\"a\" 1}", "byte 5 is '1', expected ':'");
  expect("{\"a\": 1,}", "byte 8 is '}', expected a name in quotes");
  expect("{\"a\": 1", "expected ',' or '}'");
  expect("{\"a\": 1, \"a\": 2}", "the name 'a' occurs a second time");
  expect("\"x", "the text ends at byte 2, expected the end of a string");
  expect("\"a\nb\"", "no control character in a string");
  expect(R"("\x")", "an escaped character");
  expect(R"("\u12g4")", "a hexadecimal digit");
  expect("NaN", "expected a value");
  expect("01", "byte 1 is '1', expected the end");
  expect("1.", "expected a digit");
  expect("-", "expected a value");
  expect("1e", "expected a digit");
  expect("+1", "expected a value");
  expect("tru", "expected a value");
  expect(std::string(1000, '['), "at most 200 nested values");
}

}  // namespace
}  // namespace lodestar
