#include "tf_ops/core/snapshot/manifest.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/base/json.h"

namespace lodestar {
namespace {

constexpr int64_t kFormat = 3;
constexpr int64_t kMaxDim = int64_t{1} << 16;
constexpr int64_t kMaxParts = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr char kName[] = "MANIFEST";
constexpr int64_t kRootDigits = 32;

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool IsId(std::string_view text) {
  return static_cast<int64_t>(text.size()) == kRootDigits && IsHex(text);
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

// Reads the members of an object. Keeps the first error.
class Fields {
 public:
  Fields(const JsonValue& object, std::string_view what) : object_(object) {
    if (object.kind != JsonValue::Kind::kObject) {
      Fail(StrCat(what, " must be an object"));
    }
  }

  int64_t Integer(std::string_view name, int64_t low,
                  int64_t high = kMaxInt64) {
    const JsonValue* const found = Find(name);
    int64_t value = 0;
    if (found == nullptr) return 0;
    if (!found->ReadInteger(&value) || value < low || value > high) {
      FailField(name, StrCat("an integer in [", low, ", ", high, "]"));
    }
    return value;
  }
  // 0 if null.
  int64_t Version(std::string_view name) {
    const JsonValue* const found = Find(name);
    if (found == nullptr || found->kind == JsonValue::Kind::kNull) return 0;
    return Integer(name, 1);
  }
  bool Bool(std::string_view name) {
    const JsonValue* const found = Find(name, JsonValue::Kind::kBool,  //
                                        "true or false");
    return found != nullptr && found->boolean;
  }
  std::string Text(std::string_view name) {
    const JsonValue* const found =
        Find(name, JsonValue::Kind::kString, "a string");
    return found == nullptr ? std::string() : found->text;
  }
  template <typename Accepts>
  std::string Text(std::string_view name, const Accepts& accepts,
                   std::string_view wanted) {
    std::string text = Text(name);
    if (!accepts(text)) FailField(name, wanted);
    return text;
  }
  const std::vector<JsonValue>& List(std::string_view name) {
    const JsonValue* const found =
        Find(name, JsonValue::Kind::kArray, "a list");
    return found == nullptr ? no_items_ : found->items;
  }

  void Fail(std::string message) {
    if (status_.ok()) status_ = InvalidArgument(message);
  }
  void FailField(std::string_view name, std::string_view wanted) {
    Fail(StrCat("`", name, "` must be ", wanted));
  }
  const Status& status() const { return status_; }

 private:
  const JsonValue* Find(std::string_view name) {
    const JsonValue* const found = object_.Find(name);
    if (found == nullptr) Fail(StrCat("has no `", name, "`"));
    return found;
  }
  const JsonValue* Find(std::string_view name, JsonValue::Kind kind,
                        std::string_view wanted) {
    const JsonValue* const found = Find(name);
    if (found == nullptr || found->kind == kind) return found;
    FailField(name, wanted);
    return nullptr;
  }

  const JsonValue& object_;
  const std::vector<JsonValue> no_items_;
  Status status_;
};

void ReadFile(Fields* fields, ManifestFile* file) {
  file->file = fields->Text("file", IsFileName, "the plain name of a file");
  file->bytes = fields->Integer("bytes", 0);
  file->crc32c = static_cast<uint32_t>(
      fields->Integer("crc32c", 0, std::numeric_limits<uint32_t>::max()));
}

Status ReadTable(const JsonValue& value, int64_t format, ManifestTable* table) {
  const auto is_dtype = [](const std::string& dtype) {
    return dtype == "float32" || dtype == "float64" || dtype == "float16" ||
           dtype == "bfloat16";
  };
  const auto is_name = [](const std::string& name) { return !name.empty(); };
  Fields fields(value, "a table");
  ReadFile(&fields, table);
  table->name = fields.Text("name", is_name, "a name");
  table->whole = fields.Bool("whole");
  table->dim = fields.Integer("dim", 1, kMaxDim);
  table->dtype = fields.Text("dtype", is_dtype, "a dtype of rows");
  if (format >= 3) {
    table->part = fields.Integer("part", 0, kMaxParts);
    table->parts = fields.Integer("parts", 1, kMaxParts);
  }
  return fields.status();
}

Status ReadBlob(const JsonValue& value, ManifestBlob* blob) {
  const auto is_text = [](const std::string& text) { return !text.empty(); };
  Fields fields(value, "a blob");
  blob->name = fields.Text("name", is_text, "a name");
  blob->file = fields.Text("file", IsFileName, "the plain name of a file");
  blob->offset = fields.Integer("offset", 0);
  blob->bytes = fields.Integer("bytes", 1);
  blob->dtype = fields.Text("dtype", is_text, "a dtype");
  for (const JsonValue& item : fields.List("shape")) {
    int64_t size = 0;
    if (!item.ReadInteger(&size) || size < 0) {
      fields.FailField("shape", "a list of sizes");
    }
    blob->shape.push_back(size);
  }
  return fields.status();
}

Status CheckUnique(const char* what, std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return Status();
  return InvalidArgument("has several entries of the ", what, " '", *twice,
                         "'");
}

Status CheckParts(const Manifest& manifest) {
  for (const ManifestTable& table : manifest.tables) {
    const std::vector<const ManifestTable*> parts =
        manifest.PartsOf(table.name);
    for (size_t part = 0; part < parts.size(); ++part) {
      if (parts[part]->part != static_cast<int64_t>(part) ||
          parts[part]->parts != static_cast<int64_t>(parts.size())) {
        return InvalidArgument("the table '", table.name, "' must have the ",
                               parts[0]->parts,
                               " parts of its first file in order");
      }
      if (parts[part]->dim != table.dim || parts[part]->dtype != table.dtype) {
        return InvalidArgument("the table '", table.name,
                               "' has parts of different dims or dtypes");
      }
    }
  }
  return Status();
}

Status CheckConsistent(const Manifest& manifest, bool full) {
  std::vector<std::string> tables;
  std::vector<std::string> files;
  std::vector<std::string> blobs;
  for (const ManifestTable& table : manifest.tables) {
    if (table.part == 0) tables.push_back(table.name);
    files.push_back(table.file);
    if (full && !table.whole) {
      return InvalidArgument("`kind` is 'full', but the table '", table.name,
                             "' is not whole");
    }
  }
  for (const ManifestFile& file : manifest.files) files.push_back(file.file);
  for (const ManifestBlob& blob : manifest.blobs) {
    blobs.push_back(blob.name);
    if (manifest.FindFile(blob.file) == nullptr) {
      return InvalidArgument("the blob '", blob.name, "' is in '", blob.file,
                             "', which is not in `files`");
    }
  }
  LODESTAR_RETURN_IF_ERROR(CheckUnique("table", std::move(tables)));
  LODESTAR_RETURN_IF_ERROR(CheckUnique("file", std::move(files)));
  LODESTAR_RETURN_IF_ERROR(CheckUnique("blob", std::move(blobs)));
  LODESTAR_RETURN_IF_ERROR(CheckParts(manifest));
  if (std::max(manifest.parent, manifest.same_as) >= manifest.version) {
    return InvalidArgument("`parent` and `same_as` must be versions before ",
                           manifest.version);
  }
  if (full != (manifest.parent == 0)) {
    return InvalidArgument("`kind` and `parent` contradict each other");
  }
  return Status();
}

template <typename T, typename Read>
Status ReadList(Fields* fields, const char* name, std::vector<T>* list,
                const Read& read) {
  for (const JsonValue& item : fields->List(name)) {
    LODESTAR_RETURN_IF_ERROR(read(item, &list->emplace_back()));
  }
  return fields->status();
}

Status ReadManifest(const JsonValue& value, const std::string& path,
                    Manifest* manifest) {
  Fields fields(value, "the manifest");
  const int64_t format = fields.Integer("format", 1);
  LODESTAR_RETURN_IF_ERROR(fields.status());
  if (format > kFormat) {
    return Status(
        StatusCode::kUnimplemented,
        StrCat(path, ": has format ", format, ", but this op library reads ",
               "formats up to ", kFormat, ". Use a later Lodestar."));
  }
  manifest->root = fields.Text("root", IsId, "32 hex digits");
  manifest->version = fields.Integer("version", 1);
  manifest->parent = fields.Version("parent");
  manifest->same_as = fields.Version("same_as");
  manifest->step = fields.Integer("step", std::numeric_limits<int64_t>::min());
  manifest->time = fields.Text("time");
  if (format >= 2) manifest->mark = fields.Text("mark", IsId, "32 hex digits");
  const std::string kind = fields.Text(
      "kind",
      [](const auto& text) { return text == "full" || text == "delta"; },
      "'full' or 'delta'");
  LODESTAR_RETURN_IF_ERROR(
      ReadList(&fields, "tables", &manifest->tables,
               [&](const JsonValue& item, ManifestTable* table) {
                 return ReadTable(item, format, table);
               }));
  LODESTAR_RETURN_IF_ERROR(
      ReadList(&fields, "blobs", &manifest->blobs, ReadBlob));
  LODESTAR_RETURN_IF_ERROR(
      ReadList(&fields, "files", &manifest->files,
               [](const JsonValue& item, ManifestFile* file) {
                 Fields of_file(item, "a file");
                 ReadFile(&of_file, file);
                 return of_file.status();
               }));
  return CheckConsistent(*manifest, kind == "full");
}

template <typename T>
void AppendNumber(T number, std::string* out) {
  out->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

std::string MakeLabel(const Manifest& manifest, const std::string& name,
                      int64_t part, int64_t parts) {
  if (manifest.mark.empty()) return "";
  std::string label;
  AppendNumber(static_cast<uint64_t>(manifest.version), &label);
  for (size_t i = 0; i < manifest.mark.size(); i += 2) {
    uint8_t byte = 0;
    const char* const digits = manifest.mark.data() + i;
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
  std::vector<const ManifestTable*> parts;
  for (const ManifestTable& table : tables) {
    if (table.name == name) parts.push_back(&table);
  }
  return parts;
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
  *manifest = Manifest();
  JsonValue value;
  Status status = ParseJson(content.substr(0, end), &value);
  if (status.ok()) status = ReadManifest(value, path, manifest);
  if (status.code() != StatusCode::kInvalidArgument) return status;
  return DataLoss(path, ": ", status.message());
}

}  // namespace lodestar
