#include "tf_ops/core/snapshot/manifest.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/base/json.h"

namespace lodestar {
namespace {

constexpr int64_t kFormat = 4;
constexpr int64_t kMaxDim = int64_t{1} << 16;
constexpr int64_t kMaxParts = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr char kName[] = "MANIFEST";
constexpr int64_t kMarkDigits = 32;

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool IsMark(std::string_view text) {
  return static_cast<int64_t>(text.size()) == kMarkDigits && IsHex(text);
}

// A plain name of a file. A path might lead out of the version's folder.
bool IsFileName(std::string_view name) {
  const auto is_alphanumeric = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z');
  };
  return !name.empty() && name != kName && is_alphanumeric(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return is_alphanumeric(c) || c == '_' || c == '.' || c == '-';
         });
}

// A required member of an object that describes a T. read(json, name, out)
// reads the value of the member `name`.
template <typename T>
struct Field {
  std::string_view name;
  Status (*read)(JsonReader* json, std::string_view name, T* out);
};

// Reads an object; skips members that are not in `fields`.
template <typename T, size_t kSize>
Status ReadRecord(JsonReader* json, std::string_view what,
                  const Field<T> (&fields)[kSize], T* out) {
  if (json->Peek() != JsonReader::Kind::kObject) {
    return InvalidArgument(what, " must be an object");
  }
  bool seen[kSize] = {};
  LODESTAR_RETURN_IF_ERROR(json->ReadObject([&](std::string_view name) {
    for (size_t f = 0; f < kSize; ++f) {
      if (fields[f].name != name) continue;
      if (seen[f]) {
        return InvalidArgument("the name '", name, "' occurs a second time");
      }
      seen[f] = true;
      return fields[f].read(json, name, out);
    }
    return json->Skip();
  }));
  for (size_t f = 0; f < kSize; ++f) {
    if (!seen[f]) return InvalidArgument("has no `", fields[f].name, "`");
  }
  return Status();
}

Status MustBe(std::string_view name, std::string_view wanted) {
  return InvalidArgument("`", name, "` must be ", wanted);
}

Status ReadInteger(JsonReader* json, std::string_view name, int64_t low,
                   int64_t high, int64_t* value) {
  bool is_integer = json->Peek() == JsonReader::Kind::kNumber;
  if (is_integer) {
    LODESTAR_RETURN_IF_ERROR(json->ReadNumber(value, &is_integer));
  }
  if (is_integer && low <= *value && *value <= high) return Status();
  return MustBe(name, StrCat("an integer in [", low, ", ", high, "]"));
}

Status ReadSize(JsonReader* json, std::string_view name, int64_t* value) {
  return ReadInteger(json, name, 0, kMaxInt64, value);
}

Status ReadFlag(JsonReader* json, std::string_view name, bool* value) {
  if (json->Peek() != JsonReader::Kind::kBool) {
    return MustBe(name, "true or false");
  }
  return json->ReadBool(value);
}

Status ReadText(JsonReader* json, std::string_view name, std::string* value,
                bool (*accepts)(std::string_view), std::string_view wanted) {
  if (json->Peek() != JsonReader::Kind::kString) {
    return MustBe(name, "a string");
  }
  LODESTAR_RETURN_IF_ERROR(json->ReadString(value));
  return accepts(*value) ? Status() : MustBe(name, wanted);
}

Status ReadAnyText(JsonReader* json, std::string_view name,
                   std::string* value) {
  return ReadText(json, name, value, [](std::string_view) { return true; }, "");
}

Status ReadName(JsonReader* json, std::string_view name, std::string* value) {
  return ReadText(
      json, name, value, [](std::string_view text) { return !text.empty(); },
      "a name");
}

Status ReadFileName(JsonReader* json, std::string_view name,
                    std::string* value) {
  return ReadText(json, name, value, IsFileName, "the plain name of a file");
}

Status ReadMark(JsonReader* json, std::string_view name, std::string* value) {
  return ReadText(json, name, value, IsMark, "32 hex digits");
}

Status ReadVersion(JsonReader* json, std::string_view name, int64_t* value) {
  return ReadInteger(json, name, 1, kMaxInt64, value);
}

Status ReadCrc(JsonReader* json, std::string_view name, uint32_t* value) {
  int64_t number = 0;
  LODESTAR_RETURN_IF_ERROR(ReadInteger(
      json, name, 0, std::numeric_limits<uint32_t>::max(), &number));
  *value = static_cast<uint32_t>(number);
  return Status();
}

// Calls read_item() for each item of a list.
template <typename Fn>
Status ReadList(JsonReader* json, std::string_view name, const Fn& read_item) {
  if (json->Peek() != JsonReader::Kind::kArray) return MustBe(name, "a list");
  return json->ReadArray(read_item);
}

template <typename T, size_t kSize>
Status ReadRecords(JsonReader* json, std::string_view name,
                   std::string_view what, const Field<T> (&fields)[kSize],
                   std::vector<T>* records) {
  return ReadList(json, name, [&] {
    return ReadRecord(json, what, fields, &records->emplace_back());
  });
}

// A version, or null for none.
constexpr Field<VersionId> kVersionFields[] = {
    {"version", [](auto* json, auto name,
                   auto* id) { return ReadVersion(json, name, &id->version); }},
    {"mark", [](auto* json, auto name,
                auto* id) { return ReadMark(json, name, &id->mark); }},
};
Status ReadOther(JsonReader* json, std::string_view name, VersionId* id) {
  if (json->Peek() == JsonReader::Kind::kNull) return json->ReadNull();
  return ReadRecord(json, StrCat("`", name, "`"), kVersionFields, id);
}

constexpr Field<ManifestFile> kFileFields[] = {
    {"file", [](auto* json, auto name,
                auto* out) { return ReadFileName(json, name, &out->file); }},
    {"bytes", [](auto* json, auto name,
                 auto* out) { return ReadSize(json, name, &out->bytes); }},
    {"crc32c", [](auto* json, auto name,
                  auto* out) { return ReadCrc(json, name, &out->crc32c); }},
};

bool IsDtype(std::string_view dtype) {
  return dtype == "float32" || dtype == "float64" || dtype == "float16" ||
         dtype == "bfloat16";
}

constexpr Field<ManifestTable> kTableFields[] = {
    {"file", [](auto* json, auto name,
                auto* out) { return ReadFileName(json, name, &out->file); }},
    {"bytes", [](auto* json, auto name,
                 auto* out) { return ReadSize(json, name, &out->bytes); }},
    {"crc32c", [](auto* json, auto name,
                  auto* out) { return ReadCrc(json, name, &out->crc32c); }},
    {"name", [](auto* json, auto name,
                auto* out) { return ReadName(json, name, &out->name); }},
    {"whole", [](auto* json, auto name,
                 auto* out) { return ReadFlag(json, name, &out->whole); }},
    {"dim",
     [](auto* json, auto name, auto* out) {
       return ReadInteger(json, name, 1, kMaxDim, &out->dim);
     }},
    {"dtype",
     [](auto* json, auto name, auto* out) {
       return ReadText(json, name, &out->dtype, IsDtype, "a dtype of rows");
     }},
    {"rows", [](auto* json, auto name,
                auto* out) { return ReadSize(json, name, &out->rows); }},
    {"removed", [](auto* json, auto name,
                   auto* out) { return ReadSize(json, name, &out->removed); }},
    {"part",
     [](auto* json, auto name, auto* out) {
       return ReadInteger(json, name, 0, kMaxParts, &out->part);
     }},
    {"parts",
     [](auto* json, auto name, auto* out) {
       return ReadInteger(json, name, 1, kMaxParts, &out->parts);
     }},
};

constexpr Field<ManifestBlob> kBlobFields[] = {
    {"name", [](auto* json, auto name,
                auto* out) { return ReadName(json, name, &out->name); }},
    {"file", [](auto* json, auto name,
                auto* out) { return ReadFileName(json, name, &out->file); }},
    {"offset", [](auto* json, auto name,
                  auto* out) { return ReadSize(json, name, &out->offset); }},
    {"bytes",
     [](auto* json, auto name, auto* out) {
       return ReadInteger(json, name, 1, kMaxInt64, &out->bytes);
     }},
    {"dtype", [](auto* json, auto name,
                 auto* out) { return ReadName(json, name, &out->dtype); }},
    {"shape",
     [](auto* json, auto name, auto* out) {
       return ReadList(json, name, [&] {
         return ReadSize(json, name, &out->shape.emplace_back());
       });
     }},
};

struct ParsedManifest {
  Manifest manifest;
  std::string kind;
};

constexpr Field<ParsedManifest> kManifestFields[] = {
    {"format",
     [](auto* json, auto name, ParsedManifest*) {
       int64_t format = 0;
       LODESTAR_RETURN_IF_ERROR(ReadVersion(json, name, &format));
       if (format == kFormat) return Status();
       return Status(
           StatusCode::kUnimplemented,
           StrCat("has format ", format, ", but this op library reads format ",
                  kFormat, ". Use the Lodestar that wrote it."));
     }},
    {"version",
     [](auto* json, auto name, auto* out) {
       return ReadVersion(json, name, &out->manifest.id.version);
     }},
    {"mark",
     [](auto* json, auto name, auto* out) {
       return ReadMark(json, name, &out->manifest.id.mark);
     }},
    {"parent",
     [](auto* json, auto name, auto* out) {
       return ReadOther(json, name, &out->manifest.parent);
     }},
    {"same_as",
     [](auto* json, auto name, auto* out) {
       return ReadOther(json, name, &out->manifest.same_as);
     }},
    {"kind",
     [](auto* json, auto name, auto* out) {
       return ReadText(
           json, name, &out->kind,
           [](std::string_view kind) {
             return kind == "full" || kind == "delta";
           },
           "'full' or 'delta'");
     }},
    {"step",
     [](auto* json, auto name, auto* out) {
       return ReadInteger(json, name, std::numeric_limits<int64_t>::min(),
                          kMaxInt64, &out->manifest.step);
     }},
    {"time",
     [](auto* json, auto name, auto* out) {
       return ReadAnyText(json, name, &out->manifest.time);
     }},
    {"tables",
     [](auto* json, auto name, auto* out) {
       return ReadRecords(json, name, "a table", kTableFields,
                          &out->manifest.tables);
     }},
    {"blobs",
     [](auto* json, auto name, auto* out) {
       return ReadRecords(json, name, "a blob", kBlobFields,
                          &out->manifest.blobs);
     }},
    {"files",
     [](auto* json, auto name, auto* out) {
       return ReadRecords(json, name, "a file", kFileFields,
                          &out->manifest.files);
     }},
};

// Sorts the names and returns InvalidArgument if one occurs twice.
Status CheckUnique(const char* what, std::vector<std::string_view>* names) {
  std::sort(names->begin(), names->end());
  const auto twice = std::adjacent_find(names->begin(), names->end());
  if (twice == names->end()) return Status();
  return InvalidArgument("has several entries of the ", what, " '", *twice,
                         "'");
}

// Sets manifest->parts, and checks that each table has all of its parts.
Status IndexParts(Manifest* manifest) {
  const std::vector<ManifestTable>& tables = manifest->tables;
  for (size_t t = 0; t < tables.size(); ++t) {
    std::vector<size_t>& parts = manifest->parts[tables[t].name];
    const ManifestTable& first = parts.empty() ? tables[t] : tables[parts[0]];
    if (tables[t].part != static_cast<int64_t>(parts.size()) ||
        tables[t].parts != first.parts) {
      return InvalidArgument("the table '", first.name, "' must have the ",
                             first.parts,
                             " parts of its first file once and "
                             "in order");
    }
    if (tables[t].dim != first.dim || tables[t].dtype != first.dtype) {
      return InvalidArgument("the table '", first.name,
                             "' has parts of different dims or dtypes");
    }
    parts.push_back(t);
  }
  for (const auto& [name, parts] : manifest->parts) {
    if (static_cast<int64_t>(parts.size()) == tables[parts[0]].parts) continue;
    return InvalidArgument("the table '", name, "' must have ",
                           tables[parts[0]].parts, " parts, got ",
                           parts.size());
  }
  return Status();
}

Status CheckConsistent(const Manifest& manifest, bool full) {
  std::vector<std::string_view> files;
  for (const ManifestFile& file : manifest.files) files.push_back(file.file);
  LODESTAR_RETURN_IF_ERROR(CheckUnique("file", &files));
  std::vector<std::string_view> blobs;
  for (const ManifestBlob& blob : manifest.blobs) {
    blobs.push_back(blob.name);
    if (!std::binary_search(files.begin(), files.end(), blob.file)) {
      return InvalidArgument("the blob '", blob.name, "' is in '", blob.file,
                             "', which is not in `files`");
    }
  }
  LODESTAR_RETURN_IF_ERROR(CheckUnique("blob", &blobs));
  for (const ManifestTable& table : manifest.tables) {
    files.push_back(table.file);
    if (full && !table.whole) {
      return InvalidArgument("`kind` is 'full', but the table '", table.name,
                             "' is not whole");
    }
  }
  LODESTAR_RETURN_IF_ERROR(CheckUnique("file", &files));
  if (std::max(manifest.parent.version, manifest.same_as.version) >=
      manifest.id.version) {
    return InvalidArgument("`parent` and `same_as` must be versions before ",
                           manifest.id.version);
  }
  if (full != (manifest.parent.version == 0)) {
    return InvalidArgument("`kind` and `parent` contradict each other");
  }
  return Status();
}

template <typename T>
void AppendNumber(T number, std::string* out) {
  out->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

std::string MakeLabel(const Manifest& manifest, const std::string& name,
                      int64_t part, int64_t parts) {
  const std::string& mark = manifest.id.mark;
  std::string label;
  AppendNumber(static_cast<uint64_t>(manifest.id.version), &label);
  for (size_t i = 0; i < mark.size(); i += 2) {
    uint8_t byte = 0;
    const char* const digits = mark.data() + i;
    std::from_chars(digits, digits + 2, byte, 16);
    AppendNumber(byte, &label);
  }
  AppendNumber(static_cast<uint32_t>(name.size()), &label);
  label += name;
  label.append(-name.size() % 4, '\0');
  if (parts > 1) {
    AppendNumber(static_cast<uint32_t>(part), &label);
    AppendNumber(static_cast<uint32_t>(parts), &label);
  }
  return label;
}

}  // namespace

std::vector<const ManifestTable*> Manifest::PartsOf(
    std::string_view name) const {
  std::vector<const ManifestTable*> found;
  const auto of_table = parts.find(name);
  if (of_table == parts.end()) return found;
  for (const size_t index : of_table->second) found.push_back(&tables[index]);
  return found;
}

const ManifestFile* Manifest::FindFile(std::string_view name) const {
  const auto found =
      std::find_if(files.begin(), files.end(),
                   [&](const ManifestFile& file) { return file.file == name; });
  return found == files.end() ? nullptr : &*found;
}

std::string Manifest::LabelOf(const ManifestTable& table) const {
  return MakeLabel(*this, table.name, table.part, table.parts);
}

std::string Manifest::LabelOf(const ManifestFile& file) const {
  return MakeLabel(*this, file.file, 0, 1);
}

Status ParseManifest(std::string_view content, const std::string& path,
                     Manifest* manifest) {
  const size_t end = content.find('\n');
  if (end == std::string_view::npos) {
    return DataLoss(path, ": ends at byte ", content.size(),
                    ", inside its first line of JSON");
  }
  const std::string_view checksum = content.substr(end + 1);
  uint32_t wanted = 0;
  if (checksum.size() != 9 || checksum[8] != '\n' ||
      !IsHex(checksum.substr(0, 8))) {
    return DataLoss(path, ": byte ", end + 1,
                    " must be a checksum of 8 hex digits and the end of the "
                    "line and file");
  }
  std::from_chars(checksum.data(), checksum.data() + 8, wanted, 16);
  if (Crc32c(content.data(), static_cast<int64_t>(end)) != wanted) {
    return DataLoss(path, ": bytes 0 to ", end, " do not have the checksum ",
                    checksum.substr(0, 8));
  }
  JsonReader json(content.substr(0, end));
  ParsedManifest parsed;
  Status status = ReadRecord(&json, "the manifest", kManifestFields, &parsed);
  if (status.ok()) status = json.End();
  if (status.ok()) status = IndexParts(&parsed.manifest);
  if (status.ok()) {
    status = CheckConsistent(parsed.manifest, parsed.kind == "full");
  }
  if (status.code() == StatusCode::kInvalidArgument) {
    return DataLoss(path, ": ", status.message());
  }
  LODESTAR_RETURN_IF_ERROR(Prefixed(status, path, ": "));
  *manifest = std::move(parsed.manifest);
  return Status();
}

}  // namespace lodestar
