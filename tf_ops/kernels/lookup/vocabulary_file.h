// Reads a vocabulary file into the map of an id table, chunk by chunk.

#ifndef LODESTAR_TF_OPS_KERNELS_LOOKUP_VOCABULARY_FILE_H_
#define LODESTAR_TF_OPS_KERNELS_LOOKUP_VOCABULARY_FILE_H_

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/env.h"
#include "tf_ops/core/lookup/id_table.h"
#include "tf_ops/core/lookup/vocabulary_line.h"
#include "tf_ops/core/records/line_cutter.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/records/byte_stream.h"
#include "tf_ops/kernels/records/record_reader.h"

namespace lodestar {

// Adds the keys of a file, of type K (an integer or tstring), to an empty map.
// Errors name the file and, if applicable, the line. Returns errors such as
// NotFound if the file cannot be read; InvalidArgument for an empty file or
// line, for missing columns, invalid numbers, keys with two values and fewer
// lines than `vocab_size`; and ResourceExhausted if out of memory.
template <typename K, typename Map>
absl::Status ReadVocabulary(tensorflow::Env* env, const std::string& path,
                            const VocabularyFormat& format, Map* map) {
  using Key = typename Map::Key;
  std::unique_ptr<ByteStream> stream;
  LODESTAR_TRY(ByteStream::Open(env, path, &stream));
  RecordReader reader(path, std::move(stream), std::make_unique<LineCutter>());

  // Parses the key column of a line.
  const auto parse_key = [&](std::string_view text, int64_t number, Key* key) {
    if constexpr (std::is_same_v<K, tstring>) {
      *key = text;
      return Status();
    } else {
      K parsed = static_cast<K>(number);
      if (format.key_column != kLineNumber) {
        const std::string type =
            DataTypeString(tensorflow::DataTypeToEnum<K>::v());
        LODESTAR_RETURN_IF_ERROR(ParseInteger(text, type.c_str(), &parsed));
      } else if (static_cast<int64_t>(parsed) != number) {
        return InvalidArgument("the line number does not fit the keys' type.");
      }
      *key = static_cast<Key>(parsed);
      return Status();
    }
  };
  const auto parse_line = [&](std::string_view line, int64_t number, Key* key,
                              int64_t* value) {
    if (number == 0) LODESTAR_RETURN_IF_ERROR(SkipByteOrderMark(&line));
    if (line.empty()) return InvalidArgument("the line is empty.");
    std::string_view text;
    LODESTAR_RETURN_IF_ERROR(
        ColumnOf(line, format.key_column, format.delimiter, &text));
    LODESTAR_RETURN_IF_ERROR(parse_key(text, number, key));
    *value = number;
    if (format.value_column == kLineNumber) return Status();
    LODESTAR_RETURN_IF_ERROR(
        ColumnOf(line, format.value_column, format.delimiter, &text));
    return ParseInteger(text, "int64", value);
  };
  const auto at_line = [&](const Status& status, int64_t number) {
    return ToTensorFlow(Status(
        status.code(), StrCat(path, ":", number + 1, ": ", status.message())));
  };

  RecordPiece piece;
  std::vector<Key> keys;
  std::vector<int64_t> values;
  int64_t num_lines = 0;
  bool wants_more = format.vocab_size != 0;
  while (wants_more) {
    LODESTAR_TRY(reader.Read(&piece));
    if (piece.num_records == 0) break;
    const int64_t first = piece.first_record;
    keys.clear();
    values.clear();
    const char* const end = piece.end;
    for (const char* p = piece.begin; p < end && wants_more;) {
      const void* const newline = std::memchr(p, '\n', end - p);
      const char* const next =
          newline == nullptr ? end : static_cast<const char*>(newline) + 1;
      const int64_t number = first + static_cast<int64_t>(keys.size());
      Key key;
      int64_t value = 0;
      const Status status = parse_line(
          WithoutLineEnd(std::string_view(p, next - p)), number, &key, &value);
      if (!status.ok()) return at_line(status, number);
      keys.push_back(key);
      values.push_back(value);
      p = next;
      wants_more = number + 1 != format.vocab_size;
    }
    const int64_t count = static_cast<int64_t>(keys.size());
    const auto key_at = [&](int64_t i) { return keys[i]; };
    const auto value_at = [&](int64_t i) { return values[i]; };
    LODESTAR_TRY(map->ReserveFor(count, key_at, value_at));
    const int64_t conflict = map->AddNew(count, key_at, value_at);
    if (conflict >= 0) {
      return at_line(
          InvalidArgument("key ", KeyText(keys[conflict]),
                          " has two values: ", *map->Find(keys[conflict]),
                          " and ", values[conflict], "."),
          first + conflict);
    }
    num_lines = first + count;
  }
  if (format.vocab_size >= 0 && num_lines < format.vocab_size) {
    return InvalidArgumentError(path, ": the file has ", num_lines,
                                " lines, but `vocab_size` is ",
                                format.vocab_size, ".");
  }
  return absl::OkStatus();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_LOOKUP_VOCABULARY_FILE_H_
