#include "tf_ops/core/snapshot/restored_records.h"

#include <algorithm>
#include <cstring>

namespace lodestar {

Status JoinParts(const std::string& before, const std::string& path,
                 const SnapshotTable& table, SnapshotTable* joined) {
  if (table.optimizer.name.empty()) {
    LODESTAR_RETURN_IF_ERROR(CheckSameTable(path, table, before, *joined));
  } else {
    LODESTAR_RETURN_IF_ERROR(CheckSameTable(before, *joined, path, table));
    joined->optimizer = table.optimizer;
  }
  if (table.shared_rows > 0) {
    return InvalidArgument("'", path, "' has ", table.shared_rows,
                           " shared rows, but is one of several parts");
  }
  joined->step = std::max(joined->step, table.step);
  joined->own_step |= table.own_step;
  return Status();
}

Status SharedRowSet::Add(const SnapshotFileReader& file,
                         const SnapshotTable& table,
                         const SnapshotFileReader::Block& block) {
  MutexLock lock(&mutex_);
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t offset = i * table.record_bytes();
    const int64_t row = HeadOf(block.payload.data() + offset).id;
    if (seen_[row]) {
      return DamageAt(file.path(), block.OffsetOf(offset), "shared row ", row,
                      " occurs a second time");
    }
    seen_[row] = true;
    ++count_;
  }
  return Status();
}

void AdmissionState::Add(const SnapshotFileReader::Block& block,
                         const TablePart& part) {
  MutexLock lock(&mutex_);
  if (block.kind == BlockKind::kSketch) {
    pieces_.push_back({block.offset, block.payload});
    return;
  }
  for (int64_t i = 0; i < block.count; ++i) {
    const auto pending = block.at<SnapshotPending>(i * sizeof(SnapshotPending));
    if (!part.Has(pending.id)) continue;
    ids_.push_back(pending.id);
    occurrences_.push_back(pending.occurrences);
    last_seen_.push_back(pending.last_seen);
  }
}

Status AdmissionState::Finish(const std::string& path) {
  MutexLock lock(&mutex_);
  std::sort(pieces_.begin(), pieces_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<uint8_t> sketch;
  for (auto& piece : pieces_) {
    sketch.insert(sketch.end(), piece.second.begin(), piece.second.end());
    std::vector<char>().swap(piece.second);
  }
  pieces_.clear();
  if (sketch_.empty()) sketch_.swap(sketch);
  if (sketch.empty()) return Status();
  if (sketch.size() != sketch_.size()) {
    return InvalidArgument("'", path, "' has a sketch of ", sketch.size(),
                           " counters, but earlier parts have ",
                           sketch_.size());
  }
  std::transform(sketch.begin(), sketch.end(), sketch_.begin(), sketch_.begin(),
                 [](uint8_t a, uint8_t b) { return std::max(a, b); });
  return Status();
}

void AdmissionState::ForgetBefore(int64_t step) {
  MutexLock lock(&mutex_);
  if (sketch_.empty()) return;
  size_t kept = 0;
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (last_seen_[i] != step) continue;
    ids_[kept] = ids_[i];
    occurrences_[kept] = occurrences_[i];
    last_seen_[kept++] = last_seen_[i];
  }
  ids_.resize(kept);
  occurrences_.resize(kept);
  last_seen_.resize(kept);
}

EmbeddingRowsView AdmissionState::View() const {
  MutexLock lock(&mutex_);
  EmbeddingRowsView view;
  view.pending_ids = ids_;
  view.pending_sightings = occurrences_;
  view.pending_last_seen = last_seen_;
  view.sketch = sketch_;
  return view;
}

Status RestoredRecords::CheckTable(const std::string& path,
                                   const SnapshotTable& table,
                                   const EmbeddingStore& store) {
  if (table.dim != store.dim()) {
    return InvalidArgument("'", path, "' has rows of dimension ", table.dim,
                           ", but the table's dimension is ", store.dim());
  }
  if (table.type != store.type()) {
    return InvalidArgument("'", path, "' has ", NameOf(table.type),
                           " rows, but the table's rows are ",
                           NameOf(store.type()));
  }
  const int64_t shared_rows = store.parts().shared.count();
  if (table.shared_rows != shared_rows && table.shared_rows != 0 &&
      shared_rows != 0) {
    return InvalidArgument("'", path, "' has ", table.shared_rows,
                           " shared rows, but the table has ", shared_rows);
  }
  return Status();
}

Status RestoredRecords::CheckCap(const std::string& path, int64_t rows,
                                 EmbeddingStore* store) {
  const int64_t max_rows = store->parts().policies.eviction.max_rows;
  if (max_rows == 0 || rows <= max_rows) return Status();
  return FailedPrecondition("'", path, "' results in ", rows,
                            " rows, but the table's cap is ", max_rows,
                            " rows");
}

Status RestoredRecords::CheckOptimizer(const std::string& path,
                                       const AttachedOptimizer& optimizer,
                                       const EmbeddingStore& store) {
  if (optimizer.name.empty()) return Status();
  LODESTAR_RETURN_IF_ERROR(Prefixed(optimizer.Check(), "'", path, "': "));
  const AttachedOptimizer& attached = store.parts().optimizer.optimizer();
  if (attached.name.empty()) return Status();
  if (attached.name != optimizer.name) {
    return FailedPrecondition("'", path, "' has the optimizer slots of '",
                              optimizer.name, "', but the table has those of '",
                              attached.name, "'");
  }
  if (attached.slot_names == optimizer.slot_names) return Status();
  return FailedPrecondition("'", path, "' has the optimizer slots [",
                            Join(optimizer.slot_names), "] of '",
                            optimizer.name, "', but the table has [",
                            Join(attached.slot_names), "]");
}

void RestoredRecords::Group(const SnapshotFileReader::Block& block,
                            Groups* groups, const TablePart& part) const {
  const int64_t count = block.count;
  const auto record = [&](int64_t i) {
    return block.payload.data() + i * layout_.bytes();
  };
  const size_t num_shards = table_.rows.num_shards();
  groups->begins.assign(num_shards + 2, 0);
  // Counts are stored two entries ahead, so that placing the records turns them
  // into the begins.
  int64_t kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = HeadOf(record(i)).id;
    if (!part.Has(id)) continue;
    ++groups->begins[table_.rows.HashOf(id).shard + 2];
    ++kept;
  }
  groups->tags.resize(kept);
  groups->records.resize(kept);
  for (size_t s = 2; s < groups->begins.size(); ++s) {
    groups->begins[s] += groups->begins[s - 1];
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = HeadOf(record(i)).id;
    if (!part.Has(id)) continue;
    const ShardedRows::IdHash hash = table_.rows.HashOf(id);
    const uint32_t to = groups->begins[hash.shard + 1]++;
    groups->tags[to] = hash.tag;
    groups->records[to] = record(i);
  }
}

void RestoredRecords::Write(const char* record, RowStore* rows, uint32_t row) {
  CopyRowIn(record + layout_.values(), layout_.value_bytes(),
            rows->values(row));
  if (reset_slots_ || layout_.slots() == 0) {
    table_.optimizer.FillSlots(rows, row);
    return;
  }
  for (int s = 0; s < layout_.slots(); ++s) {
    std::memcpy(rows->slot(row, s), record + layout_.slot(s),
                layout_.slot_bytes());
  }
}

void RestoredRecords::WriteShared(const SnapshotFileReader::Block& block) {
  if (!table_.shared.any()) return;
  RowStore* const rows = table_.shared.rows();
  for (int64_t i = 0; i < block.count; ++i) {
    const char* record = block.payload.data() + i * layout_.bytes();
    // The id of a shared row is its number.
    const int64_t id = HeadOf(record).id;
    const uint32_t row = static_cast<uint32_t>(id);
    rows->Lock(row, id);
    rows->BeforeWrite(row);
    Write(record, rows, row);
    rows->Unlock(row);
  }
}

}  // namespace lodestar
