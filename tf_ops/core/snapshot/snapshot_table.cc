#include "tf_ops/core/snapshot/snapshot_table.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/rows/row_store.h"

namespace lodestar {
namespace {

constexpr uint32_t kWhole = 1;
constexpr uint32_t kOwnStep = 2;

// The fixed-size fields at the start of a TABLE block.
struct TableFields {
  uint32_t dim;
  uint32_t type;
  uint32_t flags;
  uint32_t slots;
  int64_t step;
  int64_t seed;
  int64_t salt;
  int64_t shared_rows;
};
static_assert(sizeof(TableFields) == 48);

constexpr int64_t kWordBytes = 4;

void AddString(const std::string& text, std::string* out) {
  const uint32_t size = static_cast<uint32_t>(text.size());
  out->append(reinterpret_cast<const char*>(&size), sizeof(size));
  out->append(text);
  out->append(-text.size() & (kWordBytes - 1), '\0');
}

// Parses a payload from its beginning.
class Parser {
 public:
  Parser(const SnapshotFileReader& file, const SnapshotFileReader::Block& block)
      : file_(file), block_(block), size_(block.payload.size()) {}

  Status Read(const char* name, int64_t bytes, void* out) {
    if (bytes > size_ - at_) {
      return Damage("the TABLE block ends, expected ", name);
    }
    std::copy_n(block_.payload.data() + at_, bytes, static_cast<char*>(out));
    at_ += bytes;
    return Status();
  }

  Status ReadString(const char* name, std::string* out) {
    uint32_t size = 0;
    LODESTAR_RETURN_IF_ERROR(Read(name, sizeof(size), &size));
    if (size > size_ - at_) {
      at_ -= sizeof(size);
      return Damage(name, " has ", size, " bytes, but only ",
                    size_ - at_ - static_cast<int64_t>(sizeof(size)),
                    " are left in the block");
    }
    out->resize(size);
    LODESTAR_RETURN_IF_ERROR(Read(name, size, out->data()));
    uint32_t padding = 0;
    LODESTAR_RETURN_IF_ERROR(
        Read("padding", -int64_t{size} & (kWordBytes - 1), &padding));
    if (padding != 0) return Damage("the padding of ", name, " is not 0");
    return Status();
  }

  Status ReadEnd() {
    if (at_ == size_) return Status();
    return Damage("the TABLE block has ", size_ - at_,
                  " bytes after its last field");
  }

  template <typename... Args>
  Status Damage(const Args&... args) const {
    return DamageAt(file_.path(), block_.OffsetOf(at_), args...);
  }

 private:
  const SnapshotFileReader& file_;
  const SnapshotFileReader::Block& block_;
  const int64_t size_;
  int64_t at_ = 0;
};

bool IsZero(const char* bytes, int64_t begin, int64_t end) {
  return std::all_of(bytes + begin, bytes + end,
                     [](char byte) { return byte == 0; });
}

// Checks the records of a ROWS or SHARED_ROWS block.
Status CheckRows(const SnapshotFileReader& file, const SnapshotTable& table,
                 const SnapshotFileReader::Block& block) {
  const SnapshotRowLayout layout = table.layout();
  const bool shared = block.kind == BlockKind::kSharedRows;
  const int64_t values_end = layout.values() + layout.value_bytes();
  const bool padded =
      layout.slot(0) != values_end || layout.slot_bytes() % 8 != 0;
  if (block.count != block.bytes / layout.bytes() ||
      block.bytes % layout.bytes() != 0) {
    return DamageAt(file.path(), block.offset, "the ", NameOf(block.kind),
                    " block has ", block.count, " records in ", block.bytes,
                    " bytes, expected ", layout.bytes(), " bytes each");
  }
  for (int64_t i = 0; i < block.count; ++i) {
    const char* const record = block.payload.data() + i * layout.bytes();
    const auto damage = [&](int64_t offset, const auto&... what) {
      return DamageAt(file.path(), block.OffsetOf(i * layout.bytes() + offset),
                      "record ", i, " of the ", NameOf(block.kind), " block ",
                      what...);
    };
    const auto head = block.at<SnapshotRowHead>(i * layout.bytes());
    if (head.zero != 0) {
      return damage(offsetof(SnapshotRowHead, zero), "has ", head.zero,
                    " after the frequency, expected 0");
    }
    if (shared && (head.id < 0 || head.id >= table.shared_rows)) {
      return damage(0, "has shared row ", head.id, ", but the table has ",
                    table.shared_rows);
    }
    if (!padded) continue;
    bool zero = IsZero(record, values_end, layout.slot(0));
    for (int64_t s = 0; s < layout.slots(); ++s) {
      zero &= IsZero(record, layout.slot(s) + layout.slot_bytes(),
                     layout.slot(s + 1));
    }
    if (!zero) return damage(0, "has padding that is not 0");
  }
  return Status();
}

Status CheckPending(const SnapshotFileReader& file,
                    const SnapshotFileReader::Block& block) {
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t offset = i * sizeof(SnapshotPending);
    const auto pending = block.at<SnapshotPending>(offset);
    if (pending.zero != 0) {
      return DamageAt(file.path(),
                      block.OffsetOf(offset + offsetof(SnapshotPending, zero)),
                      "record ", i, " of the PENDING block has ", pending.zero,
                      " after the occurrences, expected 0");
    }
  }
  return Status();
}

}  // namespace

std::string EncodeTable(const SnapshotTable& table) {
  TableFields numbers = {};
  numbers.dim = static_cast<uint32_t>(table.dim);
  numbers.type = static_cast<uint32_t>(table.type);
  numbers.flags = (table.whole ? kWhole : 0) | (table.own_step ? kOwnStep : 0);
  numbers.slots = static_cast<uint32_t>(table.optimizer.slot_names.size());
  numbers.step = table.step;
  numbers.seed = table.seed;
  numbers.salt = table.salt;
  numbers.shared_rows = table.shared_rows;
  std::string payload(reinterpret_cast<const char*>(&numbers), sizeof(numbers));
  AddString(table.optimizer.name, &payload);
  for (const std::string& name : table.optimizer.slot_names) {
    AddString(name, &payload);
  }
  for (const float init : table.optimizer.slot_inits) {
    payload.append(reinterpret_cast<const char*>(&init), sizeof(init));
  }
  return payload;
}

Status DecodeTable(const SnapshotFileReader& file,
                   const SnapshotFileReader::Block& block,
                   SnapshotTable* out) try {
  static_assert(static_cast<int>(RowType::kFloat32) == 0 &&
                static_cast<int>(RowType::kFloat16) == 1 &&
                static_cast<int>(RowType::kBFloat16) == 2);
  Parser parser(file, block);
  TableFields numbers;
  LODESTAR_RETURN_IF_ERROR(
      parser.Read("the fixed-size fields", sizeof(numbers), &numbers));
  const auto damage = [&](size_t offset, const auto&... what) {
    return DamageAt(file.path(), block.OffsetOf(offset), "the table's ",
                    what...);
  };
  const struct {
    size_t offset;
    const char* what;
    int64_t found;
    int64_t least;
    int64_t most;
    std::string wanted;
  } limits[] = {
      {offsetof(TableFields, dim), "dim is ", numbers.dim, 1, kMaxDim,
       StrCat("1 to ", kMaxDim)},
      {offsetof(TableFields, type), "type is ", numbers.type, 0, 2, "0 to 2"},
      {offsetof(TableFields, flags), "flags are ", numbers.flags, 0,
       kWhole | kOwnStep, "0 to 3"},
      {offsetof(TableFields, slots), "number of slots is ", numbers.slots, 0,
       RowStore::kMaxSlots, StrCat("at most ", RowStore::kMaxSlots)},
      {offsetof(TableFields, shared_rows), "number of shared rows is ",
       numbers.shared_rows, 0, std::numeric_limits<int64_t>::max(),
       "0 or more"},
  };
  for (const auto& limit : limits) {
    if (limit.found >= limit.least && limit.found <= limit.most) continue;
    return damage(limit.offset, limit.what, limit.found, ", expected ",
                  limit.wanted);
  }
  SnapshotTable table;
  table.dim = static_cast<int>(numbers.dim);
  table.type = static_cast<RowType>(numbers.type);
  table.whole = (numbers.flags & kWhole) != 0;
  table.own_step = (numbers.flags & kOwnStep) != 0;
  table.step = numbers.step;
  table.seed = numbers.seed;
  table.salt = numbers.salt;
  table.shared_rows = numbers.shared_rows;
  AttachedOptimizer* const optimizer = &table.optimizer;
  LODESTAR_RETURN_IF_ERROR(
      parser.ReadString("the optimizer's name", &optimizer->name));
  if (optimizer->name.empty() && numbers.slots > 0) {
    return damage(offsetof(TableFields, slots), "number of slots is ",
                  numbers.slots, " without an optimizer");
  }
  optimizer->slot_names.resize(numbers.slots);
  for (auto name = optimizer->slot_names.begin();
       name != optimizer->slot_names.end(); ++name) {
    LODESTAR_RETURN_IF_ERROR(
        parser.ReadString("the name of an optimizer slot", &*name));
    if (std::find(optimizer->slot_names.begin(), name, *name) != name) {
      return parser.Damage("the optimizer has two slots '", *name, "'");
    }
  }
  optimizer->slot_inits.resize(numbers.slots);
  LODESTAR_RETURN_IF_ERROR(
      parser.Read("the initial values of the optimizer slots",
                  numbers.slots * sizeof(float), optimizer->slot_inits.data()));
  LODESTAR_RETURN_IF_ERROR(parser.ReadEnd());
  *out = std::move(table);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the TABLE block of '",
                           file.path(), "'");
}

Status ReadTable(const SnapshotFileReader& file, SnapshotTable* out) {
  SnapshotFileReader::Block block;
  LODESTAR_RETURN_IF_ERROR(file.ReadHeader(file.first_block(), &block));
  if (block.kind != BlockKind::kTable) {
    return DamageAt(file.path(), block.offset, "the first block is ",
                    NameOf(block.kind), ", expected TABLE");
  }
  LODESTAR_RETURN_IF_ERROR(file.ReadPayload(&block));
  return DecodeTable(file, block, out);
}

Status CheckSameTable(const std::string& path, const SnapshotTable& table,
                      const std::string& other_path,
                      const SnapshotTable& other) {
  const auto differ = [&](const char* what, const auto& first,
                          const auto& second) {
    return InvalidArgument("'", path, "' and '", other_path,
                           "' belong to different tables: ", what, " is ",
                           first, " in the first and ", second,
                           " in the second.");
  };
  if (table.dim != other.dim) return differ("dim", table.dim, other.dim);
  if (table.type != other.type) {
    return differ("dtype", NameOf(table.type), NameOf(other.type));
  }
  const struct {
    const char* what;
    int64_t SnapshotTable::* number;
  } numbers[] = {{"the seed", &SnapshotTable::seed},
                 {"the salt", &SnapshotTable::salt},
                 {"the number of shared rows", &SnapshotTable::shared_rows}};
  for (const auto& [what, number] : numbers) {
    if (table.*number != other.*number) {
      return differ(what, table.*number, other.*number);
    }
  }
  if (table.optimizer.name.empty()) return Status();
  if (table.optimizer.name != other.optimizer.name ||
      table.optimizer.slot_names != other.optimizer.slot_names) {
    const auto text = [](const AttachedOptimizer& optimizer) {
      return StrCat("'", optimizer.name, "' with slots [",
                    Join(optimizer.slot_names), "]");
    };
    return differ("the optimizer", text(table.optimizer),
                  text(other.optimizer));
  }
  return Status();
}

Status CheckRecords(const SnapshotFileReader& file, const SnapshotTable& table,
                    const SnapshotFileReader::Block& block) {
  switch (block.kind) {
    case BlockKind::kRows:
    case BlockKind::kSharedRows:
      return CheckRows(file, table, block);
    case BlockKind::kPending:
      return CheckPending(file, block);
    case BlockKind::kRemoved:
      if (!table.whole || block.count == 0) return Status();
      return DamageAt(file.path(), block.offset,
                      "the file has REMOVED, but it is a full snapshot");
    default:
      return Status();
  }
}

Status SnapshotTableFile::Open(const ListedFile& file) {
  listed_ = file;
  LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(file.path, &reader_));
  return ReadTable(*reader_, &table_);
}

Status SnapshotTableFile::ForEach(const ParallelFor* parallel,
                                  const SnapshotScan::Visit& visit) const {
  SnapshotScan scan(*reader_);
  LODESTAR_RETURN_IF_ERROR(scan.ForEach(
      parallel, [&](const SnapshotFileReader::Block& block) -> Status {
        LODESTAR_RETURN_IF_ERROR(CheckRecords(*reader_, table_, block));
        return visit(block);
      }));
  return listed_.Check(scan);
}

Status VerifySnapshotFile(const std::string& path, const ParallelFor* parallel,
                          SnapshotFileSummary* out) {
  std::unique_ptr<SnapshotFileReader> file;
  LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(path, &file));
  SnapshotFileReader::Block first;
  LODESTAR_RETURN_IF_ERROR(file->ReadHeader(file->first_block(), &first));
  SnapshotTable table;
  if (first.kind == BlockKind::kTable) {
    LODESTAR_RETURN_IF_ERROR(ReadTable(*file, &table));
  }
  SnapshotScan scan(*file);
  LODESTAR_RETURN_IF_ERROR(
      scan.ForEach(parallel, [&](const SnapshotFileReader::Block& block) {
        return CheckRecords(*file, table, block);
      }));
  out->bytes = file->size();
  out->crc = scan.crc();
  out->totals = scan.totals();
  return Status();
}

}  // namespace lodestar
