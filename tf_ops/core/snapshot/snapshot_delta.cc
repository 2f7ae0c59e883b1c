#include "tf_ops/core/snapshot/snapshot_delta.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <new>
#include <utility>

#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/table/embedding_rows.h"

namespace lodestar {

Status SnapshotDelta::Open(Span<const ListedFile> listed, const TablePart& part,
                           Table* table, const RestoreOptions& options,
                           const Execution& on,
                           std::unique_ptr<SnapshotDelta>* out) try {
  std::unique_ptr<EmbeddingStore> host;
  if (on.on_gpu()) LODESTAR_RETURN_IF_ERROR(MakeHostTable(*table, on, &host));
  EmbeddingStore* const store =
      on.on_gpu() ? host.get() : static_cast<EmbeddingStore*>(table);
  std::unique_ptr<SnapshotDelta> delta(new SnapshotDelta(store, part, options));
  if (on.on_gpu()) {
    delta->on_gpu_ = table;
    delta->on_ = on;
    delta->host_ = std::move(host);
  }
  for (const ListedFile& file : listed) {
    LODESTAR_RETURN_IF_ERROR(delta->OpenFile(file));
  }
  std::vector<IdAt> found;
  for (const auto& file : delta->files_) {
    LODESTAR_RETURN_IF_ERROR(delta->ReadFile(file, &found));
  }
  if (listed.size() > 1) delta->admission_.ForgetBefore(delta->joined_.step);
  LODESTAR_RETURN_IF_ERROR(delta->CollectIds(&found));
  LODESTAR_RETURN_IF_ERROR(delta->InLast(delta->table_.CheckPending(
      delta->admission_.View(), delta->ids_, delta->removed_)));
  LODESTAR_RETURN_IF_ERROR(delta->Reserve());
  *out = std::move(delta);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for ", listed.size(),
                           " incremental snapshot files.");
}

Status SnapshotDelta::OpenFile(const ListedFile& listed) {
  RestoredFile file;
  LODESTAR_RETURN_IF_ERROR(file.Open(listed, table_));
  LODESTAR_RETURN_IF_ERROR(CheckTable(file));
  if (files_.empty()) {
    joined_ = file.table();
  } else {
    LODESTAR_RETURN_IF_ERROR(
        JoinParts(files_.back().path(), listed.path, file.table(), &joined_));
  }
  files_.push_back(std::move(file));
  return Status();
}

Status SnapshotDelta::CheckTable(const RestoredFile& file) const {
  const std::string& path = file.path();
  const SnapshotTable& table = file.table();
  if (table.whole) {
    return InvalidArgument("'", path,
                           "' is a full snapshot, expected an incremental one");
  }
  const RowInitializer& initializer = table_.initializer();
  if (table.seed != initializer.seed() || table.salt != initializer.salt()) {
    return InvalidArgument("'", path, "' belongs to a table with seed ",
                           table.seed, " and salt ", table.salt,
                           ", but this one has ", initializer.seed(), " and ",
                           initializer.salt());
  }
  if (options_.reset_slots) return Status();
  LODESTAR_RETURN_IF_ERROR(
      Prefixed(table_.CheckOptimizer(table.optimizer), "'", path, "': "));
  if (table.optimizer.name.empty() && !table_.optimizer().name.empty()) {
    return FailedPrecondition(
        "'", path, "' has no optimizer slots, but the table has those of '",
        table_.optimizer().name, "'");
  }
  return Status();
}

Status SnapshotDelta::ReadFile(const RestoredFile& file,
                               std::vector<IdAt>* found) {
  return file.ForEach(
      table_, nullptr, &admission_, part_,
      [&](const SnapshotFileReader::Block& block) -> Status {
        if (block.kind == BlockKind::kRemoved) {
          for (int64_t i = 0; i < block.count; ++i) {
            const int64_t id = block.at<int64_t>(i * sizeof(int64_t));
            if (part_.Has(id)) removed_.push_back(id);
          }
        } else if (block.kind == BlockKind::kRows) {
          for (int64_t i = 0; i < block.count; ++i) {
            const int64_t offset = i * file.table().record_bytes();
            const int64_t id = HeadOf(block.payload.data() + offset).id;
            if (!part_.Has(id)) continue;
            found->push_back({id, &file, block.OffsetOf(offset)});
          }
        }
        return Status();
      });
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

Status SnapshotDelta::CheckCap(Span<const RowRef> refs) const {
  if (store_->eviction().max_rows == 0) return Status();
  std::vector<RowRef> gone(removed_.size());
  store_->FindAll(removed_, gone, nullptr);
  const auto is_found = [](const RowRef& ref) { return ref.found(); };
  const int64_t rows = store_->size() + refs.size() -
                       std::count_if(refs.begin(), refs.end(), is_found) -
                       std::count_if(gone.begin(), gone.end(), is_found);
  return InLast(table_.CheckCap(rows));
}

// Changes nothing but the reserved memory.
Status SnapshotDelta::Reserve() {
  std::vector<RowRef> refs(ids_.size());
  store_->FindAll(ids_, refs, nullptr);
  LODESTAR_RETURN_IF_ERROR(CheckCap(refs));
  std::vector<std::vector<uint32_t>> tags(table_.num_shards());
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (refs[i].found()) continue;
    const ShardedRows::IdHash hash = table_.HashOf(ids_[i]);
    tags[hash.shard].push_back(hash.tag);
  }
  for (size_t s = 0; s < tags.size(); ++s) {
    RowShard& shard = table_.shard(s);
    MutexLock lock(&shard.mutex);
    LODESTAR_RETURN_IF_ERROR(table_.Reserve(&shard, tags[s]));
  }
  return Status();
}

Status SnapshotDelta::Apply(Applied* applied) try {
  LODESTAR_RETURN_IF_ERROR(ApplyToStore());
  if (on_gpu_ != nullptr) LODESTAR_RETURN_IF_ERROR(ApplyToGpu());
  *applied = applied_;
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while loading '",
                           files_.back().path(), "'.");
}

Status SnapshotDelta::ApplyToGpu() {
  EmbeddingRows rows;
  LODESTAR_RETURN_IF_ERROR(host_->Export(/*with_slots=*/true, &rows, {}));
  return InLast(
      on_gpu_->ImportDelta(removed_, View(rows), &applied_.removed, on_));
}

Status SnapshotDelta::ApplyToStore() {
  OccurrenceCounter::State admission;
  LODESTAR_RETURN_IF_ERROR(
      table_.BuildAdmission(admission_.View(), &admission));
  // Rows written before the optimizer was attached get the initial slot values.
  if (!options_.reset_slots && !joined_.optimizer.name.empty()) {
    LODESTAR_RETURN_IF_ERROR(table_.AttachOptimizer(joined_.optimizer));
  }
  if (store_->eviction().max_rows == 0) {
    LODESTAR_RETURN_IF_ERROR(WriteAll());
  } else {
    table_.WaitForImages();
    const ShardLocks locks = table_.LockAll();
    holds_shards_ = true;
    std::vector<RowRef> refs(ids_.size());
    store_->FindAll(ids_, refs, nullptr);
    LODESTAR_RETURN_IF_ERROR(CheckCap(refs));
    LODESTAR_RETURN_IF_ERROR(WriteAll());
  }
  table_.Finish(&admission, joined_.step, joined_.own_step);
  return Status();
}

Status SnapshotDelta::WriteAll() {
  Remove();
  for (const RestoredFile& file : files_) {
    const auto write = [&](const SnapshotFileReader::Block& block) -> Status {
      // The table may have a running snapshot.
      if (!holds_shards_) table_.WaitForImages();
      const RowRecords records = file.RecordsOf(block, options_.reset_slots);
      if (block.kind == BlockKind::kRows) return WriteRows(records);
      if (block.kind == BlockKind::kSharedRows) table_.PutShared(records);
      return Status();
    };
    // Checks the file again, because it may have been modified.
    LODESTAR_RETURN_IF_ERROR(
        file.ForEach(table_, nullptr, nullptr, part_, write));
  }
  return Status();
}

std::unique_lock<Mutex> SnapshotDelta::LockShard(RowShard* shard) const {
  return holds_shards_ ? std::unique_lock<Mutex>()
                       : std::unique_lock<Mutex>(shard->mutex);
}

Status SnapshotDelta::WriteRows(const RowRecords& records) {
  RecordGroups groups;
  table_.Group(records, [&](int64_t id) { return part_.Has(id); }, &groups);
  for (uint32_t s = 0; s < table_.num_shards(); ++s) {
    LODESTAR_RETURN_IF_ERROR(WriteRowsOfShard(records, s, &groups));
  }
  return Status();
}

Status SnapshotDelta::WriteRowsOfShard(const RowRecords& records,
                                       uint32_t number, RecordGroups* groups) {
  const uint32_t begin = groups->begins[number];
  const uint32_t end = groups->begins[number + 1];
  if (begin == end) return Status();
  RowShard& shard = table_.shard(number);
  if (shard.order != nullptr) {
    // Adding rows by last step takes constant time per row.
    const auto step_of = [](const RecordGroups::Item& item) {
      return HeadOf(item.record).last_seen;
    };
    std::sort(
        groups->items.begin() + begin, groups->items.begin() + end,
        [&](const auto& a, const auto& b) { return step_of(a) < step_of(b); });
  }
  const std::unique_lock<Mutex> lock = LockShard(&shard);
  shard.mutex.AssertHeld();
  std::vector<uint32_t> found(end - begin);
  std::vector<uint32_t> tags;
  for (uint32_t k = begin; k < end; ++k) {
    if (k + kAhead < end) {
      LeafIndex::Prefetch(shard.index.Begin(groups->items[k + kAhead].tag));
    }
    const auto [tag, record] = groups->items[k];
    found[k - begin] = shard.Find(tag, HeadOf(record).id);
    if (found[k - begin] == LeafIndex::kNoRow) tags.push_back(tag);
  }
  LODESTAR_RETURN_IF_ERROR(table_.Reserve(&shard, tags));
  for (uint32_t k = begin; k < end; ++k) {
    const auto [tag, record] = groups->items[k];
    table_.Put(records, record, &shard, tag, found[k - begin]);
  }
  applied_.written += end - begin;
  table_.CountAdded(static_cast<int64_t>(tags.size()));
  return Status();
}

void SnapshotDelta::Remove() {
  for (int64_t id : removed_) {
    const ShardedRows::IdHash hash = table_.HashOf(id);
    RowShard& shard = table_.shard(hash.shard);
    const std::unique_lock<Mutex> lock = LockShard(&shard);
    const uint32_t row = shard.Find(hash.tag, id);
    if (row == LeafIndex::kNoRow) continue;
    shard.mutex.AssertHeld();
    table_.Remove(&shard, hash.tag, row);
    ++applied_.removed;
  }
  table_.CountRemoved(applied_.removed);
}

}  // namespace lodestar
