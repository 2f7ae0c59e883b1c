// A small strict JSON reader (RFC 8259), which reads values in place.

#ifndef LODESTAR_TF_OPS_CORE_BASE_JSON_H_
#define LODESTAR_TF_OPS_CORE_BASE_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tf_ops/core/base/status.h"

namespace lodestar {

// Reads a text from front to back and keeps no values, so that its memory does
// not depend on the text. Each method reads one value with the white space
// before it. Returns InvalidArgument, with the position, for any other text,
// and for values that are nested more than 200 deep. After an error, the
// position is undefined.
class JsonReader {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  // `text` must outlive the reader.
  explicit JsonReader(std::string_view text) : text_(text) {}

  // Returns the kind of the next value, judged by its first character.
  Kind Peek();
  // Returns the text that is not read yet.
  std::string_view Rest() const { return text_.substr(at_); }
  Status ReadNull();
  Status ReadBool(bool* value);
  // Reads a string as UTF-8.
  Status ReadString(std::string* value);
  // Sets *is_integer to whether the number is an integer of 64 bits without
  // fraction or exponent, and *value only then.
  Status ReadNumber(int64_t* value, bool* is_integer);
  // Calls read_member(name) for each member, which must read its value.
  template <typename Fn>
  Status ReadObject(const Fn& read_member) {
    LODESTAR_RETURN_IF_ERROR(Open('{', "an object"));
    std::string name;
    for (bool more = !TakeAfterSpace('}'); more;) {
      LODESTAR_RETURN_IF_ERROR(ReadName(&name));
      LODESTAR_RETURN_IF_ERROR(read_member(name));
      LODESTAR_RETURN_IF_ERROR(Continue('}', "',' or '}'", &more));
    }
    --depth_;
    return Status();
  }
  // Calls read_item() for each item, which must read it.
  template <typename Fn>
  Status ReadArray(const Fn& read_item) {
    LODESTAR_RETURN_IF_ERROR(Open('[', "a list"));
    for (bool more = !TakeAfterSpace(']'); more;) {
      LODESTAR_RETURN_IF_ERROR(read_item());
      LODESTAR_RETURN_IF_ERROR(Continue(']', "',' or ']'", &more));
    }
    --depth_;
    return Status();
  }
  // Reads a value of any kind.
  Status Skip();
  // Returns InvalidArgument unless only white space is left.
  Status End();

 private:
  Status Error(std::string_view wanted) const;
  char Next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c);
  bool TakeAfterSpace(char c);
  bool TakeWord(std::string_view word);
  void SkipSpace();
  Status Open(char c, std::string_view wanted);
  Status ReadName(std::string* name);
  Status Continue(char close, std::string_view wanted, bool* more);
  // A null `out` discards the characters.
  Status ReadCharacters(std::string* out);
  Status ReadEscape(std::string* out);
  Status ReadHex(uint32_t* code);
  Status ReadDigits(std::string_view wanted);

  const std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_JSON_H_
