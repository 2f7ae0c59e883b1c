#include "tf_ops/core/snapshot/snapshot_compact.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/lookup/integer_map.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/snapshot/snapshot_file.h"

namespace lodestar {
namespace {

using Block = SnapshotFileReader::Block;

// How newer files have decided about ids: 0 for not at all, else twice the
// number of the file (from 1), plus 1 if it wrote a row (otherwise it removed
// the id).
using DecidedIds = IntegerMap;
int64_t MarkOfRow(int64_t file) { return 2 * file + 1; }
int64_t MarkOfRemoval(int64_t file) { return 2 * file; }

// Writes records as blocks of one kind.
class RecordWriter {
 public:
  RecordWriter(BlockKind kind, const SnapshotTable& table,
               SnapshotFileWriter* file)
      : kind_(kind),
        records_(file, table.record_bytes()),
        initial_(table.record_bytes() - table.layout().slot(0)) {
    const SnapshotRowLayout layout = table.layout();
    for (int64_t s = 0; s < layout.slots(); ++s) {
      FillComputed(table.type, table.optimizer.slot_inits[s],
                   layout.slot_width(),
                   initial_.data() + layout.slot(s) - layout.slot(0));
    }
  }

  // record: has the layout of the compacted file, or no optimizer slots.
  Status Add(const char* record, const SnapshotRowLayout& layout) {
    char* const out = std::copy_n(record, layout.bytes(), records_.next());
    std::copy(initial_.begin() + (layout.bytes() - layout.slot(0)),
              initial_.end(), out);
    records_.Add(1);
    return records_.left() == 0 ? Flush() : Status();
  }
  Status Flush() { return records_.Flush(kind_); }

 private:
  const BlockKind kind_;
  RecordBuffer records_;
  // Initial optimizer slots, for records without slots.
  std::vector<char> initial_;
};

// One file of a chain. Not kept open, since a chain may have more files than a
// process may open.
struct Source {
  ListedFile listed;
  SnapshotTable table;
};

// Opens the relevant files, newest first.
Status ReadSources(Span<const ListedFile> files, std::vector<Source>* sources) {
  for (int64_t i = files.size() - 1; i >= 0; --i) {
    Source source;
    source.listed = files[i];
    std::unique_ptr<SnapshotFileReader> file;
    LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(files[i].path, &file));
    LODESTAR_RETURN_IF_ERROR(ReadTable(*file, &source.table));
    const bool whole = source.table.whole;
    if (!sources->empty()) {
      const Source& newest = sources->front();
      LODESTAR_RETURN_IF_ERROR(CheckSameTable(
          source.listed.path, source.table, newest.listed.path, newest.table));
    }
    sources->push_back(std::move(source));
    if (whole) return Status();
  }
  if (files.empty()) return InvalidArgument("there are no files to compact.");
  return InvalidArgument("'", files[0].path,
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
    LODESTAR_RETURN_IF_ERROR(
        SnapshotFileReader::Open(source.listed.path, &file));
    SnapshotScan scan(*file, /*payloads=*/true);
    LODESTAR_RETURN_IF_ERROR(
        scan.ForEach(nullptr, [&](const Block& block) -> Status {
          LODESTAR_RETURN_IF_ERROR(CheckRecords(*file, source.table, block));
          return AddBlock(source, block);
        }));
    return source.listed.Check(scan);
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
    const auto id_at = [&](int64_t i) {
      return block.at<int64_t>(i * layout.bytes());
    };
    const int64_t row = MarkOfRow(number_);
    const int64_t removal = MarkOfRemoval(number_);
    Status status;
    // Adds record i, unless a newer file has decided about its id.
    const auto add = [&](int64_t i, int64_t mark) {
      if (!status.ok()) return;
      if (mark == row) {
        status = DamageAt(source.listed.path,
                          block.OffsetOf(i * layout.bytes()), "record ", i,
                          " of the ", NameOf(block.kind), " block has id ",
                          id_at(i), ", which an earlier record has as well");
      } else if (mark == 0 || mark == removal) {
        // Within a file, removals precede its rows.
        status = out->Add(block.payload.data() + i * layout.bytes(), layout);
      }
    };
    if (source.table.whole) {
      // No older file follows, so its ids are not recorded.
      ids->FindBatch(block.count, id_at,
                     [&](int64_t i, uint64_t, const int64_t* mark) {
                       add(i, mark == nullptr ? 0 : *mark);
                     });
    } else {
      ids->FindOrAddBatch(block.count, id_at, [&](int64_t i, int64_t* mark) {
        add(i, *mark);
        if (*mark == 0 || *mark == removal) *mark = row;
      });
    }
    return status;
  }

  void AddRemoved(const Block& block) {
    const auto id_at = [&](int64_t i) {
      return block.at<int64_t>(i * sizeof(int64_t));
    };
    ids_.FindOrAddBatch(block.count, id_at, [&](int64_t, int64_t* mark) {
      if (*mark == 0) *mark = MarkOfRemoval(number_);
    });
  }

  SnapshotFileWriter* const out_;
  DecidedIds ids_;
  DecidedIds shared_ids_;
  RecordWriter rows_;
  RecordWriter shared_rows_;
  int64_t number_ = 0;  // of the current file
};

}  // namespace

Status CompactChain(Span<const ListedFile> files, const std::string& out,
                    SnapshotFileSummary* summary,
                    const std::string& label) try {
  std::vector<Source> sources;
  LODESTAR_RETURN_IF_ERROR(ReadSources(files, &sources));
  SnapshotTotals of_deltas;
  for (const Source& source : sources) {
    if (source.table.whole) continue;
    std::unique_ptr<SnapshotFileReader> file;
    LODESTAR_RETURN_IF_ERROR(
        SnapshotFileReader::Open(source.listed.path, &file));
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
