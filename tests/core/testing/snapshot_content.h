// The contents of a table, from snapshots or from an export.

#ifndef LODESTAR_TESTS_CORE_TESTING_SNAPSHOT_CONTENT_H_
#define LODESTAR_TESTS_CORE_TESTING_SNAPSHOT_CONTENT_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/snapshot/embedding_snapshot.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {

struct TableContent {
  std::string table;                      // EncodeTable with `whole` set
  std::map<int64_t, std::string> rows;    // records
  std::map<int64_t, std::string> shared;  // records without their heads
  std::map<int64_t, std::tuple<int64_t, uint32_t>> pending;
  std::vector<uint8_t> sketch;

  bool operator==(const TableContent& other) const {
    return table == other.table && rows == other.rows &&
           shared == other.shared && pending == other.pending &&
           sketch == other.sketch;
  }
};

inline TableContent ContentOf(const EmbeddingStore& store) {
  EmbeddingRows rows;
  EXPECT_TRUE(store.Export(true, &rows, nullptr).ok());
  TableContent content;
  SnapshotTable table;
  table.dim = store.dim();
  table.type = store.type();
  table.optimizer = rows.optimizer;
  table.step = rows.step;
  table.seed = rows.seed;
  table.salt = rows.salt;
  table.own_step = rows.own_step;
  table.shared_rows = rows.shared_values.size() / store.dim();
  content.table = EncodeTable(table);
  const SnapshotRowLayout layout = table.layout();
  const auto record = [&](const Numbers& values, const Numbers& slots,
                          int64_t count, int64_t i) {
    std::string bytes(layout.bytes(), '\0');
    std::memcpy(&bytes[layout.values()],
                NumbersView(values).at(i * store.dim()), layout.value_bytes());
    for (int64_t s = 0; s < layout.slots(); ++s) {
      std::memcpy(&bytes[layout.slot(s)],
                  NumbersView(slots).at((s * count + i) * layout.slot_width()),
                  layout.slot_bytes());
    }
    return bytes;
  };
  const int64_t count = rows.ids.size();
  for (int64_t i = 0; i < count; ++i) {
    std::string bytes = record(rows.values, rows.slots, count, i);
    const SnapshotRowHead head = {rows.ids[i], rows.last_seen[i],
                                  static_cast<uint32_t>(rows.frequencies[i]),
                                  0};
    std::memcpy(&bytes[0], &head, sizeof(head));
    content.rows[rows.ids[i]] = bytes;
  }
  for (int64_t r = 0; r < table.shared_rows; ++r) {
    content.shared[r] =
        record(rows.shared_values, rows.shared_slots, table.shared_rows, r)
            .substr(layout.values());
  }
  for (size_t i = 0; i < rows.pending_ids.size(); ++i) {
    content.pending[rows.pending_ids[i]] = {
        rows.pending_last_seen[i],
        static_cast<uint32_t>(rows.pending_sightings[i])};
  }
  content.sketch = rows.sketch;
  return content;
}

struct SnapshotFileCounts {
  bool whole = false;
  int64_t rows = 0;
  int64_t removed = 0;
  int64_t shared_rows = 0;
};

// Applies the next file of a chain to `content`.
inline SnapshotFileCounts ReadSnapshot(const std::string& path,
                                       TableContent* content) {
  SnapshotFileCounts counts;
  std::unique_ptr<SnapshotFileReader> file;
  EXPECT_TRUE(SnapshotFileReader::Open(path, &file).ok());
  SnapshotTable table;
  EXPECT_TRUE(ReadTable(*file, &table).ok());
  counts.whole = table.whole;
  if (table.whole) *content = TableContent();
  SnapshotTable same_table = table;
  same_table.whole = true;
  content->table = EncodeTable(same_table);
  content->pending.clear();
  content->sketch.clear();
  const int64_t bytes = table.record_bytes();
  std::set<int64_t> ids;
  std::set<int64_t> shared;
  SnapshotScan scan(*file);
  for (;;) {
    SnapshotFileReader::Block block;
    bool more = false;
    EXPECT_TRUE(scan.Next(&block, &more).ok());
    if (!more) break;
    EXPECT_TRUE(CheckRecords(*file, table, block).ok());
    for (int64_t i = 0; i < block.count; ++i) {
      const char* const payload = block.payload.data();
      int64_t id;
      switch (block.kind) {
        case BlockKind::kRows:
        case BlockKind::kSharedRows: {
          const std::string record(payload + i * bytes, bytes);
          std::memcpy(&id, record.data(), sizeof(id));
          if (block.kind == BlockKind::kRows) {
            EXPECT_TRUE(ids.insert(id).second) << id << " occurs twice";
            content->rows[id] = record;
            ++counts.rows;
          } else {
            EXPECT_TRUE(shared.insert(id).second) << id << " occurs twice";
            content->shared[id] = record.substr(sizeof(SnapshotRowHead));
            ++counts.shared_rows;
          }
          break;
        }
        case BlockKind::kRemoved:
          std::memcpy(&id, payload + i * sizeof(id), sizeof(id));
          content->rows.erase(id);
          ++counts.removed;
          break;
        case BlockKind::kPending: {
          SnapshotPending pending;
          std::memcpy(&pending, payload + i * sizeof(pending), sizeof(pending));
          content->pending[pending.id] = {pending.last_seen,
                                          pending.occurrences};
          break;
        }
        case BlockKind::kSketch:
          content->sketch.push_back(static_cast<uint8_t>(payload[i]));
          break;
        default:
          break;
      }
    }
  }
  return counts;
}

// A temporary file for a snapshot, removed by the destructor.
class SnapshotPath {
 public:
  SnapshotPath() {
    static int64_t number = 0;
    path_ = testing::TempDir() + "/snapshot_" + std::to_string(number++);
    std::remove(path_.c_str());
  }
  ~SnapshotPath() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Writes and finishes `path`.
inline Status WriteSnapshot(EmbeddingSnapshot* snapshot,
                            const std::string& path) {
  std::unique_ptr<SnapshotFileWriter> file;
  LODESTAR_RETURN_IF_ERROR(SnapshotFileWriter::Create(path, "label", &file));
  LODESTAR_RETURN_IF_ERROR(snapshot->Write(file.get()));
  return file->Finish();
}

inline SnapshotFileCounts SaveInto(EmbeddingSnapshot* snapshot,
                                   TableContent* content) {
  const SnapshotPath path;
  const Status status = WriteSnapshot(snapshot, path.path());
  EXPECT_TRUE(status.ok()) << status.message();
  return ReadSnapshot(path.path(), content);
}

// Budget of the table's running snapshot; null: none is running.
inline std::shared_ptr<ImageBudget> RunningBudget(Table* table) {
  std::unique_ptr<SnapshotSource> source;
  EXPECT_TRUE(table->MakeSnapshotSource({}, &source).ok());
  return source->budget();
}

using Snapshots = std::vector<std::unique_ptr<EmbeddingSnapshot>>;

// Begins a snapshot of one table; returns nullptr on error.
inline std::unique_ptr<EmbeddingSnapshot> BeginSnapshot(
    const std::shared_ptr<EmbeddingStore>& store, const std::string& base,
    const StepGates& gates = StepGates()) {
  const std::vector<EmbeddingSnapshot::Source> sources = {{store, base}};
  Snapshots snapshots;
  if (!EmbeddingSnapshot::Begin(sources, gates, &snapshots).ok())
    return nullptr;
  return std::move(snapshots[0]);
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_SNAPSHOT_CONTENT_H_
