#include "tf_ops/core/snapshot/saved_arrays.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "tf_ops/core/snapshot/snapshot_file.h"

namespace lodestar {
namespace {

// The dtypes with their NPY codes. bfloat16 is stored as integers.
struct Dtype {
  std::string_view name;
  std::string_view code;
  int64_t bytes;
};
constexpr Dtype kDtypes[] = {
    {"float32", "<f4", 4},  {"float64", "<f8", 8}, {"float16", "<f2", 2},
    {"bfloat16", "<u2", 2}, {"int64", "<i8", 8},   {"int32", "<i4", 4},
    {"int16", "<i2", 2},    {"int8", "|i1", 1},    {"uint64", "<u8", 8},
    {"uint32", "<u4", 4},   {"uint16", "<u2", 2},  {"uint8", "|u1", 1},
    {"bool", "|b1", 1},
};

const Dtype* FindDtype(std::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

// Returns what follows `'key':` and spaces in a header, or an empty text.
std::string_view ValueOf(std::string_view header, std::string_view key) {
  const std::string quoted = StrCat("'", key, "':");
  const size_t at = header.find(quoted);
  if (at == std::string_view::npos) return {};
  std::string_view value = header.substr(at + quoted.size());
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

bool StartsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

// Reads a tuple such as "(2, 3)" or "(2,)".
bool ReadShape(std::string_view text, std::vector<int64_t>* shape) {
  const size_t end = text.find(')');
  if (!StartsWith(text, "(") || end == std::string_view::npos) return false;
  text = text.substr(1, end - 1);
  while (!text.empty()) {
    if (text[0] == ',' || text[0] == ' ') {
      text.remove_prefix(1);
      continue;
    }
    int64_t size = 0;
    const char* const stop = text.data() + text.size();
    const std::from_chars_result read =
        std::from_chars(text.data(), stop, size);
    if (read.ec != std::errc() || size < 0) return false;
    shape->push_back(size);
    text.remove_prefix(read.ptr - text.data());
  }
  return true;
}

// Returns the number of items, or -1 if they cannot have at most `limit` bytes.
int64_t CountOf(const std::vector<int64_t>& shape, int64_t limit) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size == 0) return 0;
  }
  for (const int64_t size : shape) {
    if (size > limit / count) return -1;
    count *= size;
  }
  return count;
}

// Converts items from column-major to row-major order.
std::string ToRowMajor(std::string_view body, const std::vector<int64_t>& shape,
                       int64_t item) {
  std::string out(body.size(), '\0');
  std::vector<int64_t> index(shape.size());
  for (size_t at = 0; at < out.size(); at += item) {
    int64_t from = 0;
    for (size_t axis = shape.size(); axis-- > 0;) {
      from = from * shape[axis] + index[axis];
    }
    std::memcpy(out.data() + at, body.data() + from * item, item);
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
  return out;
}

}  // namespace

Status ParseArray(std::string_view npy, const ManifestBlob& blob,
                  const std::string& path, SavedArray* array) {
  const auto wrong = [&](const std::string& what) {
    return DataLoss(path, ": the blob '", blob.name, "' is not an array of ",
                    blob.dtype, ": ", what);
  };
  const Dtype* const dtype = FindDtype(blob.dtype);
  if (dtype == nullptr) return wrong("unknown dtype");
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (!StartsWith(npy, kMagic) || npy.size() < 12) return wrong("no NPY data");
  // The header's size has 2 bytes in version 1, and 4 bytes from then on.
  const int64_t size_bytes = npy[6] == 1 ? 2 : 4;
  uint32_t header_size = 0;
  std::memcpy(&header_size, npy.data() + 8, size_bytes);
  const int64_t begin = 8 + size_bytes;
  if (header_size > npy.size() - begin) return wrong("its header is truncated");
  const std::string_view header = npy.substr(begin, header_size);
  const std::string_view body = npy.substr(begin + header_size);
  const std::string_view code = ValueOf(header, "descr");
  if (!StartsWith(code, StrCat("'", dtype->code, "'"))) {
    return wrong(StrCat("its items are ", code.substr(0, code.find(','))));
  }
  const std::string_view in_columns = ValueOf(header, "fortran_order");
  if (!StartsWith(in_columns, "True") && !StartsWith(in_columns, "False")) {
    return wrong("its header has no order");
  }
  std::vector<int64_t> shape;
  if (!ReadShape(ValueOf(header, "shape"), &shape) || shape != blob.shape) {
    return DataLoss(path, ": the blob '", blob.name,
                    "' has another shape than ", "[", Join(blob.shape),
                    "], which its manifest has");
  }
  const int64_t size = static_cast<int64_t>(body.size());
  const int64_t count = CountOf(shape, size);
  if (count < 0 || count * dtype->bytes != size) {
    return wrong(
        StrCat("it has ", size, " bytes for the shape [", Join(shape), "]"));
  }
  array->dtype = blob.dtype;
  array->shape = std::move(shape);
  array->bytes = StartsWith(in_columns, "True")
                     ? ToRowMajor(body, blob.shape, dtype->bytes)
                     : std::string(body);
  return Status();
}

Status ReadBlobs(const ListedFile& file, std::string* blobs) try {
  std::unique_ptr<SnapshotFileReader> reader;
  LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(file.path, &reader));
  SnapshotScan scan(*reader);
  LODESTAR_RETURN_IF_ERROR(
      scan.ForEach(nullptr, [&](const SnapshotFileReader::Block& block) {
        if (block.kind == BlockKind::kBlob) {
          blobs->append(block.payload.data(), block.payload.size());
        }
        return Status();
      }));
  return file.Check(scan);
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the blobs of '", file.path, "'.");
}

Status ReadArrays(const SnapshotFolder& folder, const Manifest& manifest,
                  std::string_view prefix,
                  std::map<std::string, SavedArray>* arrays) {
  std::map<std::string, std::string> streams;
  const auto path_of = [&](const ManifestBlob& blob) {
    return folder.FilePath(manifest.id.version, blob.file);
  };
  for (const ManifestBlob& blob : manifest.blobs) {
    if (!StartsWith(blob.name, prefix)) continue;
    const auto [stream, is_new] = streams.try_emplace(blob.file);
    if (is_new) {
      ListedFile file;
      LODESTAR_RETURN_IF_ERROR(
          folder.CheckFile(manifest, *manifest.FindFile(blob.file), &file));
      LODESTAR_RETURN_IF_ERROR(ReadBlobs(file, &stream->second));
    }
    const std::string_view bytes = stream->second;
    const int64_t size = static_cast<int64_t>(bytes.size());
    if (blob.offset > size || blob.bytes > size - blob.offset) {
      return DataLoss(path_of(blob), ": the blob '", blob.name,
                      "' ends at byte ", blob.offset, " + ", blob.bytes,
                      ", beyond the ", size, " bytes of all blobs");
    }
    LODESTAR_RETURN_IF_ERROR(
        ParseArray(bytes.substr(blob.offset, blob.bytes), blob, path_of(blob),
                   &(*arrays)[blob.name.substr(prefix.size())]));
  }
  return Status();
}

}  // namespace lodestar
