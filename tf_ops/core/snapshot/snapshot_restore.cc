#include "tf_ops/core/snapshot/snapshot_restore.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/snapshot/restored_records.h"
#include "tf_ops/core/table/embedding_rows.h"

namespace lodestar {

// Fills a table that is not yet visible to other threads.
class TableRestorer {
 public:
  TableRestorer(const TablePart& part, const EmbeddingStore& like,
                const RestoreOptions& options, const ParallelFor* parallel)
      : part_(part),
        like_(like),
        checks_(like.row_checks()),
        options_(options),
        parallel_(parallel) {}

  Status Restore(Span<const SavedPart> saved,
                 std::unique_ptr<EmbeddingStore>* out) {
    for (const SavedPart& part : saved) {
      if (!part.part.Meets(part_)) continue;
      LODESTAR_RETURN_IF_ERROR(Open(part));
    }
    if (chains_.empty()) {
      return InvalidArgument("there are no snapshot files of the table.");
    }
    LODESTAR_RETURN_IF_ERROR(MakeStore());
    LODESTAR_RETURN_IF_ERROR(ReserveIndex());
    for (const Chain& chain : chains_) {
      for (size_t f = 0; f < chain.tables.size(); ++f) {
        LODESTAR_RETURN_IF_ERROR(LoadFile(chain, f));
      }
    }
    if (part_.count == 1) LODESTAR_RETURN_IF_ERROR(CheckCap());
    LODESTAR_RETURN_IF_ERROR(Finish());
    if (part_.count > 1) LODESTAR_RETURN_IF_ERROR(Trim());
    *out = std::move(store_);
    return Status();
  }

 private:
  using Block = SnapshotFileReader::Block;

  // The files of a saved part.
  struct Chain {
    TablePart part;
    Span<const ListedFile> files;
    std::vector<SnapshotTable> tables;

    const std::string& last_path() const {
      return files[files.size() - 1].path;
    }
  };

  // State of the rows of a shard while an incremental file is read.
  struct DeltaRows {
    // One bit per row: this file has written it.
    std::vector<uint64_t> written;
    std::vector<int64_t> removed;
  };

  Status Open(const SavedPart& saved);
  Status MakeStore();
  Status ReserveIndex();
  Status LoadFile(const Chain& chain, size_t number);
  Status CheckPart(const TablePart& part, const Block& block) const;
  Status LoadRows(const RowRecords& records, const Block& block);
  Status LoadRowsOfShard(const RowRecords& records, const Block& block,
                         const RecordGroups& groups, uint32_t shard);
  Status NoteRemoved(const Block& block);
  void RemoveRows();
  // Returns `status` of all files as an error of the last one.
  Status InLast(const Status& status) const {
    return Prefixed(status, "'", chains_.back().last_path(), "': ");
  }
  Status CheckCap() const { return InLast(table_->CheckCap(store_->size())); }
  Status Finish();
  Status Trim();

  const TablePart part_;
  const EmbeddingStore& like_;
  const RowChecks checks_;  // of like_
  const RestoreOptions options_;
  const ParallelFor* const parallel_;
  std::vector<Chain> chains_;
  SnapshotTable last_;  // the merged tables of all files
  std::unique_ptr<EmbeddingStore> store_;
  std::optional<RowsApplier> table_;  // of store_
  std::vector<DeltaRows> delta_;      // by shard; empty if the file is full
  // The current file. A chain may have more files than a process may open.
  RestoredFile file_;
  AdmissionState admission_;
};

Status TableRestorer::Open(const SavedPart& saved) {
  if (saved.files.empty()) {
    return InvalidArgument("there are no snapshot files of the table.");
  }
  Chain chain = {saved.part, saved.files, {}};
  for (const ListedFile& file : chain.files) {
    LODESTAR_RETURN_IF_ERROR(file_.Open(file, checks_));
    const SnapshotTable& table = file_.table();
    if (table.whole != chain.tables.empty()) {
      return InvalidArgument(
          "'", file.path,
          table.whole ? "' is a full snapshot, but follows other files"
                      : "' is incremental, but comes first");
    }
    chain.tables.push_back(table);
  }
  if (chains_.empty()) {
    last_ = chain.tables.back();
  } else {
    LODESTAR_RETURN_IF_ERROR(JoinParts(chains_.back().last_path(),
                                       chain.last_path(), chain.tables.back(),
                                       &last_));
  }
  chains_.push_back(std::move(chain));
  if (options_.reset_slots) return Status();
  const std::vector<SnapshotTable>& tables = chains_.back().tables;
  const std::string& last_path = chains_.back().last_path();
  const AttachedOptimizer& last = tables.back().optimizer;
  LODESTAR_RETURN_IF_ERROR(InLast(checks_.CheckOptimizer(last)));
  // Rows written before the optimizer was attached get its initial slot values.
  for (size_t f = 0; f + 1 < tables.size(); ++f) {
    const AttachedOptimizer& optimizer = tables[f].optimizer;
    if (optimizer.name.empty() || (optimizer.name == last.name &&
                                   optimizer.slot_names == last.slot_names)) {
      continue;
    }
    return InvalidArgument("'", saved.files[f].path,
                           "' has the optimizer slots of '", optimizer.name,
                           "', but '", last_path, "' has those of '", last.name,
                           "'.");
  }
  return Status();
}

Status TableRestorer::MakeStore() {
  LODESTAR_RETURN_IF_ERROR(
      EmbeddingStore::CreateEmptyLike(like_, last_.seed, last_.salt, &store_));
  table_.emplace(store_->rows_applier(/*fresh=*/true));
  if (options_.reset_slots || last_.optimizer.name.empty()) return Status();
  return table_->AttachOptimizer(last_.optimizer);
}

// Reserves the index for the rows of the full files, so that it does not grow
// while they are read. LoadFile reports wrong totals.
Status TableRestorer::ReserveIndex() {
  double rows = 0;
  for (const Chain& chain : chains_) {
    std::unique_ptr<SnapshotFileReader> file;
    LODESTAR_RETURN_IF_ERROR(
        SnapshotFileReader::Open(chain.files[0].path, &file));
    const int64_t most = file->size() / chain.tables[0].record_bytes();
    rows += std::clamp<int64_t>(file->ClaimedTotals().rows, 0, most) *
            chain.part.ShareIn(part_);
  }
  return table_->ReserveIndex(static_cast<int64_t>(rows), parallel_);
}

Status TableRestorer::LoadFile(const Chain& chain, size_t number) {
  LODESTAR_RETURN_IF_ERROR(file_.Open(chain.files[number], checks_));
  delta_.clear();
  if (!file_.table().whole) delta_.resize(table_->num_shards());
  // Every file contains the complete admission state.
  const bool is_last = number + 1 == chain.tables.size();
  LODESTAR_RETURN_IF_ERROR(file_.ForEach(
      checks_, parallel_, is_last ? &admission_ : nullptr, part_,
      [&](const Block& block) -> Status {
        if (block.kind == BlockKind::kRemoved) return NoteRemoved(block);
        const RowRecords records = file_.RecordsOf(block, options_.reset_slots);
        if (block.kind == BlockKind::kRows) {
          LODESTAR_RETURN_IF_ERROR(CheckPart(chain.part, block));
          return LoadRows(records, block);
        }
        if (block.kind == BlockKind::kSharedRows) table_->PutShared(records);
        return Status();
      }));
  RemoveRows();
  return Status();
}

// Checks that the ids belong to the part, so that parts have disjoint ids.
Status TableRestorer::CheckPart(const TablePart& part,
                                const Block& block) const {
  if (part.count == 1) return Status();
  const int64_t bytes = block.bytes / block.count;
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t id = HeadOf(block.payload.data() + i * bytes).id;
    if (part.Has(id)) continue;
    return DamageAt(file_.path(), block.OffsetOf(i * bytes), "id ", id,
                    " belongs to part ", PartOfId(id, part.count), " of ",
                    part.count, ", expected ids of part ", part.number);
  }
  return Status();
}

Status TableRestorer::LoadRows(const RowRecords& records, const Block& block) {
  RecordGroups groups;
  table_->Group(records, [&](int64_t id) { return part_.Has(id); }, &groups);
  const uint32_t num_shards = static_cast<uint32_t>(table_->num_shards());
  // Threads begin at different shards to avoid contention.
  const uint32_t first = static_cast<uint32_t>(
      Mix64(static_cast<uint64_t>(block.offset)) % num_shards);
  for (uint32_t i = 0; i < num_shards; ++i) {
    LODESTAR_RETURN_IF_ERROR(
        LoadRowsOfShard(records, block, groups, (first + i) % num_shards));
  }
  return Status();
}

Status TableRestorer::LoadRowsOfShard(const RowRecords& records,
                                      const Block& block,
                                      const RecordGroups& groups,
                                      uint32_t number) {
  const uint32_t begin = groups.begins[number];
  const uint32_t end = groups.begins[number + 1];
  if (begin == end) return Status();
  std::vector<uint32_t> tags;
  for (uint32_t k = begin; k < end; ++k) tags.push_back(groups.items[k].tag);
  RowShard& shard = table_->shard(number);
  DeltaRows* const delta = delta_.empty() ? nullptr : &delta_[number];
  MutexLock lock(&shard.mutex);
  LODESTAR_RETURN_IF_ERROR(table_->Reserve(&shard, tags));
  if (delta != nullptr) delta->written.resize(shard.rows.capacity() / 64 + 1);
  int64_t added = 0;
  for (uint32_t k = begin; k < end; ++k) {
    if (k + kAhead < end) {
      LeafIndex::Prefetch(shard.index.Begin(groups.items[k + kAhead].tag));
    }
    const auto [tag, record] = groups.items[k];
    const int64_t id = HeadOf(record).id;
    uint32_t row = shard.Find(tag, id);
    const bool is_new = row == LeafIndex::kNoRow;
    if (!is_new && (delta == nullptr ||
                    (delta->written[row / 64] >> (row % 64) & 1) != 0)) {
      return DamageAt(file_.path(),
                      block.OffsetOf(record - block.payload.data()), "id ", id,
                      " occurs a second time");
    }
    row = table_->Put(records, record, &shard, tag, row);
    added += is_new;
    if (delta != nullptr) delta->written[row / 64] |= uint64_t{1} << (row % 64);
  }
  table_->CountAdded(added);
  return Status();
}

Status TableRestorer::NoteRemoved(const Block& block) {
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t id = block.at<int64_t>(i * sizeof(int64_t));
    const uint32_t shard = table_->HashOf(id).shard;
    MutexLock lock(&table_->shard(shard).mutex);
    delta_[shard].removed.push_back(id);
  }
  return Status();
}

// Ids that the file removes and then writes already have their rows.
void TableRestorer::RemoveRows() {
  for (size_t s = 0; s < delta_.size(); ++s) {
    RowShard& shard = table_->shard(s);
    MutexLock lock(&shard.mutex);
    for (int64_t id : delta_[s].removed) {
      const uint32_t tag = table_->HashOf(id).tag;
      const uint32_t row = shard.Find(tag, id);
      if (row == LeafIndex::kNoRow) continue;
      const std::vector<uint64_t>& written = delta_[s].written;
      if (row / 64 < written.size() &&
          (written[row / 64] >> (row % 64) & 1) != 0) {
        continue;
      }
      table_->Remove(&shard, tag, row);
      table_->CountRemoved(1);
    }
  }
}

Status TableRestorer::Finish() {
  if (chains_.size() > 1) admission_.ForgetBefore(last_.step);
  const EmbeddingRowsView view = admission_.View();
  LODESTAR_RETURN_IF_ERROR(InLast(table_->CheckPending(view)));
  OccurrenceCounter::State admission;
  LODESTAR_RETURN_IF_ERROR(table_->BuildAdmission(view, &admission));
  LODESTAR_RETURN_IF_ERROR(table_->RebuildOrder(parallel_));
  table_->Finish(&admission, last_.step, last_.own_step);
  return Status();
}

// The number of rows of a part varies randomly around its share.
Status TableRestorer::Trim() {
  EvictionPolicy policy;
  policy.max_rows = like_.eviction().max_rows;
  policy.order = like_.eviction().order;
  int64_t evicted = 0;
  LODESTAR_RETURN_IF_ERROR(store_->Evict(policy, &evicted, parallel_));
  return CheckCap();
}

Status RestoreTable(Span<const SavedPart> saved, const TablePart& part,
                    const EmbeddingStore& like, const RestoreOptions& options,
                    const ParallelFor* parallel,
                    std::unique_ptr<EmbeddingStore>* out) try {
  TableRestorer restorer(part, like, options, parallel);
  return restorer.Restore(saved, out);
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while restoring a table.");
}

Status RestoreTable(Span<const SavedPart> saved, const TablePart& part,
                    const Table& like, const RestoreOptions& options,
                    const ParallelFor* parallel, const Execution& on,
                    std::unique_ptr<Table>* out) {
  std::unique_ptr<EmbeddingStore> restored;
  if (!on.on_gpu()) {
    LODESTAR_RETURN_IF_ERROR(
        RestoreTable(saved, part, static_cast<const EmbeddingStore&>(like),
                     options, parallel, &restored));
    *out = std::move(restored);
    return Status();
  }
  EmbeddingRows rows;
  {
    std::unique_ptr<EmbeddingStore> host;
    LODESTAR_RETURN_IF_ERROR(MakeHostTable(like, on, &host));
    LODESTAR_RETURN_IF_ERROR(
        RestoreTable(saved, part, *host, options, parallel, &restored));
    LODESTAR_RETURN_IF_ERROR(
        restored->Export(/*with_slots=*/true, &rows, parallel));
    restored.reset();
  }
  return like.CreateReplacement(View(rows), on, out);
}

}  // namespace lodestar
