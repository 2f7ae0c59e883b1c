#include "tf_ops/core/snapshot/snapshot_compact.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/snapshot/snapshot_file.h"

namespace lodestar {
namespace {

using Block = SnapshotFileReader::Block;

// The set of ids that newer files have written or removed. Uses open addressing
// and is never resized.
class DecidedIds {
 public:
  // The file that decided about an id: 0 for none, else twice the number of the
  // file (from 1), plus 1 if it wrote a row (otherwise it removed the id).
  using Mark = uint32_t;
  static Mark RowOf(int64_t file) { return static_cast<Mark>(2 * file + 1); }
  static Mark RemovalOf(int64_t file) { return static_cast<Mark>(2 * file); }

  // Returns ResourceExhausted if out of memory.
  Status Reserve(int64_t ids) {
    // At most three quarters full.
    num_cells_ = ids + ids / 3 + 1;
    entries_ = static_cast<Entry*>(
        arena_.Allocate(num_cells_ * static_cast<int64_t>(sizeof(Entry))));
    if (entries_ != nullptr) return Status();
    return ResourceExhausted("out of memory for a set of ", ids, " ids");
  }

  void Prefetch(int64_t id) const { __builtin_prefetch(entries_ + Home(id)); }

  Mark Find(int64_t id) const { return entries_[CellOf(id)].mark; }

  // Returns the previous mark of the id, and replaces it by `mark` if `replace`
  // returns true for it. Requires: there is room for the id.
  template <typename Replace>
  Mark FindOrMark(int64_t id, Mark mark, const Replace& replace) {
    Entry* const entry = entries_ + CellOf(id);
    const Mark before = entry->mark;
    if (replace(before)) {
      std::memcpy(entry->id, &id, sizeof(id));
      entry->mark = mark;
    }
    return before;
  }

 private:
  // Avoids the padding of a 64-bit member.
  struct Entry {
    uint32_t id[2];
    Mark mark;
  };
  static_assert(sizeof(Entry) == 12);

  int64_t Home(int64_t id) const {
    return FastRange64(Mix64(static_cast<uint64_t>(id)), num_cells_);
  }
  int64_t CellOf(int64_t id) const {
    int64_t cell = Home(id);
    while (entries_[cell].mark != 0 &&
           std::memcmp(entries_[cell].id, &id, sizeof(id)) != 0) {
      if (++cell == num_cells_) cell = 0;
    }
    return cell;
  }

  Arena arena_;
  Entry* entries_ = nullptr;
  int64_t num_cells_ = 0;
};

// Writes records as blocks of one kind.
class RecordWriter {
 public:
  RecordWriter(BlockKind kind, const SnapshotTable& table,
               SnapshotFileWriter* file)
      : kind_(kind),
        layout_(table.layout()),
        file_(file),
        initial_(layout_.bytes() - layout_.slot(0)),
        per_block_(std::max(kBlockBytes / layout_.bytes(), int64_t{1})),
        block_(per_block_ * layout_.bytes()) {
    for (int64_t s = 0; s < layout_.slots(); ++s) {
      FillComputed(table.type, table.optimizer.slot_inits[s], table.dim,
                   initial_.data() + layout_.slot(s) - layout_.slot(0));
    }
  }

  // record: has the layout of the compacted file, or no optimizer slots.
  Status Add(const char* record, const SnapshotRowLayout& layout) {
    char* const out = block_.data() + count_ * layout_.bytes();
    std::memcpy(out, record, layout.bytes());
    std::copy(initial_.begin() + (layout.bytes() - layout.slot(0)),
              initial_.end(), out + layout.bytes());
    return ++count_ == per_block_ ? Flush() : Status();
  }

  Status Flush() {
    if (count_ == 0) return Status();
    const int64_t count = std::exchange(count_, 0);
    return file_->Append(kind_, count, block_.data(), count * layout_.bytes());
  }

 private:
  static constexpr int64_t kBlockBytes = int64_t{1} << 20;

  const BlockKind kind_;
  const SnapshotRowLayout layout_;
  SnapshotFileWriter* const file_;
  // Initial optimizer slots, for records without slots.
  std::vector<char> initial_;
  const int64_t per_block_;
  std::vector<char> block_;
  int64_t count_ = 0;
};

// One file of a chain. Not kept open, since a chain may have more files than a
// process may open.
struct Source {
  std::string path;
  SnapshotTable table;
};

// Opens the relevant files, newest first.
Status ReadSources(Span<const std::string> files,
                   std::vector<Source>* sources) {
  for (int64_t i = files.size() - 1; i >= 0; --i) {
    Source source;
    source.path = files[i];
    std::unique_ptr<SnapshotFileReader> file;
    LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(files[i], &file));
    LODESTAR_RETURN_IF_ERROR(ReadTable(*file, &source.table));
    const bool whole = source.table.whole;
    if (!sources->empty()) {
      const Source& newest = sources->front();
      LODESTAR_RETURN_IF_ERROR(
          CheckSameTable(source.path, source.table, newest.path, newest.table));
    }
    sources->push_back(std::move(source));
    if (whole) return Status();
  }
  if (files.empty()) return InvalidArgument("there are no files to compact.");
  return InvalidArgument("'", files[0],
                         "' is incremental, but the first file to compact "
                         "must be a full snapshot.");
}

// Compacts one file after the other, newest first.
class Compaction {
 public:
  Compaction(const SnapshotTable& table, SnapshotFileWriter* out)
      : out_(out),
        rows_(BlockKind::kRows, table, out),
        shared_rows_(BlockKind::kSharedRows, table, out) {}

  Status Reserve(const SnapshotTotals& totals) {
    LODESTAR_RETURN_IF_ERROR(ids_.Reserve(totals.rows + totals.removed));
    return shared_ids_.Reserve(totals.shared_rows);
  }

  Status AddFile(const Source& source) {
    ++number_;
    std::unique_ptr<SnapshotFileReader> file;
    LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(source.path, &file));
    SnapshotScan scan(*file, /*payloads=*/true);
    return scan.ForEach(nullptr, [&](const Block& block) {
      LODESTAR_RETURN_IF_ERROR(CheckRecords(*file, source.table, block));
      return AddBlock(source, block);
    });
  }

  Status Finish() {
    LODESTAR_RETURN_IF_ERROR(shared_rows_.Flush());
    LODESTAR_RETURN_IF_ERROR(rows_.Flush());
    return out_->Finish();
  }

 private:
  Status AddBlock(const Source& source, const Block& block) {
    switch (block.kind) {
      case BlockKind::kRows:
        return AddRows(source, block, &ids_, &rows_);
      case BlockKind::kSharedRows:
        return AddRows(source, block, &shared_ids_, &shared_rows_);
      case BlockKind::kRemoved:
        AddRemoved(block);
        return Status();
      case BlockKind::kPending:
      case BlockKind::kSketch:
        if (number_ > 1) return Status();
        return out_->Append(block.kind, block.count, block.payload.data(),
                            block.bytes);
      default:
        return Status();
    }
  }

  Status AddRows(const Source& source, const Block& block, DecidedIds* ids,
                 RecordWriter* out) {
    const SnapshotRowLayout layout = source.table.layout();
    const auto record = [&](int64_t i) {
      return block.payload.data() + i * layout.bytes();
    };
    const auto id_at = [&](int64_t i) {
      return block.at<int64_t>(i * layout.bytes());
    };
    const DecidedIds::Mark row = DecidedIds::RowOf(number_);
    const DecidedIds::Mark removal = DecidedIds::RemovalOf(number_);
    constexpr int64_t kAhead = 16;
    for (int64_t i = 0; i < block.count; ++i) {
      if (i + kAhead < block.count) ids->Prefetch(id_at(i + kAhead));
      const int64_t id = id_at(i);
      // No older file follows the full one, so its ids are not recorded.
      const DecidedIds::Mark mark =
          source.table.whole
              ? ids->Find(id)
              : ids->FindOrMark(id, row, [&](DecidedIds::Mark before) {
                  return before == 0 || before == removal;
                });
      if (mark == row) {
        return DamageAt(source.path, block.OffsetOf(i * layout.bytes()),
                        "record ", i, " of the ", NameOf(block.kind),
                        " block has id ", id,
                        ", which an earlier record has as well");
      }
      // Within a file, removals precede its rows.
      if (mark != 0 && mark != removal) continue;
      LODESTAR_RETURN_IF_ERROR(out->Add(record(i), layout));
    }
    return Status();
  }

  void AddRemoved(const Block& block) {
    for (int64_t i = 0; i < block.count; ++i) {
      ids_.FindOrMark(block.at<int64_t>(i * sizeof(int64_t)),
                      DecidedIds::RemovalOf(number_),
                      [](DecidedIds::Mark before) { return before == 0; });
    }
  }

  SnapshotFileWriter* const out_;
  DecidedIds ids_;
  DecidedIds shared_ids_;
  RecordWriter rows_;
  RecordWriter shared_rows_;
  int64_t number_ = 0;  // of the current file
};

}  // namespace

Status CompactChain(Span<const std::string> files, const std::string& out,
                    SnapshotFileSummary* summary,
                    const std::string& label) try {
  std::vector<Source> sources;
  LODESTAR_RETURN_IF_ERROR(ReadSources(files, &sources));
  SnapshotTotals of_deltas;
  for (const Source& source : sources) {
    if (source.table.whole) continue;
    std::unique_ptr<SnapshotFileReader> file;
    LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(source.path, &file));
    SnapshotScan scan(*file, /*payloads=*/false);
    LODESTAR_RETURN_IF_ERROR(
        scan.ForEach(nullptr, [](const Block&) { return Status(); }));
    of_deltas.rows += scan.totals().rows;
    of_deltas.removed += scan.totals().removed;
    of_deltas.shared_rows += scan.totals().shared_rows;
  }
  std::unique_ptr<SnapshotFileWriter> writer;
  LODESTAR_RETURN_IF_ERROR(SnapshotFileWriter::Create(out, &writer, label));
  SnapshotTable table = sources.front().table;
  table.whole = true;
  const std::string payload = EncodeTable(table);
  LODESTAR_RETURN_IF_ERROR(
      writer->Append(BlockKind::kTable, 1, payload.data(), payload.size()));
  Compaction compaction(table, writer.get());
  LODESTAR_RETURN_IF_ERROR(compaction.Reserve(of_deltas));
  for (const Source& source : sources) {
    LODESTAR_RETURN_IF_ERROR(compaction.AddFile(source));
  }
  LODESTAR_RETURN_IF_ERROR(compaction.Finish());
  summary->bytes = writer->bytes();
  summary->crc = writer->crc();
  summary->totals = writer->totals();
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for compacting ", files.size(),
                           " snapshot files.");
}

}  // namespace lodestar
