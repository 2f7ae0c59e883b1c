// Status: how core reports errors that a caller can cause. Core does not throw,
// and does not abort on invalid input.

#ifndef LODESTAR_TF_OPS_CORE_BASE_STATUS_H_
#define LODESTAR_TF_OPS_CORE_BASE_STATUS_H_

#include <sstream>
#include <string>
#include <utility>

namespace lodestar {

enum class StatusCode {
  kOk,
  kInvalidArgument,
  kNotFound,
  kAlreadyExists,
  kPermissionDenied,
  kFailedPrecondition,
  kResourceExhausted,
  kDataLoss,
  kUnimplemented,
  kInternal,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// Concatenates its arguments as a stream would print them.
template <typename... Args>
std::string StrCat(const Args&... args) {
  std::ostringstream stream;
  (stream << ... << args);
  return stream.str();
}

// Joins the items with ", ".
template <typename Items>
std::string Join(const Items& items) {
  std::ostringstream stream;
  const char* between = "";
  for (const auto& item : items) {
    stream << between << item;
    between = ", ";
  }
  return stream.str();
}

template <typename... Args>
Status InvalidArgument(const Args&... args) {
  return Status(StatusCode::kInvalidArgument, StrCat(args...));
}

template <typename... Args>
Status FailedPrecondition(const Args&... args) {
  return Status(StatusCode::kFailedPrecondition, StrCat(args...));
}

template <typename... Args>
Status ResourceExhausted(const Args&... args) {
  return Status(StatusCode::kResourceExhausted, StrCat(args...));
}

template <typename... Args>
Status DataLoss(const Args&... args) {
  return Status(StatusCode::kDataLoss, StrCat(args...));
}

}  // namespace lodestar

#define LODESTAR_RETURN_IF_ERROR(expression)           \
  do {                                                 \
    ::lodestar::Status lodestar_status = expression;   \
    if (!lodestar_status.ok()) return lodestar_status; \
  } while (false)

#endif  // LODESTAR_TF_OPS_CORE_BASE_STATUS_H_
