#include "tf_ops/core/base/status.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lodestar {
namespace {

TEST(StatusTest, IsOkByDefault) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
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

TEST(StatusTest, JoinSeparatesItemsByCommas) {
  EXPECT_EQ(Join(std::vector<std::string>()), "");
  EXPECT_EQ(Join(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(Join(std::vector<std::string>{"a", "", "b"}), "a, , b");
  EXPECT_EQ(Join(std::vector<int>{1, -2}), "1, -2");
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
