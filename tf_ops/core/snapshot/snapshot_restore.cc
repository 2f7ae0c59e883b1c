#include "tf_ops/core/snapshot/snapshot_restore.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/snapshot/restored_records.h"

namespace lodestar {

// Fills a table that is not yet visible to other threads.
class TableRestorer {
 public:
  TableRestorer(const TablePart& part, const EmbeddingStore& like,
                const RestoreOptions& options, const ParallelFor* parallel)
      : part_(part), like_(like), options_(options), parallel_(parallel) {}

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
    if (part_.count == 1) LODESTAR_RETURN_IF_ERROR(CheckCap(rows_));
    LODESTAR_RETURN_IF_ERROR(InstallAdmission());
    LODESTAR_RETURN_IF_ERROR(MakeOrder());
    SetCounters();
    if (part_.count > 1) LODESTAR_RETURN_IF_ERROR(Trim());
    *out = std::move(store_);
    return Status();
  }

 private:
  using Block = SnapshotFileReader::Block;

  // The files of a saved part.
  struct Chain {
    TablePart part;
    Span<const std::string> paths;
    std::vector<SnapshotTable> tables;

    const std::string& last_path() const { return paths[paths.size() - 1]; }
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
  // Calls fn(shard) for all shards and returns one of the errors.
  template <typename Fn>
  Status ForEachShard(int64_t cost, const Fn& fn);
  Status LoadFile(const Chain& chain, size_t number);
  Status CheckPart(const TablePart& part, const Block& block) const;
  Status LoadRows(RestoredRecords* records, const Block& block);
  Status LoadRowsOfShard(RestoredRecords* records, const Block& block,
                         const RestoredRecords::Groups& groups, uint32_t shard);
  Status NoteRemoved(const Block& block);
  void RemoveRows();
  Status CheckCap(int64_t rows) const;
  Status Trim();
  Status InstallAdmission();
  Status MakeOrder();
  static Status MakeOrder(RowShard* shard);
  void SetCounters();

  const TablePart part_;
  const EmbeddingStore& like_;
  const RestoreOptions options_;
  const ParallelFor* const parallel_;
  std::vector<Chain> chains_;
  SnapshotTable last_;  // the merged tables of all files
  std::unique_ptr<EmbeddingStore> store_;
  TableParts* table_ = nullptr;   // of store_
  std::vector<DeltaRows> delta_;  // by shard; empty if the file is full
  // The current file. A chain may have more files than a process may open.
  std::unique_ptr<SnapshotFileReader> file_;
  std::atomic<int64_t> rows_{0};
  AdmissionState admission_;
};

Status TableRestorer::Open(const SavedPart& saved) {
  if (saved.files.empty()) {
    return InvalidArgument("there are no snapshot files of the table.");
  }
  Chain chain = {saved.part, saved.files, {}};
  for (const std::string& path : chain.paths) {
    std::unique_ptr<SnapshotFileReader> file;
    LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(path, &file));
    SnapshotTable table;
    LODESTAR_RETURN_IF_ERROR(ReadTable(*file, &table));
    LODESTAR_RETURN_IF_ERROR(RestoredRecords::CheckTable(path, table, like_));
    if (table.whole != chain.tables.empty()) {
      return InvalidArgument(
          "'", path,
          table.whole ? "' is a full snapshot, but follows other files"
                      : "' is incremental, but comes first");
    }
    chain.tables.push_back(std::move(table));
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
  LODESTAR_RETURN_IF_ERROR(
      RestoredRecords::CheckOptimizer(last_path, last, like_));
  // Rows written before the optimizer was attached get its initial slot values.
  for (size_t f = 0; f + 1 < tables.size(); ++f) {
    const AttachedOptimizer& optimizer = tables[f].optimizer;
    if (optimizer.name.empty() || (optimizer.name == last.name &&
                                   optimizer.slot_names == last.slot_names)) {
      continue;
    }
    return InvalidArgument(
        "'", saved.files[f], "' has the optimizer slots of '", optimizer.name,
        "', but '", last_path, "' has those of '", last.name, "'.");
  }
  return Status();
}

Status TableRestorer::MakeStore() {
  LODESTAR_RETURN_IF_ERROR(
      EmbeddingStore::CreateEmptyLike(like_, last_.seed, last_.salt, &store_));
  table_ = &store_->parts();
  if (options_.reset_slots || last_.optimizer.name.empty()) return Status();
  const ShardLocks locks(table_->rows);
  return table_->optimizer.Attach(last_.optimizer);
}

// Reserves the index for the rows of the full files, so that it does not grow
// while they are read. Uses the row counts in the headers; LoadFile reports
// errors in the headers.
Status TableRestorer::ReserveIndex() {
  double rows = 0;
  for (const Chain& chain : chains_) {
    std::unique_ptr<SnapshotFileReader> file;
    LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(chain.paths[0], &file));
    SnapshotScan scan(*file, /*payloads=*/false);
    Block block;
    for (bool more = true; more && scan.Next(&block, &more).ok();) {
    }
    const int64_t most = file->size() / chain.tables[0].record_bytes();
    rows += std::min(scan.totals().rows, most) * chain.part.ShareIn(part_);
  }
  const int64_t num_shards = table_->rows.num_shards();
  const int64_t of_shard = static_cast<int64_t>(rows / num_shards);
  return ForEachShard(of_shard * 10 + 1, [&](RowShard* shard) {
    MutexLock lock(&shard->mutex);
    return shard->index.ReserveEvenly(of_shard);
  });
}

template <typename Fn>
Status TableRestorer::ForEachShard(int64_t cost, const Fn& fn) {
  Mutex mutex;
  Status first;
  RunParallel(parallel_, table_->rows.num_shards(), cost,
              [&](int64_t begin, int64_t end) {
                for (int64_t s = begin; s < end; ++s) {
                  Status status = fn(&table_->rows.shard(s));
                  MutexLock lock(&mutex);
                  if (first.ok()) first = std::move(status);
                }
              });
  return first;
}

Status TableRestorer::LoadFile(const Chain& chain, size_t number) {
  const std::string& path = chain.paths[number];
  LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(path, &file_));
  const SnapshotTable& table = chain.tables[number];
  const bool is_last = number + 1 == chain.tables.size();
  delta_.clear();
  if (!table.whole) delta_.resize(table_->rows.num_shards());
  RestoredRecords records(store_.get(), table, options_.reset_slots);
  const bool with_shared = table_->shared.any() && table.shared_rows > 0;
  SharedRowSet shared(with_shared ? table.shared_rows : 0);
  const auto visit = [&](const Block& block) -> Status {
    LODESTAR_RETURN_IF_ERROR(CheckRecords(*file_, table, block));
    switch (block.kind) {
      case BlockKind::kRows:
        LODESTAR_RETURN_IF_ERROR(CheckPart(chain.part, block));
        return LoadRows(&records, block);
      case BlockKind::kRemoved:
        return NoteRemoved(block);
      case BlockKind::kSharedRows:
        if (!with_shared) return Status();
        LODESTAR_RETURN_IF_ERROR(shared.Add(*file_, table, block));
        records.WriteShared(block);
        return Status();
      case BlockKind::kPending:
      case BlockKind::kSketch:
        // Every file contains the complete sketch.
        if (is_last) admission_.Add(block, part_);
        return Status();
      default:
        return Status();
    }
  };
  SnapshotScan scan(*file_, /*payloads=*/true);
  LODESTAR_RETURN_IF_ERROR(
      scan.ForEach(parallel_, [&](const Block& block) -> Status {
        try {
          return visit(block);
        } catch (const std::bad_alloc&) {
          return ResourceExhausted("out of memory for the rows of '",
                                   file_->path(), "'.");
        }
      }));
  if (with_shared && table.whole && shared.count() != table.shared_rows) {
    return DamageAt(file_->path(), file_->size(), "the file has ",
                    shared.count(), " shared rows, but its table has ",
                    table.shared_rows);
  }
  RemoveRows();
  return is_last ? admission_.Finish(path) : Status();
}

// Checks that the ids belong to the part, so that parts have disjoint ids.
Status TableRestorer::CheckPart(const TablePart& part,
                                const Block& block) const {
  if (part.count == 1) return Status();
  const int64_t bytes = block.bytes / block.count;
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t id = HeadOf(block.payload.data() + i * bytes).id;
    if (part.Has(id)) continue;
    return DamageAt(file_->path(), block.OffsetOf(i * bytes), "id ", id,
                    " belongs to part ", PartOfId(id, part.count), " of ",
                    part.count, ", expected ids of part ", part.number);
  }
  return Status();
}

Status TableRestorer::LoadRows(RestoredRecords* records, const Block& block) {
  RestoredRecords::Groups groups;
  records->Group(block, &groups, part_);
  const uint32_t num_shards = table_->rows.num_shards();
  // Threads begin at different shards to avoid contention.
  const uint32_t first = static_cast<uint32_t>(
      Mix64(static_cast<uint64_t>(block.offset)) % num_shards);
  for (uint32_t i = 0; i < num_shards; ++i) {
    LODESTAR_RETURN_IF_ERROR(
        LoadRowsOfShard(records, block, groups, (first + i) % num_shards));
  }
  return Status();
}

Status TableRestorer::LoadRowsOfShard(RestoredRecords* records,
                                      const Block& block,
                                      const RestoredRecords::Groups& groups,
                                      uint32_t number) {
  const uint32_t begin = groups.begins[number];
  const uint32_t end = groups.begins[number + 1];
  if (begin == end) return Status();
  RowShard& shard = table_->rows.shard(number);
  DeltaRows* const delta = delta_.empty() ? nullptr : &delta_[number];
  MutexLock lock(&shard.mutex);
  LODESTAR_RETURN_IF_ERROR(table_->rows.Reserve(
      &shard, Span<const uint32_t>(groups.tags).subspan(begin, end - begin)));
  if (delta != nullptr) delta->written.resize(shard.rows.capacity() / 64 + 1);
  int64_t added = 0;
  for (uint32_t k = begin; k < end; ++k) {
    if (k + kAhead < end) {
      LeafIndex::Prefetch(shard.index.Begin(groups.tags[k + kAhead]));
    }
    const uint32_t tag = groups.tags[k];
    const char* const record = groups.records[k];
    const SnapshotRowHead head = HeadOf(record);
    uint32_t row = shard.Find(tag, head.id);
    const bool is_new = row == LeafIndex::kNoRow;
    if (!is_new && (delta == nullptr ||
                    (delta->written[row / 64] >> (row % 64) & 1) != 0)) {
      return DamageAt(file_->path(),
                      block.OffsetOf(record - block.payload.data()), "id ",
                      head.id, " occurs a second time");
    }
    if (is_new) row = shard.rows.Allocate();
    records->Write(record, &shard.rows, row);
    if (is_new) {
      table_->rows.Insert(&shard, tag, row, head.id, head.last_seen,
                          head.frequency);
      ++added;
    } else {
      shard.rows.Publish(row, head.id, head.last_seen, head.frequency);
    }
    if (delta != nullptr) delta->written[row / 64] |= uint64_t{1} << (row % 64);
  }
  rows_.fetch_add(added, std::memory_order_relaxed);
  return Status();
}

Status TableRestorer::NoteRemoved(const Block& block) {
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t id = block.at<int64_t>(i * sizeof(int64_t));
    const uint32_t shard = table_->rows.HashOf(id).shard;
    MutexLock lock(&table_->rows.shard(shard).mutex);
    delta_[shard].removed.push_back(id);
  }
  return Status();
}

// Ids that the file removes and then writes already have their rows.
void TableRestorer::RemoveRows() {
  for (size_t s = 0; s < delta_.size(); ++s) {
    RowShard& shard = table_->rows.shard(s);
    MutexLock lock(&shard.mutex);
    for (int64_t id : delta_[s].removed) {
      const uint32_t tag = table_->rows.HashOf(id).tag;
      const uint32_t row = shard.Find(tag, id);
      if (row == LeafIndex::kNoRow) continue;
      const std::vector<uint64_t>& written = delta_[s].written;
      if (row / 64 < written.size() &&
          (written[row / 64] >> (row % 64) & 1) != 0) {
        continue;
      }
      table_->rows.Erase(&shard, tag, row);
      rows_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
}

Status TableRestorer::CheckCap(int64_t rows) const {
  return RestoredRecords::CheckCap(chains_.back().last_path(), rows,
                                   store_.get());
}

// The number of rows of a part varies randomly around its share.
Status TableRestorer::Trim() {
  EvictionPolicy policy;
  policy.max_rows = table_->policies.eviction.max_rows;
  policy.order = table_->policies.eviction.order;
  int64_t evicted = 0;
  LODESTAR_RETURN_IF_ERROR(store_->Evict(policy, &evicted, parallel_));
  return CheckCap(store_->size());
}

Status TableRestorer::InstallAdmission() {
  const std::string& path = chains_.back().last_path();
  if (chains_.size() > 1) admission_.ForgetBefore(last_.step);
  const EmbeddingRowsView view = admission_.View();
  LODESTAR_RETURN_IF_ERROR(
      Prefixed(table_->occurrence_counter.Check(view), "'", path, "': "));
  if (!table_->occurrence_counter.uses_admission()) return Status();
  for (int64_t id : view.pending_ids) {
    const ShardedRows::IdHash hash = table_->rows.HashOf(id);
    if (table_->rows.shard(hash.shard).Find(hash.tag, id) !=
        LeafIndex::kNoRow) {
      return DataLoss("'", path, "': id ", id, " is pending, but it has a row");
    }
  }
  OccurrenceCounter::State admission;
  LODESTAR_RETURN_IF_ERROR(table_->occurrence_counter.Build(view, &admission));
  table_->occurrence_counter.Install(&admission);
  return Status();
}

Status TableRestorer::MakeOrder() {
  if (!table_->rows.ordered()) return Status();
  const int64_t cost =
      rows_ / static_cast<int64_t>(table_->rows.num_shards()) * 100 + 1;
  return ForEachShard(cost, [](RowShard* shard) { return MakeOrder(shard); });
}

// Adds rows to the eviction list in order of eviction.
Status TableRestorer::MakeOrder(RowShard* shard) try {
  MutexLock lock(&shard->mutex);
  OrderRebuild order;
  order.Reserve(*shard);
  order.Run(shard);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the eviction order of ",
                           shard->rows.live(), " rows.");
}

void TableRestorer::SetCounters() {
  table_->rows.AddToSize(rows_);
  table_->step.Set(last_.step, last_.own_step);
  table_->events.Share(like_.parts().events);
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

}  // namespace lodestar
