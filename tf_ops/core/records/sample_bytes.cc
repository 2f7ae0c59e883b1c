#include "tf_ops/core/records/sample_bytes.h"

#include <cstddef>
#include <cstring>

#include "tf_ops/core/base/crc32c.h"

namespace lodestar {
namespace {

// Little-endian, as in memory.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

constexpr char kMagic[8] = {'L', 'O', 'D', 'E', 'S', 'M', 'P', '1'};

// Followed by a checksum of each spec. Then for each used column, the ends of
// its rows if it has any number of values, and its values.
struct Header {
  char magic[8];
  uint32_t crc;  // of all bytes that follow
  uint32_t num_columns;
  int64_t num_rows;
};
static_assert(sizeof(Header) == 24);

constexpr int64_t kFirstChecked = offsetof(Header, num_columns);

std::vector<uint32_t> ChecksumsOf(const std::vector<ColumnSpec>& specs) {
  std::vector<uint32_t> checksums;
  for (const ColumnSpec& spec : specs) {
    const std::string text =
        StrCat(spec.name, '\0', spec.is_float, spec.is_text, spec.used, ' ',
               spec.size, ' ', spec.multiple, ' ', spec.weighs);
    checksums.push_back(
        Crc32c(text.data(), static_cast<int64_t>(text.size()), 0));
  }
  return checksums;
}

template <typename T>
void Put(const T* values, size_t count, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

// Reads values from the front of a byte string.
class ByteReader {
 public:
  ByteReader(const char* data, int64_t size) : data_(data), left_(size) {}

  bool at_end() const { return left_ == 0; }

  // Returns false if there are too few bytes.
  template <typename Values>
  bool Take(int64_t count, Values* values) {
    constexpr int64_t kBytes = sizeof(*values->data());
    if (count < 0 || count > left_ / kBytes) return false;
    if (count == 0) return true;
    const size_t size = values->size();
    values->resize(size + count);
    std::memcpy(values->data() + size, data_, count * kBytes);
    data_ += count * kBytes;
    left_ -= count * kBytes;
    return true;
  }

 private:
  const char* data_;
  int64_t left_;
};

// Returns false if there are too few bytes.
bool ReadColumn(const ColumnSpec& spec, int64_t num_rows, ByteReader* bytes,
                SlotColumn* column) {
  int64_t count = 0;
  if (spec.size < 0) {
    if (!bytes->Take(num_rows, &column->row_splits)) return false;
    count = column->row_splits.back();
  } else if (__builtin_mul_overflow(num_rows, spec.size, &count)) {
    return false;
  }
  return spec.is_text    ? bytes->Take(count, &column->text)
         : spec.is_float ? bytes->Take(count, &column->floats)
                         : bytes->Take(count, &column->ints);
}

}  // namespace

std::string EncodeSamples(const std::vector<ColumnSpec>& specs,
                          const SlotRows& rows) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.num_columns = static_cast<uint32_t>(specs.size());
  header.num_rows = rows.num_rows();
  const std::vector<uint32_t> checksums = ChecksumsOf(specs);
  std::string bytes;
  Put(&header, 1, &bytes);
  Put(checksums.data(), checksums.size(), &bytes);
  for (size_t c = 0; c < specs.size(); ++c) {
    if (!specs[c].used) continue;
    const SlotColumn& column = rows.columns()[c];
    if (specs[c].size < 0) {
      Put(column.row_splits.data() + 1, rows.num_rows(), &bytes);
    }
    Put(column.ints.data(), column.ints.size(), &bytes);
    Put(column.floats.data(), column.floats.size(), &bytes);
    bytes += column.text;
  }
  header.crc = Crc32c(bytes.data() + kFirstChecked,
                      static_cast<int64_t>(bytes.size()) - kFirstChecked);
  std::memcpy(&bytes[offsetof(Header, crc)], &header.crc, sizeof(header.crc));
  return bytes;
}

Status DecodeSamples(const std::vector<ColumnSpec>& specs, const char* data,
                     int64_t size, SlotRows* rows) {
  Header header;
  if (size < static_cast<int64_t>(sizeof(header)) ||
      std::memcmp(data, kMagic, sizeof(kMagic)) != 0) {
    return InvalidArgument("found ", size,
                           " bytes that are not serialized samples");
  }
  std::memcpy(&header, data, sizeof(header));
  if (Crc32c(data + kFirstChecked, size - kFirstChecked) != header.crc) {
    return DataLoss("the checksum of the samples differs");
  }
  const std::vector<uint32_t> wanted = ChecksumsOf(specs);
  if (header.num_columns != wanted.size()) {
    return InvalidArgument("the samples have other slots: found ",
                           header.num_columns, " slots, expected ",
                           wanted.size());
  }
  ByteReader bytes(data + sizeof(header), size - sizeof(header));
  std::vector<uint32_t> found;
  bool fits = bytes.Take(header.num_columns, &found) && header.num_rows >= 0;
  for (size_t c = 0; c < specs.size() && fits; ++c) {
    if (found[c] == wanted[c]) continue;
    return InvalidArgument("the samples have other slots: slot '",
                           specs[c].name, "' differs");
  }
  *rows = SlotRows(specs);
  for (size_t c = 0; c < specs.size() && fits; ++c) {
    fits = !specs[c].used || ReadColumn(specs[c], header.num_rows, &bytes,
                                        rows->mutable_column(c));
  }
  rows->AddRows(header.num_rows);
  if (fits && bytes.at_end() && rows->FindUnfit(specs) < 0) return Status();
  return DataLoss("the samples are inconsistent with their slots");
}

}  // namespace lodestar
