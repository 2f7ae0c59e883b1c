#include "tf_ops/core/snapshot/restored_records.h"

#include <algorithm>
#include <new>

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

Status RestoredFile::Open(const ListedFile& file, const RowChecks& checks) {
  LODESTAR_RETURN_IF_ERROR(file_.Open(file));
  return Prefixed(
      checks.CheckKind(table().dim, table().type, table().shared_rows), "'",
      file.path, "': ");
}

Status RestoredFile::ForEach(const RowChecks& checks,
                             const ParallelFor* parallel,
                             AdmissionState* admission, const TablePart& part,
                             const SnapshotScan::Visit& visit) const {
  const int64_t num_shared = checks.has_shared_rows() ? table().shared_rows : 0;
  Mutex mutex;  // guards `seen` and `num_seen`
  std::vector<bool> seen(num_shared);
  int64_t num_seen = 0;
  const auto add_shared = [&](const SnapshotFileReader::Block& block) {
    MutexLock lock(&mutex);
    for (int64_t i = 0; i < block.count; ++i) {
      const int64_t offset = i * table().record_bytes();
      const int64_t row = HeadOf(block.payload.data() + offset).id;
      if (seen[row]) {
        return DamageAt(path(), block.OffsetOf(offset), "shared row ", row,
                        " occurs a second time");
      }
      seen[row] = true;
      ++num_seen;
    }
    return Status();
  };
  const auto add = [&](const SnapshotFileReader::Block& block) -> Status {
    try {
      switch (block.kind) {
        case BlockKind::kSharedRows:
          if (num_shared == 0) return Status();
          LODESTAR_RETURN_IF_ERROR(add_shared(block));
          return visit(block);
        case BlockKind::kPending:
        case BlockKind::kSketch:
          if (admission != nullptr) admission->Add(block, part);
          return Status();
        default:
          return visit(block);
      }
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("out of memory for the rows of '", path(), "'.");
    }
  };
  LODESTAR_RETURN_IF_ERROR(file_.ForEach(parallel, add));
  if (table().whole && num_seen != num_shared) {
    return DamageAt(path(), file_.reader().size(), "the file has ", num_seen,
                    " shared rows, but its table has ", num_shared);
  }
  return admission == nullptr ? Status() : admission->Finish(path());
}

Status MakeHostTable(const Table& table, const Execution& on,
                     std::unique_ptr<EmbeddingStore>* out) {
  constexpr int64_t kShards = 16;
  EmbeddingRows state;
  LODESTAR_RETURN_IF_ERROR(table.ExportState(&state, on));
  std::unique_ptr<EmbeddingStore> empty;
  LODESTAR_RETURN_IF_ERROR(
      EmbeddingStore::Create(table.dim(), kShards, table.initializer(), &empty,
                             table.policies(), table.type()));
  return EmbeddingStore::CreateFrom(View(state), *empty, {}, out);
}

}  // namespace lodestar
