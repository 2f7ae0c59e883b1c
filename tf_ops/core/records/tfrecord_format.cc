#include "tf_ops/core/records/tfrecord_format.h"

#include <cstring>

#include "tf_ops/core/base/crc32c.h"

namespace lodestar {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kCrcBytes = 4;
constexpr int64_t kHeaderBytes = kLengthBytes + kCrcBytes;
constexpr uint64_t kMaxBytes = INT64_MAX / 2;

template <typename T>
T Load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// Whether the four bytes after [p, p + bytes) are their masked CRC.
bool HasCrc(const char* p, int64_t bytes) {
  const uint32_t crc = Crc32c(p, bytes);
  return Load<uint32_t>(p + bytes) ==
         ((crc >> 15) | (crc << 17)) + uint32_t{0xa282ead8};
}

}  // namespace

Status TfrecordCutter::Next(const char* begin, const char* end, bool at_end,
                            RecordCut* cut) {
  *cut = RecordCut();
  const char* p = begin;
  Status status;
  const auto refuse = [&](const auto&... what) {
    status = DataLoss("record ", num_cut_, " at byte ", offset_ + (p - begin),
                      ": ", what...);
  };
  while (p < end) {
    const int64_t left = end - p;
    if (left < kHeaderBytes) {
      if (at_end) {
        refuse("found ", left, " bytes, expected ", kHeaderBytes,
               " for its header: the file is truncated");
      }
      break;
    }
    const uint64_t length = Load<uint64_t>(p);
    if (!HasCrc(p, kLengthBytes) || length > kMaxBytes) {
      refuse("the checksum of its length is wrong: the file is damaged");
      break;
    }
    const int64_t bytes =
        kHeaderBytes + static_cast<int64_t>(length) + kCrcBytes;
    if (bytes > left) {
      if (at_end) {
        refuse("found ", left, " bytes, expected ", bytes,
               " for its length: the file is truncated");
      }
      break;
    }
    p += bytes;
    ++num_cut_;
    ++cut->records;
  }
  cut->bytes = p - begin;
  offset_ += cut->bytes;
  // Returns the records before the bad one first.
  return cut->records > 0 ? Status() : status;
}

Status ReadTfrecord(const char* begin, std::string_view* record,
                    const char** end) {
  const int64_t length = static_cast<int64_t>(Load<uint64_t>(begin));
  const char* const bytes = begin + kHeaderBytes;
  *record = std::string_view(bytes, length);
  *end = bytes + length + kCrcBytes;
  if (HasCrc(bytes, length)) return Status();
  return DataLoss("its checksum is wrong: the file is damaged");
}

}  // namespace lodestar
