// The SnapshotSource of a table in host memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/table_parts.h"
#include "tf_ops/core/rows/row_images.h"
#include "tf_ops/core/table/table_changes.h"

namespace lodestar {
namespace {

class StoreSnapshot final : public SnapshotSource {
 public:
  explicit StoreSnapshot(TableParts* table)
      : table_(*table), locks_(table->rows, std::defer_lock) {}

  std::shared_ptr<ImageBudget> budget() const override {
    return table_.rows.changes().budget();
  }
  Status Reserve() override;
  void Lock() override { locks_.Lock(); }
  void Unlock() override { locks_.Unlock(); }
  Status Describe(const std::string& base, SnapshotState* state) override;
  void Begin(std::shared_ptr<ImageBudget> budget, int64_t chunk_bytes,
             int64_t images_bytes) override;
  const std::vector<std::vector<int64_t>>& removed() const override {
    return removed_;
  }
  size_t num_parts() const override { return parts_.size(); }
  bool has_shared_rows(size_t part) const override {
    return part == table_.rows.num_shards();
  }
  int64_t num_rows(size_t part) const override { return parts_[part].end; }
  Status SaveRows(size_t part, int64_t most, int64_t* next, char* out,
                  int64_t* count) override;
  Status TakeImages(size_t part, bool all, RowImages::Chunk** chunks) override;
  void EndImages() override;
  void End(std::string* base) override;

 private:
  struct Part {
    RowStore* rows;
    SnapshotRowFormat format;
    int64_t end;  // number of rows when the snapshot began
  };

  TableParts& table_;
  ShardLocks locks_;
  bool whole_ = true;
  AttachedOptimizer optimizer_;  // has what the formats point to
  std::vector<Part> parts_;      // shards, then shared rows
  std::vector<std::vector<int64_t>> removed_;
};

Status StoreSnapshot::Reserve() {
  locks_.Lock();
  const Status status = table_.rows.ReserveMarks();
  locks_.Unlock();
  return status;
}

Status StoreSnapshot::Describe(const std::string& base, SnapshotState* state) {
  ShardedRows& rows = table_.rows;
  whole_ = base.empty() || rows.changes().base() != base;
  optimizer_ = table_.optimizer.optimizer();
  state->table = {rows.dim(),
                  rows.type(),
                  whole_,
                  optimizer_,
                  table_.step.value(),
                  table_.initializer.seed(),
                  table_.initializer.salt(),
                  table_.step.own(),
                  table_.shared.count()};
  const auto add = [&](RowStore* store) {
    parts_.push_back({store,
                      {state->table.layout(), optimizer_.slot_inits,
                       static_cast<int>(store->slots().count)},
                      store->high_water()});
    state->bytes += store->row_bytes() + store->slot_bytes();
  };
  for (size_t s = 0; s < rows.num_shards(); ++s) add(&rows.shard(s).rows);
  if (table_.shared.any()) add(rows.shared());
  table_.occurrence_counter.ForEachPending(
      state->table.step,
      [&](int64_t id, uint32_t occurrences, int64_t last_seen) {
        state->pending.push_back({id, last_seen, occurrences, 0});
      });
  state->sketch = table_.occurrence_counter.sketch();
  removed_.resize(rows.num_shards());
  return Status();
}

void StoreSnapshot::Begin(std::shared_ptr<ImageBudget> budget,
                          int64_t chunk_bytes, int64_t images_bytes) {
  ShardedRows& rows = table_.rows;
  if (rows.changes().base().empty()) rows.StartMarking();
  rows.changes().BeginSnapshot(budget);
  for (size_t s = 0; s < rows.num_shards(); ++s) {
    rows.shard(s).mutex.AssertHeld();
    removed_[s] = rows.shard(s).removed.Take();
  }
  const int64_t chunk =
      std::min(chunk_bytes, images_bytes / static_cast<int64_t>(parts_.size()));
  for (const Part& part : parts_) {
    part.rows->BeginSnapshot(whole_, part.format, chunk, budget.get());
  }
}

Status StoreSnapshot::SaveRows(size_t part, int64_t most, int64_t* next,
                               char* out, int64_t* count) {
  const Part& from = parts_[part];
  *count = from.rows->SaveRows(from.end, from.format, most, next, out);
  return Status();
}

Status StoreSnapshot::TakeImages(size_t part, bool all,
                                 RowImages::Chunk** chunks) {
  RowImages* const images = parts_[part].rows->images();
  *chunks = images->Take(all);
  if (!images->failed()) return Status();
  return ResourceExhausted("out of memory for the image of a changed row.");
}

void StoreSnapshot::EndImages() {
  for (const Part& part : parts_) part.rows->EndImages(part.end);
}

void StoreSnapshot::End(std::string* base) {
  TableChanges& changes = table_.rows.changes();
  const bool marking = changes.HasBaseAfter(base);
  for (size_t p = 0; p < parts_.size(); ++p) {
    const bool shared = has_shared_rows(p);
    RowShard& shard = table_.rows.shard(shared ? 0 : p);
    MutexLock lock(&shard.mutex);
    parts_[p].rows->EndSnapshot(parts_[p].end, base == nullptr);
    if (!marking) parts_[p].rows->StopMarking();
    if (shared) continue;
    if (!marking) {
      shard.removed.Forget();
    } else if (base == nullptr &&
               !shard.removed.Restore(std::move(removed_[p]))) {
      changes.ForgetBase();
    }
  }
  changes.EndSnapshot(base);
}

}  // namespace

std::unique_ptr<SnapshotSource> MakeSnapshotSource(TableParts* table) {
  return std::make_unique<StoreSnapshot>(table);
}

}  // namespace lodestar
