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

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
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

// A kind of string, and how errors describe it.
struct Text {
  bool (*accepts)(std::string_view text);
  const char* wanted;
};
constexpr Text kAnyText = {[](std::string_view) { return true; }, "a string"};
constexpr Text kNonEmpty = {[](std::string_view text) { return !text.empty(); },
                            "a name"};
constexpr Text kFileName = {IsFileName, "the plain name of a file"};
constexpr Text kMark = {
    [](std::string_view text) { return text.size() == 32 && IsHex(text); },
    "32 hex digits"};
constexpr Text kDtype = {[](std::string_view text) {
                           return text == "float32" || text == "float16" ||
                                  text == "bfloat16";
                         },
                         "a dtype of rows"};
constexpr Text kKind = {
    [](std::string_view text) { return text == "full" || text == "delta"; },
    "'full' or 'delta'"};

// Returns the text of the next value.
Status ReadValue(JsonReader* json, std::string_view* value) {
  json->Peek();
  *value = json->Rest();
  LODESTAR_RETURN_IF_ERROR(json->Skip());
  value->remove_suffix(json->Rest().size());
  return Status();
}

// Reads the members of an object by their names; other members are ignored. The
// first error stays. `json` must outlive this object.
class Record {
 public:
  using Kind = JsonReader::Kind;

  Record(std::string_view what, std::string_view json) {
    JsonReader reader(json);
    if (reader.Peek() != Kind::kObject) {
      Refuse(StrCat(what, " must be an object"), json);
      return;
    }
    status_ = reader.ReadObject([&](const std::string& name) -> Status {
      const auto [member, is_new] = members_.try_emplace(name);
      if (is_new) return ReadValue(&reader, &member->second);
      return InvalidArgument("the name '", name, "' occurs a second time");
    });
    if (status_.ok()) status_ = reader.End();
  }

  const Status& status() const { return status_; }

  void GetInteger(std::string_view name, int64_t low, int64_t high,
                  int64_t* out) {
    const std::string_view value = Find(name);
    JsonReader json(value);
    bool is_integer = json.Peek() == Kind::kNumber;
    if (is_integer && json.ReadNumber(out, &is_integer).ok() && is_integer &&
        low <= *out && *out <= high) {
      return;
    }
    Refuse(StrCat("`", name, "` must be an integer in [", low, ", ", high, "]"),
           value);
  }
  void GetSize(std::string_view name, int64_t* out) {
    GetInteger(name, 0, kMaxInt64, out);
  }
  void GetText(std::string_view name, const Text& kind, std::string* out) {
    const std::string_view value = Find(name);
    JsonReader json(value);
    if (json.Peek() == Kind::kString && json.ReadString(out).ok() &&
        kind.accepts(*out)) {
      return;
    }
    Refuse(StrCat("`", name, "` must be ", kind.wanted), value);
  }
  void GetFlag(std::string_view name, bool* out) {
    const std::string_view value = Find(name);
    JsonReader json(value);
    if (json.Peek() == Kind::kBool && json.ReadBool(out).ok()) return;
    Refuse(StrCat("`", name, "` must be true or false"), value);
  }
  // Reads a version, or null for none.
  void GetVersion(std::string_view name, VersionId* out) {
    const std::string_view value = Find(name);
    if (!status_.ok() || JsonReader(value).Peek() == Kind::kNull) return;
    Record id(StrCat("`", name, "`"), value);
    id.GetInteger("version", 1, kMaxInt64, &out->version);
    id.GetText("mark", kMark, &out->mark);
    status_ = id.status();
  }
  // Calls read_item(item), which returns a Status, for each item of a list.
  template <typename Fn>
  void GetList(std::string_view name, const Fn& read_item) {
    const std::string_view value = Find(name);
    if (!status_.ok()) return;
    JsonReader json(value);
    if (json.Peek() != Kind::kArray) {
      Refuse(StrCat("`", name, "` must be a list"), value);
      return;
    }
    status_ = json.ReadArray([&]() -> Status {
      std::string_view item;
      LODESTAR_RETURN_IF_ERROR(ReadValue(&json, &item));
      return read_item(item);
    });
  }
  void GetObject(std::string_view name, std::string* out) {
    const std::string_view value = Find(name);
    *out = value;
    if (JsonReader(value).Peek() == Kind::kObject) return;
    Refuse(StrCat("`", name, "` must be an object"), value);
  }

 private:
  // Returns an empty text without such a member.
  std::string_view Find(std::string_view name) {
    const auto member = members_.find(name);
    if (member != members_.end()) return member->second;
    if (status_.ok()) status_ = InvalidArgument("has no `", name, "`");
    return {};
  }
  void Refuse(const std::string& what, std::string_view value) {
    constexpr size_t kMost = 60;
    if (!status_.ok()) return;
    status_ = InvalidArgument(what, ", got ", value.substr(0, kMost));
  }

  std::map<std::string, std::string_view, std::less<>> members_;
  Status status_;
};

void Read(Record* fields, ManifestFile* out) {
  int64_t crc = 0;
  fields->GetText("file", kFileName, &out->file);
  fields->GetSize("bytes", &out->bytes);
  fields->GetInteger("crc32c", 0, std::numeric_limits<uint32_t>::max(), &crc);
  out->crc32c = static_cast<uint32_t>(crc);
}

void Read(Record* fields, ManifestTable* out) {
  std::string unused;
  Read(fields, static_cast<ManifestFile*>(out));
  fields->GetText("name", kNonEmpty, &out->name);
  fields->GetFlag("whole", &out->whole);
  fields->GetInteger("dim", 1, kMaxDim, &out->dim);
  fields->GetText("dtype", kDtype, &out->dtype);
  fields->GetText("optimizer", kAnyText, &unused);
  fields->GetList("slot_names", [&](std::string_view item) {
    return JsonReader(item).ReadString(&unused).ok()
               ? Status()
               : InvalidArgument("`slot_names` must have strings, got ", item);
  });
  fields->GetSize("rows", &out->rows);
  fields->GetSize("removed", &out->removed);
  fields->GetInteger("part", 0, kMaxParts, &out->part);
  fields->GetInteger("parts", 1, kMaxParts, &out->parts);
}

void Read(Record* fields, ManifestBlob* out) {
  fields->GetText("name", kNonEmpty, &out->name);
  fields->GetText("file", kFileName, &out->file);
  fields->GetSize("offset", &out->offset);
  fields->GetInteger("bytes", 1, kMaxInt64, &out->bytes);
  fields->GetText("dtype", kNonEmpty, &out->dtype);
  fields->GetList("shape", [&](std::string_view item) -> Status {
    bool is_integer = false;
    int64_t size = -1;
    LODESTAR_RETURN_IF_ERROR(JsonReader(item).ReadNumber(&size, &is_integer));
    out->shape.push_back(size);
    if (size >= 0) return Status();
    return InvalidArgument("`shape` must have integers of at least 0, got ",
                           item);
  });
}

template <typename T>
void ReadAll(Record* fields, const char* name, const char* what,
             std::vector<T>* out) {
  fields->GetList(name, [&](std::string_view item) {
    Record record(what, item);
    Read(&record, &out->emplace_back());
    return record.status();
  });
}

void Read(Record* fields, std::string* kind, Manifest* out) {
  std::string unused;
  fields->GetInteger("version", 1, kMaxInt64, &out->id.version);
  fields->GetText("mark", kMark, &out->id.mark);
  fields->GetVersion("parent", &out->parent);
  fields->GetVersion("same_as", &out->same_as);
  fields->GetText("kind", kKind, kind);
  fields->GetInteger("step", std::numeric_limits<int64_t>::min(), kMaxInt64,
                     &out->step);
  fields->GetText("time", kAnyText, &out->time);
  ReadAll(fields, "tables", "a table", &out->tables);
  ReadAll(fields, "blobs", "a blob", &out->blobs);
  ReadAll(fields, "files", "a file", &out->files);
  fields->GetObject("metadata", &out->metadata);
  fields->GetText("lodestar", kAnyText, &unused);
}

// Returns whether a piece of valid UTF-8 is valid, also if escapes of JSON made
// halves of surrogate pairs.
bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto at = [&](size_t k) {
      return i + k < text.size() ? static_cast<uint8_t>(text[i + k]) : 0;
    };
    const size_t more = at(0) < 0x80   ? 0
                        : at(0) < 0xe0 ? 1
                        : at(0) < 0xf0 ? 2
                                       : 3;
    if (at(0) >= 0x80 && at(0) < 0xc0) return false;
    if (at(0) == 0xed && at(1) >= 0xa0) return false;
    for (size_t k = 1; k <= more; ++k) {
      if ((at(k) & 0xc0) != 0x80) return false;
    }
    i += more;
  }
  return true;
}

// Returns a message with `?` for what Python could not show in one line.
std::string Printable(std::string message) {
  const bool is_utf8 = IsUtf8(message);
  for (char& c : message) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || (byte >= 0x80 && !is_utf8)) c = '?';
  }
  return message;
}

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
    const ManifestTable& table = tables[t];
    std::vector<size_t>& parts = manifest->parts[table.name];
    const ManifestTable& first = parts.empty() ? table : tables[parts[0]];
    if (table.part != static_cast<int64_t>(parts.size()) ||
        table.parts != first.parts) {
      return InvalidArgument(
          "the table '", first.name, "' must have the parts 0 to ",
          first.parts - 1, " of ", first.parts, " in order, got ", table.part,
          " of ", table.parts, " after ", parts.size(), " of them");
    }
    if (table.dim != first.dim || table.dtype != first.dtype) {
      return InvalidArgument("the table '", first.name, "' has parts of dim ",
                             first.dim, " and dtype ", first.dtype, ", and of ",
                             table.dim, " and ", table.dtype);
    }
    parts.push_back(t);
  }
  for (const auto& [name, parts] : manifest->parts) {
    const int64_t count = tables[parts[0]].parts;
    if (static_cast<int64_t>(parts.size()) == count) continue;
    return InvalidArgument("the table '", name, "' must have ", count,
                           " parts, got ", parts.size());
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
  for (const auto& [name, other] :
       {std::pair("parent", manifest.parent.version),
        std::pair("same_as", manifest.same_as.version)}) {
    if (other < manifest.id.version) continue;
    return InvalidArgument("`", name, "` must be a version before ",
                           manifest.id.version, ", got ", other);
  }
  if (full != (manifest.parent.version == 0)) {
    return InvalidArgument("`kind` is ", full ? "'full'" : "'delta'",
                           ", but `parent` is ",
                           full ? StrCat(manifest.parent.version) : "null");
  }
  return Status();
}

template <typename T>
void AppendNumber(T number, std::string* out) {
  out->append(reinterpret_cast<const char*>(&number), sizeof(number));
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

std::string MakeLabel(const VersionId& version, const std::string& name,
                      int64_t part, int64_t parts) {
  const std::string& mark = version.mark;
  std::string label;
  AppendNumber(static_cast<uint64_t>(version.version), &label);
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
  const uint32_t found = Crc32c(content.data(), static_cast<int64_t>(end));
  if (found != wanted) {
    return DataLoss(path, ": bytes 0 to ", end, " have the checksum ",
                    HexOf(found), ", but byte ", end + 1, " has ",
                    checksum.substr(0, 8));
  }
  Record fields("the manifest", content.substr(0, end));
  int64_t format = 0;
  fields.GetInteger("format", 1, kMaxInt64, &format);
  if (fields.status().ok() && format != kFormat) {
    std::string writer;
    fields.GetText("lodestar", kAnyText, &writer);
    return Status(StatusCode::kUnimplemented,
                  StrCat(path, ": has format ", format,
                         ", but this Lodestar reads format ", kFormat,
                         ". Use the Lodestar that wrote it, '", writer, "'."));
  }
  Manifest parsed;
  std::string kind;
  Read(&fields, &kind, &parsed);
  Status status = fields.status();
  if (status.ok()) status = IndexParts(&parsed);
  if (status.ok()) status = CheckConsistent(parsed, kind == "full");
  if (!status.ok()) return DataLoss(path, ": ", Printable(status.message()));
  for (ManifestTable& table : parsed.tables) {
    table.label = MakeLabel(parsed.id, table.name, table.part, table.parts);
  }
  for (ManifestFile& file : parsed.files) {
    file.label = MakeLabel(parsed.id, file.file);
  }
  *manifest = std::move(parsed);
  return Status();
}

}  // namespace lodestar
