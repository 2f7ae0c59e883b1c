// Status: how core reports errors that a caller can cause. Core does not throw,
// and does not abort on invalid input.

#ifndef LODESTAR_TF_OPS_CORE_BASE_STATUS_H_
#define LODESTAR_TF_OPS_CORE_BASE_STATUS_H_

#include <charconv>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace lodestar {

// Canonical codes, with the numbers of absl::StatusCode.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument = 3,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kInternal = 13,
  kDataLoss = 15,
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

// Appends a string, a character or a number as a stream would print it in the
// "C" locale: floats have six significant digits.
template <typename T>
void StrAppend(const T& item, std::string* out) {
  if constexpr (std::is_same_v<T, bool>) {
    out->push_back(item ? '1' : '0');
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 1) {
    out->push_back(static_cast<char>(item));
  } else if constexpr (std::is_arithmetic_v<T>) {
    char digits[32];
    char* const end = digits + sizeof(digits);
    std::to_chars_result result;
    if constexpr (std::is_integral_v<T>) {
      result = std::to_chars(digits, end, item);
    } else {
      result = std::to_chars(digits, end, item, std::chars_format::general, 6);
    }
    out->append(digits, result.ptr);
  } else {
    const std::string_view text(item);
    out->append(text);
  }
}

// Concatenates its arguments.
template <typename... Args>
std::string StrCat(const Args&... args) {
  std::string text;
  (StrAppend(args, &text), ...);
  return text;
}

// Joins the items with ", ".
template <typename Items>
std::string Join(const Items& items) {
  std::string text;
  for (const auto& item : items) {
    if (&item != &*std::begin(items)) text += ", ";
    StrAppend(item, &text);
  }
  return text;
}

// Prefixes the message of an error, of this Status or of another class.
template <typename AnyStatus, typename... Args>
AnyStatus Prefixed(const AnyStatus& status, const Args&... prefix) {
  if (status.ok()) return status;
  return AnyStatus(status.code(), StrCat(prefix..., status.message()));
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
