// Files of records in memory, read as RecordReader and RecordSource read them.

#ifndef LODESTAR_TESTS_CORE_RECORDS_RECORD_FILES_H_
#define LODESTAR_TESTS_CORE_RECORDS_RECORD_FILES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/records/record_format.h"

namespace lodestar {

template <typename T>
std::string BytesOf(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) bytes += BytesOf(value);
  return bytes;
}

// "01 ff" becomes two bytes.
inline std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    while (i < hex.size() && (hex[i] == ' ' || hex[i] == '\n')) ++i;
    if (i + 1 >= hex.size()) break;
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

struct ReadFile {
  explicit ReadFile(const std::vector<ColumnSpec>& specs) : rows(specs) {}

  SlotRows rows;
  int64_t num_cut = 0;                // records
  int64_t num_rejected = 0;           // rejected records
  std::vector<std::string> messages;  // with their positions, for a file "f"
};

// Reads `file`, growing the buffer by `chunk` bytes per call. Stops at the
// first error, unless `skip` is set and the next record is known. Each buffer
// has exactly the needed size, so that a sanitizer detects reads beyond it.
inline ReadFile ReadRecords(const RecordFormat& format, const std::string& file,
                            int64_t chunk = 1 << 20, bool skip = false) {
  ReadFile result(format.specs());
  const auto cutter = format.NewCutter();
  const int64_t size = static_cast<int64_t>(file.size());
  int64_t begin = 0;
  int64_t end = 0;
  bool at_end = false;
  while (true) {
    if (!at_end) {
      at_end = size - end < chunk;
      end = std::min(size, end + chunk);
    }
    const std::vector<char> bytes(file.begin() + begin, file.begin() + end);
    RecordCut cut;
    const Status status =
        cutter->Next(bytes.data(), bytes.data() + bytes.size(), at_end, &cut);
    if (!status.ok()) {
      result.messages.push_back("f: " + status.message());
      return result;
    }
    if (cut.records == 0) {
      if (at_end) return result;
      continue;
    }
    const int64_t first_record = result.num_cut;
    result.num_cut += cut.records;
    const std::vector<char> piece(bytes.begin() + cut.header,
                                  bytes.begin() + cut.header + cut.bytes);
    const int64_t piece_offset = begin + cut.header;
    begin += cut.header + cut.bytes;
    int64_t number = 0;
    for (int64_t at = 0; at < cut.bytes;) {
      const std::vector<char> rest(piece.begin() + at, piece.end());
      BadRecord bad;
      const Status parsed =
          format.Parse(cut.variant, rest.data(), rest.data() + rest.size(),
                       &result.rows, &bad);
      if (parsed.ok()) break;
      number += bad.record;
      result.messages.push_back(
          "f" +
          format.Describe(first_record + number,
                          piece_offset + at + bad.offset) +
          ": " + parsed.message());
      result.num_rejected += bad.next < 0 ? cut.records - number : 1;
      if (!skip) return result;
      if (bad.next < 0) break;
      ++number;
      at += bad.next;
    }
    if (cut.last) return result;
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_RECORDS_RECORD_FILES_H_
