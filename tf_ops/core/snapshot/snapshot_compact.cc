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
      void* const slot = initial_.data() + layout.slot(s) - layout.slot(0);
      std::fill_n(static_cast<float*>(slot), layout.slot_width(),
                  table.optimizer.slot_inits[s]);
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

// The files of a chain, newest first, that decide about its ids. None is kept
// open, since a chain may have more files than a process may open.
struct Chain {
  std::vector<ListedFile> files;
  SnapshotTable newest;
};

Status ReadChain(Span<const ListedFile> files, Chain* chain) {
  for (int64_t i = files.size() - 1; i >= 0; --i) {
    SnapshotTableFile file;
    LODESTAR_RETURN_IF_ERROR(file.Open(files[i]));
    const SnapshotTable& table = file.table();
    if (chain->files.empty()) {
      chain->newest = table;
    } else {
      LODESTAR_RETURN_IF_ERROR(CheckSameTable(
          file.path(), table, chain->files[0].path, chain->newest));
    }
    chain->files.push_back(files[i]);
    if (table.whole) return Status();
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

  Status AddFile(const ListedFile& listed) {
    ++number_;
    SnapshotTableFile file;
    LODESTAR_RETURN_IF_ERROR(file.Open(listed));
    return file.ForEach(
        nullptr, [&](const Block& block) { return AddBlock(file, block); });
  }

  Status Finish() {
    LODESTAR_RETURN_IF_ERROR(shared_rows_.Flush());
    LODESTAR_RETURN_IF_ERROR(rows_.Flush());
    return out_->Finish();
  }

 private:
  Status AddBlock(const SnapshotTableFile& file, const Block& block) {
    switch (block.kind) {
      case BlockKind::kRows:
        return AddRows(file, block, &ids_, &rows_);
      case BlockKind::kSharedRows:
        return AddRows(file, block, &shared_ids_, &shared_rows_);
      case BlockKind::kRemoved:
        return AddRemoved(block);
      case BlockKind::kPending:
      case BlockKind::kSketch:
        if (number_ > 1) return Status();
        return out_->Append(block.kind, block.count, block.payload.data(),
                            block.bytes);
      default:
        return Status();
    }
  }

  Status AddRows(const SnapshotTableFile& file, const Block& block,
                 DecidedIds* ids, RecordWriter* out) {
    const SnapshotRowLayout layout = file.table().layout();
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
        status =
            DamageAt(file.path(), block.OffsetOf(i * layout.bytes()), "record ",
                     i, " of the ", NameOf(block.kind), " block has id ",
                     id_at(i), ", which an earlier record has as well");
      } else if (mark == 0 || mark == removal) {
        // Within a file, removals precede its rows.
        status = out->Add(block.payload.data() + i * layout.bytes(), layout);
      }
    };
    if (file.table().whole) {
      // No older file follows, so its ids are not recorded.
      ids->FindBatch(block.count, id_at,
                     [&](int64_t i, uint64_t, const int64_t* mark) {
                       add(i, mark == nullptr ? 0 : *mark);
                     });
    } else {
      LODESTAR_RETURN_IF_ERROR(ids->Reserve(ids->size() + block.count));
      ids->FindOrAddBatch(block.count, id_at, [&](int64_t i, int64_t* mark) {
        add(i, *mark);
        if (*mark == 0 || *mark == removal) *mark = row;
      });
    }
    return status;
  }

  Status AddRemoved(const Block& block) {
    LODESTAR_RETURN_IF_ERROR(ids_.Reserve(ids_.size() + block.count));
    const auto id_at = [&](int64_t i) {
      return block.at<int64_t>(i * sizeof(int64_t));
    };
    ids_.FindOrAddBatch(block.count, id_at, [&](int64_t, int64_t* mark) {
      if (*mark == 0) *mark = MarkOfRemoval(number_);
    });
    return Status();
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
                    const std::string& label,
                    SnapshotFileSummary* summary) try {
  Chain chain;
  LODESTAR_RETURN_IF_ERROR(ReadChain(files, &chain));
  std::unique_ptr<SnapshotFileWriter> writer;
  LODESTAR_RETURN_IF_ERROR(SnapshotFileWriter::Create(out, label, &writer));
  SnapshotTable table = chain.newest;
  table.whole = true;
  const std::string payload = EncodeTable(table);
  LODESTAR_RETURN_IF_ERROR(
      writer->Append(BlockKind::kTable, 1, payload.data(), payload.size()));
  Compaction compaction(table, writer.get());
  for (const ListedFile& file : chain.files) {
    LODESTAR_RETURN_IF_ERROR(compaction.AddFile(file));
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
