#include "tf_ops/core/base/text_number.h"

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

struct Read {
  NumberError error;
  int64_t length;
};

Read ReadAll(const std::string& text, uint64_t* value) {
  const char* p = text.data();
  const NumberError error = ReadUint64(&p, text.data() + text.size(), value);
  return {error, p - text.data()};
}

Read ReadAll(const std::string& text, float* value) {
  const char* p = text.data();
  const NumberError error = ReadFloat(&p, text.data() + text.size(), value);
  return {error, p - text.data()};
}

TEST(ReadUint64Test, AgreesWithStrtoull) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200000; ++i) {
    std::string text;
    const int sign = random() % 4;
    if (sign == 0) text += '-';
    if (sign == 1) text += '+';
    const int digits = 1 + random() % 22;
    for (int d = 0; d < digits; ++d) text += '0' + random() % 10;
    const char* const tails[] = {
        "",         " 12345678", "\t9",
        "x1234567", ":::::::::", "\xff\xff\xff\xff\xff\xff\xff\xff"};
    text += tails[random() % 6];
    if (random() % 2) text += " 12345678 12345678";
    errno = 0;
    char* end = nullptr;
    const uint64_t wanted = std::strtoull(text.c_str(), &end, 10);
    uint64_t value = 0;
    const Read read = ReadAll(text, &value);
    ASSERT_EQ(read.length, end - text.c_str()) << text;
    if (errno == ERANGE) {
      ASSERT_EQ(read.error, NumberError::kOutOfRange) << text;
    } else {
      ASSERT_EQ(read.error, NumberError::kNone) << text;
      ASSERT_EQ(value, wanted) << text;
    }
  }
}

TEST(ReadUint64Test, Boundaries) {
  uint64_t value = 0;
  EXPECT_EQ(ReadAll("18446744073709551615", &value).error, NumberError::kNone);
  EXPECT_EQ(value, UINT64_MAX);
  EXPECT_EQ(ReadAll("18446744073709551616", &value).error,
            NumberError::kOutOfRange);
  EXPECT_EQ(ReadAll("-18446744073709551616", &value).error,
            NumberError::kOutOfRange);
  EXPECT_EQ(ReadAll("0000000000000000000000000000042", &value).error,
            NumberError::kNone);
  EXPECT_EQ(value, 42u);
  EXPECT_EQ(ReadAll("-1", &value).error, NumberError::kNone);
  EXPECT_EQ(value, UINT64_MAX);
}

TEST(ReadUint64Test, NoDigitsIsNotANumber) {
  uint64_t value = 0;
  for (const char* text : {"", "-", "+", "x1", " 1", "+-1", "--1"}) {
    const Read read = ReadAll(text, &value);
    EXPECT_EQ(read.error, NumberError::kNotANumber) << text;
    EXPECT_EQ(read.length, 0) << text;
  }
}

TEST(ReadFloatTest, AgreesWithStrtof) {
  const char* const texts[] = {
      "0",      "-0",       "1",        "+1.5",  "-2.25",    "1e3",
      "1E-3",   ".5",       "5.",       "0x1p4", "-0x1.8p3", "0X.8p1",
      "1e38",   "3.4e38",   "1e-40",    "1e-50", "-1e-60",   "1e-5000",
      "inf",    "-inf",     "INFINITY", "0.1",   "16777217", "123456789",
      "1e3abc", "3.25 next"};
  for (const char* text : texts) {
    char* end = nullptr;
    const float wanted = std::strtof(text, &end);
    float value = 0;
    const Read read = ReadAll(text, &value);
    EXPECT_EQ(read.length, end - text) << text;
    EXPECT_EQ(std::memcmp(&value, &wanted, sizeof(value)), 0)
        << text << ": " << value << " is not " << wanted;
    if (std::fabs(wanted) < 1 << 24) {
      EXPECT_EQ(read.error, NumberError::kNone) << text;
    }
  }
}

TEST(ReadFloatTest, LargeNumbersAreExact) {
  const struct {
    const char* text;
    NumberError error;
  } cases[] = {{"16777216", NumberError::kNone},
               {"16777217", NumberError::kInexact},
               {"-16777217 ", NumberError::kInexact},
               {"16777218.000", NumberError::kNone},
               {"16777218.5", NumberError::kInexact},
               {"1677721.75e1", NumberError::kInexact},
               {"1.67772160e+07", NumberError::kNone},
               {"167772180e-1", NumberError::kNone},
               {"20200715", NumberError::kInexact},
               {"20200716", NumberError::kNone},
               // These are below 2^24, although they are rounded to it.
               {"16777215.5", NumberError::kNone},
               {"16777215.9999999999999999", NumberError::kNone},
               {"16777216.0000000000000001", NumberError::kInexact},
               {"9007199254740993", NumberError::kInexact},
               {"9007199254740992", NumberError::kNone},
               {"1e10", NumberError::kNone},
               {"1e20", NumberError::kInexact},
               {"100000002004087734272", NumberError::kNone},
               {"100000002004087734273", NumberError::kInexact},
               {"3.4028235e38", NumberError::kInexact},
               {"340282346638528859811704183484516925440", NumberError::kNone},
               {"0x1p30", NumberError::kNone},
               {"0x1000001", NumberError::kInexact},
               {"0x1000002", NumberError::kNone},
               {"0x.80000080000000001p30", NumberError::kInexact},
               {"0xffffff.8", NumberError::kNone},
               {"inf", NumberError::kNone},
               {"nan", NumberError::kNone}};
  for (const auto& one : cases) {
    for (const char* tail : {"", " 12345678 12345678"}) {
      const std::string text = std::string(one.text) + tail;
      float value = 0;
      EXPECT_EQ(ReadAll(text, &value).error, one.error) << text;
    }
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 200000; ++i) {
    const int64_t number = static_cast<int64_t>(random()) >> (random() % 62);
    const auto nearest = static_cast<float>(number);
    // 2^63 is a float, and not an int64.
    const bool is_exact = nearest < 9223372036854775808.0f &&
                          static_cast<int64_t>(nearest) == number;
    float value = 0;
    ASSERT_EQ(
        ReadAll(std::to_string(number) + (i % 2 ? "\n12345678 123456789" : ""),
                &value)
            .error,
        is_exact ? NumberError::kNone : NumberError::kInexact)
        << number;
    ASSERT_EQ(value, nearest) << number;
  }
}

// The text that may follow allows reading ahead, as everywhere but at the end
// of a file.
TEST(ReadFloatTest, AgreesWithStrtofOnRandomDecimals) {
  std::mt19937_64 random(13);
  for (int i = 0; i < 400000; ++i) {
    std::string text = std::vector<std::string>{"", "", "-", "+"}[random() % 4];
    const int before = random() % 11;
    const int behind = random() % 11;
    if (i % 4 == 0) {
      // The midpoint of two floats, or next to it: the hardest cases to round.
      const uint64_t odd = (uint64_t{1} << 24) | (random() % (1 << 24)) | 1;
      const int shift = static_cast<int>(random() % 12) - 8;
      const uint64_t unit = 100000000;
      const uint64_t middle =
          shift < 0 ? (odd * unit) >> -shift : (odd << shift) * unit;
      const uint64_t digits = middle - 1 + random() % 3;
      text += std::to_string(digits / unit) + '.' +
              std::to_string(unit + digits % unit).substr(1);
    } else {
      for (int d = 0; d < before; ++d) text += '0' + random() % 10;
      if (random() % 4) {
        text += '.';
        for (int d = 0; d < behind; ++d) text += '0' + random() % 10;
      }
    }
    const char* const tails[] = {"",  "",    "\t", "\n",  "\r",   "e2",
                                 "y", "e-3", ".",  "inf", "\x01", "E+12"};
    text += tails[random() % 12];
    if (i % 3 != 0) text += " 123456789012345678901234567890";
    if (text[0] == ' ' || std::iscntrl(text[0])) continue;
    char* end = nullptr;
    const float wanted = std::strtof(text.c_str(), &end);
    float value = 0;
    const Read read = ReadAll(text, &value);
    if (end == text.c_str()) {
      ASSERT_EQ(read.error, NumberError::kNotANumber) << text;
    } else {
      if (std::fabs(wanted) < 1 << 24) {
        ASSERT_EQ(read.error, NumberError::kNone) << text;
      }
      ASSERT_EQ(read.length, end - text.c_str()) << text;
      ASSERT_EQ(std::memcmp(&value, &wanted, sizeof(value)), 0)
          << text << ": " << value << " is not " << wanted;
    }
  }
}

// The decimal form of any float or double reads back as the nearest float.
TEST(ReadFloatTest, AgreesWithStrtofOnAnyBits) {
  std::mt19937_64 random(17);
  for (int i = 0; i < 200000; ++i) {
    const uint64_t bits = random();
    char text[400];
    if (i % 2) {
      float number;
      const uint32_t word = static_cast<uint32_t>(bits);
      std::memcpy(&number, &word, sizeof(number));
      std::snprintf(text, sizeof(text), i % 3 ? "%.9g" : "%a", number);
    } else {
      // Around 1, where %g prints no exponent.
      const double number =
          std::ldexp(static_cast<double>(bits >> 11), -53 + int(bits % 20));
      std::snprintf(text, sizeof(text), "%.*g", 1 + int(bits % 17), number);
    }
    char* end = nullptr;
    const float wanted = std::strtof(text, &end);
    for (const char* tail : {"", " 123456789012345678901234567890"}) {
      float value = 0;
      const Read read = ReadAll(std::string(text) + tail, &value);
      // Nine digits are the nearest float, and %a is exact.
      if (!(std::fabs(wanted) >= 1 << 24) || i % 3 == 0) {
        ASSERT_EQ(read.error, NumberError::kNone) << text;
      }
      ASSERT_EQ(read.length, end - text) << text;
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(value)) << text;
      } else {
        ASSERT_EQ(std::memcmp(&value, &wanted, sizeof(value)), 0)
            << text << ": " << value << " is not " << wanted;
      }
    }
  }
}

TEST(ReadFloatTest, Nan) {
  float value = 0;
  for (const char* text : {"nan", "NaN", "-nan"}) {
    EXPECT_EQ(ReadAll(text, &value).error, NumberError::kNone) << text;
    EXPECT_TRUE(std::isnan(value)) << text;
  }
}

TEST(ReadFloatTest, TooLargeIsOutOfRange) {
  float value = 0;
  for (const char* text : {"1e39", "-1e39", "1e400", "1e5000"}) {
    EXPECT_EQ(ReadAll(text, &value).error, NumberError::kOutOfRange) << text;
  }
}

TEST(ReadFloatTest, NotANumber) {
  float value = 0;
  for (const char* text : {"", "-", "+-1", "--1", "abc", ".", "e3", " 1",
                           "0x-1", "0x+1", "0xinf", "0xnan", "-0x-1.8p3"}) {
    EXPECT_EQ(ReadAll(text, &value).error, NumberError::kNotANumber) << text;
  }
}

}  // namespace
}  // namespace lodestar
