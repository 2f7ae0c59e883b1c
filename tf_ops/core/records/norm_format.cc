#include "tf_ops/core/records/norm_format.h"

#include <algorithm>
#include <utility>

#include "tf_ops/core/records/parse_samples.h"

namespace lodestar {
namespace {

constexpr int64_t kHeaderBytes = 64;
constexpr int64_t kLengthBytes = 4;
constexpr int64_t kFrameBytes = kLengthBytes + 1;

// The contents of the header.
struct Header {
  NormCheck check = NormCheck::kNone;
  int64_t bytes = kHeaderBytes;  // with its frame
  int64_t num_records = 0;
};

uint8_t Sum(const char* begin, const char* end) {
  uint8_t sum = 0;
  for (const char* p = begin; p < end; ++p) sum += static_cast<uint8_t>(*p);
  return sum;
}

Status CheckSum(const char* begin, const char* end) {
  const int found = static_cast<uint8_t>(*end);
  const int wanted = Sum(begin, end);
  if (found == wanted) return Status();
  return InvalidArgument("checksum is ", found, ", expected ", wanted,
                         " for the sum of its ", end - begin,
                         " bytes modulo 256");
}

const char* NameOf(NormCheck check) {
  return check == NormCheck::kSum ? "checksums" : "no checksums";
}

std::string Hex(const char* begin, const char* end) {
  static const char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char* p = begin; p < end; ++p) {
    const unsigned char c = *p;
    if (p > begin) text += ' ';
    text += kDigits[c >> 4];
    text += kDigits[c & 15];
  }
  return text;
}

// Detects whether the bytes at `begin` start a file with or without checksums.
Status FindCheck(const char* begin, const char* end, NormCheck* check) {
  constexpr int64_t kNeeded = kLengthBytes + 8;
  if (end - begin >= kNeeded && Load<int32_t>(begin) == kHeaderBytes &&
      Load<int64_t>(begin + kLengthBytes) == 1) {
    *check = NormCheck::kSum;
  } else if (end - begin >= kNeeded && Load<int64_t>(begin) == 0) {
    *check = NormCheck::kNone;
  } else if (begin == end) {
    return InvalidArgument("not a Norm file: it is empty");
  } else {
    return InvalidArgument("not a Norm file: begins with ",
                           Hex(begin, std::min(end, begin + kNeeded)),
                           ", expected eight zero bytes (no checksums), or the "
                           "int32 64 and the int64 1 (checksums)");
  }
  return Status();
}

// Returns the end of the payload of the framed record at `p`, or null if its
// length is invalid for a record in [p, end).
const char* PayloadEnd(const SampleFields& fields, const char* p,
                       const char* end) {
  if (end - p < kFrameBytes) return nullptr;
  const int64_t length = Load<int32_t>(p);
  if (length < fields.min_bytes() || length > end - p - kFrameBytes) {
    return nullptr;
  }
  return p + kLengthBytes + length;
}

Status ExplainLength(const SampleFields& fields, const char* p,
                     const char* end) {
  const int64_t found = end - p;
  if (found < kLengthBytes) {
    return InvalidArgument("found ", found, " bytes, expected ",
                           fields.min_bytes() + kFrameBytes,
                           " or more: the file is truncated");
  }
  const int64_t length = Load<int32_t>(p);
  if (length < fields.min_bytes() || length > SampleFields::kMaxBytes) {
    return InvalidArgument("length is ", length, ", expected ",
                           fields.min_bytes(), " to ", SampleFields::kMaxBytes,
                           ": check the slots and the key type");
  }
  return InvalidArgument("found ", found, " bytes, expected ",
                         length + kFrameBytes, " for its length of ", length,
                         ": the file is truncated");
}

class NormCutter : public RecordCutter {
 public:
  NormCutter(const SampleFields& fields, const NormOptions& options)
      : fields_(fields), options_(options) {}

  Status Next(const char* begin, const char* end, bool at_end,
              RecordCut* cut) override {
    *cut = RecordCut();
    if (lost_) return Status();
    const char* p = begin;
    if (!has_header_) {
      if (!at_end && end - begin < kHeaderBytes + kFrameBytes) return Status();
      LODESTAR_RETURN_IF_ERROR(ReadHeader(begin, end));
      p += header_.bytes;
    }
    const int64_t left = header_.num_records - num_cut_;
    if (left == 0 && p < end) {
      return InvalidArgument("found ", end - p, at_end ? "" : " or more",
                             " bytes after the last of ", header_.num_records,
                             " records, at byte ", offset_ + (p - begin),
                             ", expected the end of the file");
    }
    if (left > 0 && p == end && at_end) {
      return InvalidArgument("the file ends at byte ", offset_ + (p - begin),
                             " after ", num_cut_, " records, expected ",
                             header_.num_records,
                             " according to its header: it is truncated");
    }
    const char* const first = p;
    int64_t count = 0;
    bool whole = true;
    while (count < left && p < end && whole) {
      const int64_t bytes = RecordBytes(p, end);
      whole = bytes <= end - p;
      if (whole) {
        p += bytes;
        ++count;
      } else if (count == 0 &&
                 (at_end || bytes > SampleFields::kMaxBytes + kFrameBytes)) {
        p = end;
        count = left;
        lost_ = true;
      }
    }
    if (count == 0) return Status();
    cut->header = first - begin;
    cut->bytes = p - first;
    cut->records = count;
    cut->variant = static_cast<int64_t>(header_.check);
    cut->last = lost_;
    num_cut_ += count;
    offset_ += p - begin;
    has_header_ = true;
    return Status();
  }

 private:
  static constexpr int64_t kTooMany = INT64_MAX;

  // Returns the size of the record at `p`, with its frame: more than end - p if
  // it extends beyond `end`, kTooMany if it cannot be a record.
  int64_t RecordBytes(const char* p, const char* end) const {
    if (header_.check == NormCheck::kNone) {
      const int64_t size = fields_.Size(p, end);
      return size < 0 ? kTooMany : size;
    }
    if (end - p < kLengthBytes) return kFrameBytes;
    const int64_t length = Load<int32_t>(p);
    return length < fields_.min_bytes() ? kTooMany : length + kFrameBytes;
  }

  Status ReadHeader(const char* begin, const char* end) {
    LODESTAR_RETURN_IF_ERROR(FindCheck(begin, end, &header_.check));
    if (options_.wants_check && header_.check != options_.check) {
      return InvalidArgument("the header declares ", NameOf(header_.check),
                             ", expected ", NameOf(options_.check));
    }
    const bool framed = header_.check == NormCheck::kSum;
    header_.bytes = kHeaderBytes + (framed ? kFrameBytes : 0);
    if (end - begin < header_.bytes) {
      return InvalidArgument("the header has ", end - begin,
                             " bytes, expected ", header_.bytes,
                             ": the file is truncated");
    }
    const char* const header = begin + (framed ? kLengthBytes : 0);
    if (framed) {
      LODESTAR_RETURN_IF_ERROR(
          Prefixed(CheckSum(header, header + kHeaderBytes), "header: "));
    }
    header_.num_records = Load<int64_t>(header + 8);
    const int64_t most = INT64_MAX / (fields_.min_bytes() + kFrameBytes);
    if (header_.num_records < 0 || header_.num_records > most) {
      return InvalidArgument("header: number_of_records is ",
                             header_.num_records, ", expected 0 to ", most);
    }
    const struct {
      const char* name;
      int64_t wanted;
    } dims[] = {{"label_dim", fields_.label_dim()},
                {"dense_dim", fields_.dense_dim()},
                {"slot_num", fields_.num_key_slots()}};
    for (int i = 0; i < 3; ++i) {
      const int64_t found = Load<int64_t>(header + 16 + 8 * i);
      if (found != dims[i].wanted) {
        return InvalidArgument("header: ", dims[i].name, " is ", found,
                               ", expected ", dims[i].wanted, " for the slots");
      }
    }
    return Status();
  }

  const SampleFields& fields_;
  const NormOptions& options_;
  Header header_;
  bool has_header_ = false;  // and was cut
  int64_t num_cut_ = 0;
  int64_t offset_ = 0;  // of the bytes not yet cut
  bool lost_ = false;   // the start of the next record is unknown
};

}  // namespace

Status NormFormat::Check(const std::vector<ColumnSpec>& specs,
                         const NormOptions& options) {
  return SampleFields::Check(specs, options.layout);
}

NormFormat::NormFormat(std::vector<ColumnSpec> specs,
                       const NormOptions& options)
    : RecordFormat(std::move(specs)),
      fields_(&this->specs(), options.layout),
      options_(options) {}

std::unique_ptr<RecordCutter> NormFormat::NewCutter() const {
  return std::make_unique<NormCutter>(fields_, options_);
}

Status NormFormat::Parse(int64_t variant, const char* begin, const char* end,
                         SlotRows* rows, BadRecord* bad) const {
  if (variant == static_cast<int64_t>(NormCheck::kNone)) {
    return ParseSamples(
        fields_, begin, end,
        [this](const char* p, const char* end, SampleFrame* frame) {
          const int64_t size = fields_.Size(p, end);
          if (size < 0 || size > end - p) return false;
          *frame = {p, p + size, p + size};
          return true;
        },
        rows, bad);
  }
  return ParseSamples(
      fields_, begin, end,
      [this](const char* p, const char* end, SampleFrame* frame) {
        const char* const payload_end = PayloadEnd(fields_, p, end);
        if (payload_end == nullptr) return false;
        *frame = {p + kLengthBytes, payload_end, payload_end + 1};
        return Sum(frame->begin, frame->end) ==
               static_cast<uint8_t>(*payload_end);
      },
      [this](const char* p, const char* end) {
        const char* const payload_end = PayloadEnd(fields_, p, end);
        return payload_end == nullptr ? ExplainLength(fields_, p, end)
                                      : CheckSum(p + kLengthBytes, payload_end);
      },
      rows, bad);
}

}  // namespace lodestar
