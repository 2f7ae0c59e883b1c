#include "tf_ops/core/base/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace lodestar {
namespace {

using Kind = JsonReader::Kind;

void Expect(const Status& status, const std::string& text) {
  EXPECT_TRUE(status.ok()) << text << ": " << status.message();
}

std::string String(const std::string& text) {
  JsonReader json(text);
  EXPECT_EQ(json.Peek(), Kind::kString) << text;
  std::string value = "before";
  Expect(json.ReadString(&value), text);
  Expect(json.End(), text);
  return value;
}

TEST(JsonTest, ReadsEveryKindOfValue) {
  const std::string text =
      " {\"a\" : [1, -2.5e+3, true, false, null, \"x\", {}, []],\n"
      "\"b\": {\"c\": 0}} ";
  JsonReader json(text);
  EXPECT_EQ(json.Peek(), Kind::kObject);
  std::string names;
  int item = 0;
  const auto read_item = [&]() -> Status {
    int64_t number = 7;
    bool flag = false;
    std::string string;
    switch (item++) {
      case 0:
        EXPECT_EQ(json.Peek(), Kind::kNumber);
        Expect(json.ReadNumber(&number, &flag), text);
        EXPECT_TRUE(flag);
        EXPECT_EQ(number, 1);
        return Status();
      case 1:
        Expect(json.ReadNumber(&number, &flag), text);
        EXPECT_FALSE(flag);
        EXPECT_EQ(number, 7);
        return Status();
      case 2:
        EXPECT_EQ(json.Peek(), Kind::kBool);
        Expect(json.ReadBool(&flag), text);
        EXPECT_TRUE(flag);
        return Status();
      case 3:
        EXPECT_EQ(json.Peek(), Kind::kBool);
        Expect(json.ReadBool(&flag), text);
        EXPECT_FALSE(flag);
        return Status();
      case 4:
        EXPECT_EQ(json.Peek(), Kind::kNull);
        return json.ReadNull();
      case 5:
        Expect(json.ReadString(&string), text);
        EXPECT_EQ(string, "x");
        return Status();
      case 6:
        EXPECT_EQ(json.Peek(), Kind::kObject);
        return json.ReadObject(
            [](const std::string&) { return InvalidArgument("a member"); });
      default:
        EXPECT_EQ(json.Peek(), Kind::kArray);
        return json.ReadArray([] { return InvalidArgument("an item"); });
    }
  };
  Expect(json.ReadObject([&](const std::string& name) {
    names += name;
    if (name == "b") return json.Skip();
    return json.ReadArray(read_item);
  }),
         text);
  Expect(json.End(), text);
  EXPECT_EQ(names, "ab");
}

TEST(JsonTest, IntegersHave64Bits) {
  const auto is_integer = [](const std::string& text, int64_t* value) {
    JsonReader json(text);
    bool is_integer = false;
    Expect(json.ReadNumber(value, &is_integer), text);
    return is_integer;
  };
  int64_t integer = 0;
  EXPECT_TRUE(is_integer("9223372036854775807", &integer));
  EXPECT_EQ(integer, INT64_MAX);
  EXPECT_TRUE(is_integer("-9223372036854775808", &integer));
  EXPECT_EQ(integer, INT64_MIN);
  for (const char* text : {"9223372036854775808", "1.0", "1e3"}) {
    EXPECT_FALSE(is_integer(text, &integer)) << text;
  }
}

TEST(JsonTest, StringsHaveEscapes) {
  EXPECT_EQ(String(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(String(R"("\u0041\u00e9\u20AC\ud83d\ude00")"),
            "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  // Single surrogates, as Python writes them for undecodable bytes.
  EXPECT_EQ(String(R"("\udc80")"), "\xed\xb2\x80");
  EXPECT_EQ(String(R"("\ud83dA")"),
            "\xed\xa0\xbd"
            "A");
  EXPECT_EQ(String(R"("\ud83d\u0041")"),
            "\xed\xa0\xbd"
            "A");
  EXPECT_EQ(String("\"\xc3\xa9\""), "\xc3\xa9");
  EXPECT_EQ(String(R"("\u0000")"), std::string(1, '\0'));
}

TEST(JsonTest, RefusesOtherText) {
  const auto expect = [](const std::string& text, const std::string& message) {
    JsonReader json(text);
    Status status = json.Skip();
    if (status.ok()) status = json.End();
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
  expect("\"x", "the text ends at byte 2, expected the end of a string");
  expect("\"a\nb\"", "no control character in a string");
  expect(R"("\x")", "an escaped character");
  expect(R"("\u12g4")", "a hexadecimal digit");
  expect("NaN", "expected a value");
  expect("nul", "expected a value");
  expect("01", "byte 1 is '1', expected the end");
  expect("1.", "expected a digit");
  expect("-", "expected a value");
  expect("1e", "expected a digit");
  expect("+1", "expected a value");
  expect("tru", "expected a value");
  expect(std::string(1000, '['), "at most 200 nested values");
}

TEST(JsonTest, RefusesOtherKinds) {
  const auto refused = [](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  };
  const std::string text = "1";
  bool flag = false;
  std::string string;
  refused(JsonReader(text).ReadNull());
  refused(JsonReader(text).ReadBool(&flag));
  refused(JsonReader(text).ReadString(&string));
  refused(JsonReader(text).ReadArray([] { return Status(); }));
  refused(
      JsonReader(text).ReadObject([](const std::string&) { return Status(); }));
}

}  // namespace
}  // namespace lodestar
