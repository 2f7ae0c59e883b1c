// The wire format of a serialized tf.Example.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_EXAMPLE_FORMAT_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_EXAMPLE_FORMAT_H_

#include <cstdint>

namespace lodestar {

// Reads the fields of a protocol buffer message in [begin, end).
class ProtoFields {
 public:
  ProtoFields(const char* begin, const char* end) : p_(begin), end_(end) {}

  // The bytes of a length-delimited field.
  struct Bytes {
    const char* begin = nullptr;
    const char* end = nullptr;
  };

  bool at_end() const { return p_ == end_; }

  // Reads a field. `*number` is its field number, or 0 for a field of another
  // wire type, which is skipped. Returns false if the message is malformed.
  bool Next(uint64_t* number, Bytes* bytes) {
    uint64_t tag = 0;
    if (!ReadVarint(&tag) || tag >> 3 == 0 || tag > kMaxTag) return false;
    *number = 0;
    uint64_t length = 0;
    switch (tag & 7) {
      case 0:
        return ReadVarint(&length);
      case 1:
        return Skip(8);
      case 2:
        if (!ReadVarint(&length)) return false;
        *number = tag >> 3;
        bytes->begin = p_;
        if (!Skip(length)) return false;
        bytes->end = p_;
        return true;
      case 5:
        return Skip(4);
      default:
        return false;
    }
  }

 private:
  static constexpr uint64_t kMaxTag = 0xffffffff;

  bool Skip(uint64_t count) {
    if (count > static_cast<uint64_t>(end_ - p_)) return false;
    p_ += count;
    return true;
  }

  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (p_ == end_) return false;
      const auto byte = static_cast<unsigned char>(*p_++);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  const char* p_;
  const char* end_;
};

// Whether [begin, end) has the structure of a tf.Example down to its features,
// which are parsed by name later. Reads a few bytes per feature.
inline bool IsExample(const char* begin, const char* end) {
  uint64_t number = 0;
  ProtoFields::Bytes features;
  ProtoFields example(begin, end);
  while (!example.at_end()) {
    if (!example.Next(&number, &features)) return false;
    if (number != 1) continue;
    ProtoFields entries(features.begin, features.end);
    ProtoFields::Bytes entry;
    while (!entries.at_end()) {
      if (!entries.Next(&number, &entry)) return false;
      if (number != 1) continue;
      ProtoFields parts(entry.begin, entry.end);
      ProtoFields::Bytes part;
      while (!parts.at_end()) {
        // A key and a value, in any order; both are optional.
        if (!parts.Next(&number, &part)) return false;
        if (number != 1 && number != 2) return false;
      }
    }
  }
  return true;
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_EXAMPLE_FORMAT_H_
