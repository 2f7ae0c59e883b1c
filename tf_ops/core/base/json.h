// A small strict JSON reader (RFC 8259).

#ifndef LODESTAR_TF_OPS_CORE_BASE_JSON_H_
#define LODESTAR_TF_OPS_CORE_BASE_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// A JSON value. Only the member of its kind is set.
struct JsonValue {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, JsonValue>;

  Kind kind = Kind::kNull;
  bool boolean = false;
  // The characters of a string, as UTF-8, or of a number, as in the text.
  std::string text;
  std::vector<JsonValue> items;
  std::vector<Member> members;  // in the order of the text

  // Returns the member of an object, or nullptr.
  const JsonValue* Find(std::string_view name) const;
  // Returns whether this is an integer of 64 bits without fraction or exponent.
  bool ReadInteger(int64_t* value) const;
};

// Parses `text`, which must be one value with optional white space around it.
// Returns InvalidArgument, with the position, for any other text, and for an
// object that repeats a name or values that are nested more than 200 deep.
Status ParseJson(std::string_view text, JsonValue* value);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_JSON_H_
