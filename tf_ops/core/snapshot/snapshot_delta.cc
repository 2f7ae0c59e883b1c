#include "tf_ops/core/snapshot/snapshot_delta.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <new>
#include <utility>

#include "tf_ops/core/embedding/embedding_run.h"

namespace lodestar {

Status SnapshotDelta::Open(Span<const std::string> paths, EmbeddingStore* store,
                           const RestoreOptions& options,
                           std::unique_ptr<SnapshotDelta>* out) try {
  std::unique_ptr<SnapshotDelta> delta(new SnapshotDelta(store, options));
  for (const std::string& path : paths) {
    LODESTAR_RETURN_IF_ERROR(delta->OpenFile(path));
  }
  std::vector<IdAt> found;
  for (const auto& file : delta->files_) {
    LODESTAR_RETURN_IF_ERROR(delta->ReadFile(*file, &found));
  }
  if (paths.size() > 1) delta->admission_.ForgetBefore(delta->table_.step);
  LODESTAR_RETURN_IF_ERROR(delta->CollectIds(&found));
  LODESTAR_RETURN_IF_ERROR(delta->CheckAdmission());
  LODESTAR_RETURN_IF_ERROR(delta->Reserve());
  *out = std::move(delta);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the incremental snapshot '",
                           Join(paths), "'.");
}

Status SnapshotDelta::OpenFile(const std::string& path) {
  auto file = std::make_unique<File>();
  LODESTAR_RETURN_IF_ERROR(SnapshotFileReader::Open(path, &file->reader));
  LODESTAR_RETURN_IF_ERROR(ReadTable(*file->reader, &file->table));
  LODESTAR_RETURN_IF_ERROR(CheckTable(*file));
  if (files_.empty()) {
    table_ = file->table;
  } else {
    LODESTAR_RETURN_IF_ERROR(
        JoinParts(files_.back()->path(), path, file->table, &table_));
  }
  files_.push_back(std::move(file));
  return Status();
}

Status SnapshotDelta::CheckTable(const File& file) const {
  const std::string& path = file.path();
  const SnapshotTable& table = file.table;
  if (table.whole) {
    return InvalidArgument("'", path,
                           "' is a full snapshot, expected an incremental one");
  }
  LODESTAR_RETURN_IF_ERROR(RestoredRecords::CheckTable(path, table, *store_));
  const RowInitializer& initializer = parts_.initializer;
  if (table.seed != initializer.seed() || table.salt != initializer.salt()) {
    return InvalidArgument("'", path, "' belongs to a table with seed ",
                           table.seed, " and salt ", table.salt,
                           ", but this one has ", initializer.seed(), " and ",
                           initializer.salt());
  }
  if (options_.reset_slots) return Status();
  LODESTAR_RETURN_IF_ERROR(
      RestoredRecords::CheckOptimizer(path, table.optimizer, *store_));
  if (table.optimizer.name.empty() && parts_.optimizer.bound()) {
    return FailedPrecondition(
        "'", path, "' has no optimizer slots, but the table has those of '",
        parts_.optimizer.optimizer().name, "'");
  }
  return Status();
}

Status SnapshotDelta::ReadFile(const File& file, std::vector<IdAt>* found) {
  const SnapshotTable& table = file.table;
  const bool with_shared = parts_.shared.any() && table.shared_rows > 0;
  SharedRowSet shared(with_shared ? table.shared_rows : 0);
  const auto visit = [&](const SnapshotFileReader::Block& block) -> Status {
    LODESTAR_RETURN_IF_ERROR(CheckRecords(*file.reader, table, block));
    switch (block.kind) {
      case BlockKind::kRows:
        for (int64_t i = 0; i < block.count; ++i) {
          const int64_t offset = i * table.record_bytes();
          found->push_back({HeadOf(block.payload.data() + offset).id, &file,
                            block.OffsetOf(offset)});
        }
        return Status();
      case BlockKind::kRemoved:
        for (int64_t i = 0; i < block.count; ++i) {
          removed_.push_back(block.at<int64_t>(i * sizeof(int64_t)));
        }
        return Status();
      case BlockKind::kSharedRows:
        return with_shared ? shared.Add(*file.reader, table, block) : Status();
      case BlockKind::kPending:
      case BlockKind::kSketch:
        admission_.Add(block);
        return Status();
      default:
        return Status();
    }
  };
  SnapshotScan scan(*file.reader, /*payloads=*/true);
  LODESTAR_RETURN_IF_ERROR(scan.ForEach(nullptr, visit));
  return admission_.Finish(file.path());
}

Status SnapshotDelta::CollectIds(std::vector<IdAt>* found) {
  std::stable_sort(found->begin(), found->end(),
                   [](const IdAt& a, const IdAt& b) { return a.id < b.id; });
  ids_.reserve(found->size());
  for (const IdAt& at : *found) {
    if (!ids_.empty() && ids_.back() == at.id) {
      return DamageAt(at.file->path(), at.offset, "id ", at.id,
                      " occurs a second time");
    }
    ids_.push_back(at.id);
  }
  // An id that is removed and then written keeps its row throughout.
  std::sort(removed_.begin(), removed_.end());
  removed_.erase(std::unique(removed_.begin(), removed_.end()), removed_.end());
  std::vector<int64_t> gone;
  std::set_difference(removed_.begin(), removed_.end(), ids_.begin(),
                      ids_.end(), std::back_inserter(gone));
  removed_.swap(gone);
  return Status();
}

Status SnapshotDelta::CheckAdmission() const {
  const std::string& path = files_.back()->path();
  const EmbeddingRowsView view = admission_.View();
  LODESTAR_RETURN_IF_ERROR(
      Prefixed(parts_.occurrence_counter.Check(view), "'", path, "': "));
  if (!parts_.occurrence_counter.uses_admission()) return Status();
  std::vector<RowRef> refs(view.pending_ids.size());
  store_->FindAll(view.pending_ids, refs, nullptr);
  for (int64_t i = 0; i < view.pending_ids.size(); ++i) {
    const int64_t id = view.pending_ids[i];
    const bool stays =
        refs[i].found() &&
        !std::binary_search(removed_.begin(), removed_.end(), id);
    if (stays || std::binary_search(ids_.begin(), ids_.end(), id)) {
      return DataLoss("'", path, "': id ", id, " is pending, but it has a row");
    }
  }
  return Status();
}

Status SnapshotDelta::CheckCap(Span<const RowRef> refs) const {
  if (parts_.policies.eviction.max_rows == 0) return Status();
  std::vector<RowRef> gone(removed_.size());
  store_->FindAll(removed_, gone, nullptr);
  const auto is_found = [](const RowRef& ref) { return ref.found(); };
  const int64_t rows = store_->size() + refs.size() -
                       std::count_if(refs.begin(), refs.end(), is_found) -
                       std::count_if(gone.begin(), gone.end(), is_found);
  return RestoredRecords::CheckCap(files_.back()->path(), rows, store_);
}

// Changes nothing but the reserved memory.
Status SnapshotDelta::Reserve() {
  std::vector<RowRef> refs(ids_.size());
  store_->FindAll(ids_, refs, nullptr);
  LODESTAR_RETURN_IF_ERROR(CheckCap(refs));
  std::vector<std::vector<uint32_t>> tags(parts_.rows.num_shards());
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (refs[i].found()) continue;
    const ShardedRows::IdHash hash = parts_.rows.HashOf(ids_[i]);
    tags[hash.shard].push_back(hash.tag);
  }
  for (size_t s = 0; s < tags.size(); ++s) {
    RowShard& shard = parts_.rows.shard(s);
    MutexLock lock(&shard.mutex);
    LODESTAR_RETURN_IF_ERROR(parts_.rows.Reserve(&shard, tags[s]));
  }
  return Status();
}

Status SnapshotDelta::Apply(Applied* applied) try {
  OccurrenceCounter::State admission;
  LODESTAR_RETURN_IF_ERROR(
      parts_.occurrence_counter.Build(admission_.View(), &admission));
  LODESTAR_RETURN_IF_ERROR(Bind());
  if (parts_.policies.eviction.max_rows == 0) {
    LODESTAR_RETURN_IF_ERROR(WriteAll());
  } else {
    parts_.rows.changes().WaitForImages();
    const ShardLocks locks(parts_.rows);
    holds_shards_ = true;
    std::vector<RowRef> refs(ids_.size());
    store_->FindAll(ids_, refs, nullptr);
    LODESTAR_RETURN_IF_ERROR(CheckCap(refs));
    LODESTAR_RETURN_IF_ERROR(WriteAll());
  }
  parts_.occurrence_counter.Install(&admission);
  parts_.step.Set(table_.step, table_.own_step);
  parts_.rows.epochs()->Collect();
  *applied = applied_;
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while loading '",
                           files_.back()->path(), "'.");
}

Status SnapshotDelta::WriteAll() {
  Remove();
  for (const auto& file : files_) LODESTAR_RETURN_IF_ERROR(WriteFile(*file));
  return Status();
}

Status SnapshotDelta::WriteFile(const File& file) {
  RestoredRecords records(store_, file.table, options_.reset_slots);
  SnapshotScan scan(*file.reader, /*payloads=*/true);
  SnapshotFileReader::Block block;
  for (bool more = true; more;) {
    LODESTAR_RETURN_IF_ERROR(scan.Next(&block, &more));
    if (!more) break;
    // The file may have been modified since it was checked.
    LODESTAR_RETURN_IF_ERROR(CheckRecords(*file.reader, file.table, block));
    // The table may have a running snapshot.
    if (!holds_shards_) parts_.rows.changes().WaitForImages();
    if (block.kind == BlockKind::kRows) {
      LODESTAR_RETURN_IF_ERROR(WriteRows(&records, block));
    } else if (block.kind == BlockKind::kSharedRows) {
      records.WriteShared(block);
    }
  }
  return Status();
}

std::unique_lock<Mutex> SnapshotDelta::LockShard(RowShard* shard) const {
  return holds_shards_ ? std::unique_lock<Mutex>()
                       : std::unique_lock<Mutex>(shard->mutex);
}

// Rows written before the optimizer was attached get the initial slot values.
Status SnapshotDelta::Bind() {
  const AttachedOptimizer& optimizer = table_.optimizer;
  if (options_.reset_slots || optimizer.name.empty()) return Status();
  const ShardLocks locks(parts_.rows);
  return parts_.optimizer.Attach(optimizer);
}

Status SnapshotDelta::WriteRows(RestoredRecords* records,
                                const SnapshotFileReader::Block& block) {
  RestoredRecords::Groups groups;
  records->Group(block, &groups);
  for (uint32_t s = 0; s < parts_.rows.num_shards(); ++s) {
    LODESTAR_RETURN_IF_ERROR(WriteRowsOfShard(records, s, &groups));
  }
  return Status();
}

Status SnapshotDelta::WriteRowsOfShard(RestoredRecords* records,
                                       uint32_t number,
                                       RestoredRecords::Groups* groups) {
  const uint32_t begin = groups->begins[number];
  const uint32_t end = groups->begins[number + 1];
  if (begin == end) return Status();
  RowShard& shard = parts_.rows.shard(number);
  if (shard.order != nullptr) SortByAge(begin, end, groups);
  const std::unique_lock<Mutex> lock = LockShard(&shard);
  shard.mutex.AssertHeld();
  std::vector<uint32_t> found(end - begin);
  std::vector<uint32_t> tags;
  for (uint32_t k = begin; k < end; ++k) {
    if (k + kAhead < end) {
      LeafIndex::Prefetch(shard.index.Begin(groups->tags[k + kAhead]));
    }
    const int64_t id = HeadOf(groups->records[k]).id;
    found[k - begin] = shard.Find(groups->tags[k], id);
    if (found[k - begin] == LeafIndex::kNoRow) tags.push_back(groups->tags[k]);
  }
  LODESTAR_RETURN_IF_ERROR(parts_.rows.Reserve(&shard, tags));
  for (uint32_t k = begin; k < end; ++k) {
    const char* const record = groups->records[k];
    const SnapshotRowHead head = HeadOf(record);
    uint32_t row = found[k - begin];
    if (row == LeafIndex::kNoRow) {
      row = shard.rows.Allocate();
      records->Write(record, &shard.rows, row);
      parts_.rows.Add(&shard, groups->tags[k], row, head.id, head.last_seen,
                      head.frequency);
      continue;
    }
    if (shard.order != nullptr) shard.order->Remove(row);
    // The row cannot be freed or moved without the shard's mutex.
    shard.rows.Lock(row, head.id);
    shard.rows.BeforeWrite(row);
    records->Write(record, &shard.rows, row);
    RowMeta* const meta = shard.rows.meta(row);
    meta->last_seen.store(head.last_seen, std::memory_order_relaxed);
    meta->frequency.store(head.frequency, std::memory_order_relaxed);
    shard.rows.Unlock(row);
    if (shard.order != nullptr) shard.order->Add(row);
  }
  applied_.written += end - begin;
  const int64_t added = static_cast<int64_t>(tags.size());
  parts_.rows.AddToSize(added);
  parts_.events.Add(Event::kInserts, added);
  return Status();
}

// Sorts by age, so that the eviction list finds each position quickly.
void SnapshotDelta::SortByAge(uint32_t begin, uint32_t end,
                              RestoredRecords::Groups* groups) {
  std::vector<std::pair<const char*, uint32_t>> sorted;
  for (uint32_t k = begin; k < end; ++k) {
    sorted.push_back({groups->records[k], groups->tags[k]});
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    const SnapshotRowHead first = HeadOf(a.first);
    const SnapshotRowHead second = HeadOf(b.first);
    if (first.last_seen != second.last_seen) {
      return first.last_seen < second.last_seen;
    }
    return first.id < second.id;
  });
  for (uint32_t k = begin; k < end; ++k) {
    groups->records[k] = sorted[k - begin].first;
    groups->tags[k] = sorted[k - begin].second;
  }
}

void SnapshotDelta::Remove() {
  for (int64_t id : removed_) {
    const ShardedRows::IdHash hash = parts_.rows.HashOf(id);
    RowShard& shard = parts_.rows.shard(hash.shard);
    const std::unique_lock<Mutex> lock = LockShard(&shard);
    const uint32_t row = shard.Find(hash.tag, id);
    if (row == LeafIndex::kNoRow) continue;
    shard.mutex.AssertHeld();
    parts_.rows.Remove(&shard, hash.tag, row);
    ++applied_.removed;
  }
  parts_.rows.AddToSize(-applied_.removed);
  parts_.events.Add(Event::kRemoved, applied_.removed);
}

}  // namespace lodestar
