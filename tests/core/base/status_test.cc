#include "tf_ops/core/base/status.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lodestar {
namespace {

TEST(StatusTest, IsOkByDefault) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
}

// Kernels convert codes by their number.
TEST(StatusTest, CodesAreCanonical) {
  const std::pair<StatusCode, int> codes[] = {
      {StatusCode::kOk, 0},
      {StatusCode::kInvalidArgument, 3},
      {StatusCode::kNotFound, 5},
      {StatusCode::kAlreadyExists, 6},
      {StatusCode::kPermissionDenied, 7},
      {StatusCode::kResourceExhausted, 8},
      {StatusCode::kFailedPrecondition, 9},
      {StatusCode::kUnimplemented, 12},
      {StatusCode::kInternal, 13},
      {StatusCode::kDataLoss, 15},
  };
  for (const auto& [code, number] : codes) {
    EXPECT_EQ(static_cast<int>(code), number);
  }
}

TEST(StatusTest, ErrorsHaveACodeAndAMessage) {
  const std::pair<Status, StatusCode> errors[] = {
      {InvalidArgument("row ", 3, " of ", 2.5), StatusCode::kInvalidArgument},
      {FailedPrecondition("row ", 3, " of ", 2.5),
       StatusCode::kFailedPrecondition},
      {ResourceExhausted("row ", 3, " of ", 2.5),
       StatusCode::kResourceExhausted},
      {DataLoss("row ", 3, " of ", 2.5), StatusCode::kDataLoss},
  };
  for (const auto& [status, code] : errors) {
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), "row 3 of 2.5");
  }
}

// StrCat prints what a stream prints.
template <typename T>
void ExpectLikeStream(std::initializer_list<T> items) {
  for (const T& item : items) {
    std::ostringstream stream;
    stream << "<" << item << ">";
    EXPECT_EQ(StrCat("<", item, ">"), stream.str());
  }
}

template <typename T>
void ExpectNumbersLikeStream() {
  using Limits = std::numeric_limits<T>;
  ExpectLikeStream<T>({T{0}, T{1}, T{7}, Limits::min(), Limits::lowest(),
                       Limits::max(), static_cast<T>(Limits::max() / 10)});
}

TEST(StatusTest, StrCatPrintsLikeAStream) {
  ExpectLikeStream<char>({'a', '\0', '7'});
  ExpectLikeStream<signed char>({65, 97});
  ExpectLikeStream<unsigned char>({65, 200});
  ExpectLikeStream<bool>({false, true});
  ExpectLikeStream<std::string>({"", "text", std::string("a\0b", 3)});
  ExpectLikeStream<std::string_view>({"", "text"});
  ExpectLikeStream<const char*>({"", "text"});
  ExpectNumbersLikeStream<int16_t>();
  ExpectNumbersLikeStream<uint16_t>();
  ExpectNumbersLikeStream<int32_t>();
  ExpectNumbersLikeStream<uint32_t>();
  ExpectNumbersLikeStream<int64_t>();
  ExpectNumbersLikeStream<uint64_t>();
  ExpectNumbersLikeStream<float>();
  ExpectNumbersLikeStream<double>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ExpectLikeStream<double>({-0.0, 0.1, 1.0 / 3, 100000, 1000000, 1234567.5,
                            0.00012345678, 0.000012345678, 1e100, 2.5e-300,
                            kInfinity, -kInfinity, std::nan(""),
                            -std::nan("")});
  ExpectLikeStream<float>({-0.0f, 0.1f, 1.0f / 3, 16777216, 1e6f, 999999.5f,
                           1.17549e-38f, 1e-45f, 1e-4f, 1e-5f});
  EXPECT_EQ(StrCat(), "");
  EXPECT_EQ(StrCat("a", 1, 'b', std::string("c"), 2.5), "a1bc2.5");
}

TEST(StatusTest, JoinSeparatesItemsByCommas) {
  EXPECT_EQ(Join(std::vector<std::string>()), "");
  EXPECT_EQ(Join(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(Join(std::vector<std::string>{"a", "", "b"}), "a, , b");
  EXPECT_EQ(Join(std::vector<int>{1, -2}), "1, -2");
}

TEST(StatusTest, PrefixedChangesOnlyErrors) {
  EXPECT_TRUE(Prefixed(Status(), "file ", 1, ": ").ok());
  const Status status = Prefixed(DataLoss("damaged"), "file ", 1, ": ");
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "file 1: damaged");
}

TEST(StatusTest, ReturnIfErrorReturnsTheFirstError) {
  int calls = 0;
  const auto call = [&](Status status) {
    ++calls;
    return status;
  };
  const auto all = [&](Status second) {
    LODESTAR_RETURN_IF_ERROR(call(Status()));
    LODESTAR_RETURN_IF_ERROR(call(second));
    return call(Status());
  };
  EXPECT_TRUE(all(Status()).ok());
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(all(DataLoss("second")).message(), "second");
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace lodestar
