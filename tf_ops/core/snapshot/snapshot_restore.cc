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

// Fills a table that no one else can see yet.
class ChainRestorer {
 public:
  ChainRestorer(Span<const std::string> paths, const EmbeddingStore& like,
                const RestoreOptions& options, const ParallelFor* parallel)
      : paths_(paths), like_(like), options_(options), parallel_(parallel) {}

  Status Restore(std::unique_ptr<EmbeddingStore>* out) {
    LODESTAR_RETURN_IF_ERROR(Open());
    LODESTAR_RETURN_IF_ERROR(MakeStore());
    for (size_t f = 0; f < tables_.size(); ++f) {
      LODESTAR_RETURN_IF_ERROR(LoadFile(f));
    }
    LODESTAR_RETURN_IF_ERROR(CheckCap());
    LODESTAR_RETURN_IF_ERROR(InstallAdmission());
    LODESTAR_RETURN_IF_ERROR(MakeOrder());
    SetCounters();
    *out = std::move(store_);
    return Status();
  }

 private:
  using Block = SnapshotFileReader::Block;

  // What is known of the rows of a shard while a delta is read.
  struct DeltaRows {
    // A bit a row: this delta has written it.
    std::vector<uint64_t> written;
    std::vector<int64_t> removed;
  };

  const SnapshotTable& last() const { return tables_.back(); }

  Status Open();
  Status MakeStore();
  Status LoadFile(size_t number);
  Status LoadRows(RestoredRecords* records, const Block& block);
  Status LoadRowsOfShard(RestoredRecords* records, const Block& block,
                         const RestoredRecords::Groups& groups, uint32_t shard);
  Status NoteRemoved(const Block& block);
  void RemoveRows();
  Status CheckCap() const;
  Status InstallAdmission();
  Status MakeOrder();
  static Status MakeOrder(RowShard* shard);
  void SetCounters();

  const Span<const std::string> paths_;
  const EmbeddingStore& like_;
  const RestoreOptions options_;
  const ParallelFor* const parallel_;
  std::vector<SnapshotTable> tables_;
  std::unique_ptr<EmbeddingStore> store_;
  TableParts* table_ = nullptr;   // of store_
  std::vector<DeltaRows> delta_;  // by shard; empty: the file is whole
  // That is read; a chain may be longer than files can be open.
  std::unique_ptr<SnapshotFileReader> file_;
  std::atomic<int64_t> rows_{0};
  AdmissionState admission_;
};

Status ChainRestorer::Open() {
  if (paths_.empty()) {
    return InvalidArgument("there are no snapshot files of the table");
  }
  for (const std::string& path : paths_) {
    std::unique_ptr<SnapshotFileReader> file;
    LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(path, &file));
    SnapshotTable table;
    LODESTAR_RETURN_IF_ERROR(ReadTable(*file, &table));
    LODESTAR_RETURN_IF_ERROR(RestoredRecords::CheckTable(path, table, like_));
    if (table.whole != tables_.empty()) {
      return InvalidArgument(
          "'", path, "' holds ", table.whole ? "a whole table" : "a delta",
          table.whole ? ", but comes after other files" : ", but comes first");
    }
    tables_.push_back(std::move(table));
  }
  if (options_.reset_slots) return Status();
  LODESTAR_RETURN_IF_ERROR(RestoredRecords::CheckOptimizer(
      paths_[paths_.size() - 1], last().optimizer, like_));
  // Rows of files from before it was attached get what it begins with.
  for (size_t f = 0; f + 1 < tables_.size(); ++f) {
    const AttachedOptimizer& optimizer = tables_[f].optimizer;
    if (optimizer.name.empty() ||
        (optimizer.name == last().optimizer.name &&
         optimizer.slot_names == last().optimizer.slot_names)) {
      continue;
    }
    return InvalidArgument("'", paths_[f], "' holds the optimizer slots of '",
                           optimizer.name, "', but '",
                           paths_[paths_.size() - 1], "' those of '",
                           last().optimizer.name, "'");
  }
  return Status();
}

Status ChainRestorer::MakeStore() {
  LODESTAR_RETURN_IF_ERROR(EmbeddingStore::CreateEmptyLike(
      like_, last().seed, last().salt, &store_));
  table_ = &store_->parts();
  if (options_.reset_slots || last().optimizer.name.empty()) return Status();
  const ShardLocks locks(table_->rows);
  return table_->optimizer.Attach(last().optimizer);
}

Status ChainRestorer::LoadFile(size_t number) {
  LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(paths_[number], &file_));
  const SnapshotTable& table = tables_[number];
  const bool is_last = number + 1 == tables_.size();
  delta_.clear();
  if (!table.whole) delta_.resize(table_->rows.num_shards());
  RestoredRecords records(store_.get(), table, options_.reset_slots);
  const bool with_shared = table_->shared.any() && table.shared_rows > 0;
  SharedRowsSeen shared(with_shared ? table.shared_rows : 0);
  const auto visit = [&](const Block& block) -> Status {
    LODESTAR_RETURN_IF_ERROR(CheckRecords(*file_, table, block));
    switch (block.kind) {
      case BlockKind::kRows:
        return LoadRows(&records, block);
      case BlockKind::kRemoved:
        return NoteRemoved(block);
      case BlockKind::kSharedRows:
        if (!with_shared) return Status();
        LODESTAR_RETURN_IF_ERROR(shared.See(*file_, table, block));
        records.WriteShared(block);
        return Status();
      case BlockKind::kPending:
      case BlockKind::kSketch:
        // Every file holds them whole.
        if (is_last) admission_.Add(block);
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
                                   file_->path(), "'");
        }
      }));
  if (with_shared && table.whole && shared.count() != table.shared_rows) {
    return DamageAt(file_->path(), file_->size(), "the file holds ",
                    shared.count(), " shared rows, but its table has ",
                    table.shared_rows);
  }
  RemoveRows();
  return Status();
}

Status ChainRestorer::LoadRows(RestoredRecords* records, const Block& block) {
  RestoredRecords::Groups groups;
  records->Group(block, &groups);
  const uint32_t num_shards = table_->rows.num_shards();
  // Threads begin at different shards, so that they seldom wait.
  const uint32_t first = static_cast<uint32_t>(
      Mix64(static_cast<uint64_t>(block.offset)) % num_shards);
  for (uint32_t i = 0; i < num_shards; ++i) {
    LODESTAR_RETURN_IF_ERROR(
        LoadRowsOfShard(records, block, groups, (first + i) % num_shards));
  }
  return Status();
}

Status ChainRestorer::LoadRowsOfShard(RestoredRecords* records,
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
                      head.id, " comes a second time");
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

Status ChainRestorer::NoteRemoved(const Block& block) {
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t id = block.at<int64_t>(i * sizeof(int64_t));
    const uint32_t shard = table_->rows.HashOf(id).shard;
    MutexLock lock(&table_->rows.shard(shard).mutex);
    delta_[shard].removed.push_back(id);
  }
  return Status();
}

// Ids that a delta removes and then writes have their rows already.
void ChainRestorer::RemoveRows() {
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

Status ChainRestorer::CheckCap() const {
  const int64_t max_rows = table_->policies.eviction.max_rows;
  if (max_rows == 0 || rows_ <= max_rows) return Status();
  return FailedPrecondition("'", paths_[paths_.size() - 1], "' leads to ",
                            rows_.load(), " rows, but the table's cap is ",
                            max_rows, " rows");
}

Status ChainRestorer::InstallAdmission() {
  const std::string& path = paths_[paths_.size() - 1];
  admission_.Finish();
  const EmbeddingRowsView view = admission_.View();
  LODESTAR_RETURN_IF_ERROR(InFile(path, table_->sightings.Check(view)));
  if (!table_->sightings.uses_admission()) return Status();
  for (int64_t id : view.pending_ids) {
    const ShardedRows::IdHash hash = table_->rows.HashOf(id);
    if (table_->rows.shard(hash.shard).Find(hash.tag, id) !=
        LeafIndex::kNoRow) {
      return DataLoss("'", path, "': id ", id,
                      " waits for a row, but it has one");
    }
  }
  Sightings::State admission;
  LODESTAR_RETURN_IF_ERROR(table_->sightings.Build(view, &admission));
  table_->sightings.Install(&admission);
  return Status();
}

Status ChainRestorer::MakeOrder() {
  if (!table_->rows.ordered()) return Status();
  const int64_t num_shards = table_->rows.num_shards();
  Mutex mutex;
  Status first;
  const int64_t cost = rows_ / num_shards * 100 + 1;
  RunParallel(parallel_, num_shards, cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      Status status = MakeOrder(&table_->rows.shard(s));
      MutexLock lock(&mutex);
      if (first.ok()) first = std::move(status);
    }
  });
  return first;
}

// Rows go into the list in the order in which they are to leave it.
Status ChainRestorer::MakeOrder(RowShard* shard) try {
  MutexLock lock(&shard->mutex);
  OrderRebuild order;
  order.Reserve(*shard);
  order.Run(shard);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the order of ",
                           shard->rows.live(), " rows");
}

void ChainRestorer::SetCounters() {
  table_->rows.AddToSize(rows_);
  table_->step.Set(last().step, last().own_step);
  table_->events.CopyFrom(like_.parts().events);
}

Status RestoreChain(Span<const std::string> files, const EmbeddingStore& like,
                    const RestoreOptions& options, const ParallelFor* parallel,
                    std::unique_ptr<EmbeddingStore>* out) try {
  ChainRestorer restorer(files, like, options, parallel);
  return restorer.Restore(out);
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while a table is restored");
}

}  // namespace lodestar
