// Tables and their snapshot files, for tests.

#ifndef LODESTAR_TESTS_CORE_SNAPSHOT_SNAPSHOT_TABLES_H_
#define LODESTAR_TESTS_CORE_SNAPSHOT_SNAPSHOT_TABLES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/snapshot/snapshot_files.h"
#include "tests/core/testing/errors.h"
#include "tests/core/testing/rows_view.h"
#include "tests/core/testing/stores.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/snapshot/snapshot_delta.h"
#include "tf_ops/core/snapshot/snapshot_restore.h"

namespace lodestar {

constexpr int kDim = 3;
constexpr int64_t kSeed = 11;
constexpr int64_t kSalt = 12;

inline std::unique_ptr<EmbeddingStore> MakeStore(
    const TablePolicies& policies = TablePolicies(), int64_t shards = 4,
    RowType type = RowType::kFloat32, int dim = kDim) {
  return StoreOf(dim, shards, InitializerOf(), policies, type);
}

inline AttachedOptimizer Adagrad() {
  return {"adagrad", {"accumulator"}, {0.5f}};
}
inline AttachedOptimizer Adam() {
  return {"adam", {"momentum", "velocity"}, {0.0f, 0.0f}};
}

inline SnapshotTable Table(bool whole, RowType type = RowType::kFloat32,
                           const AttachedOptimizer& optimizer = Adagrad()) {
  SnapshotTable table;
  table.dim = kDim;
  table.type = type;
  table.whole = whole;
  table.optimizer = optimizer;
  table.step = whole ? 10 : 11;
  table.seed = kSeed;
  table.salt = kSalt;
  return table;
}

inline std::string PendingRecord(int64_t id, uint32_t occurrences,
                                 int64_t last_seen) {
  return BytesOf(SnapshotPending{id, last_seen, occurrences, 0});
}

// Returns a full file of rows whose values all equal their id.
inline std::string WholeFile(const std::vector<int64_t>& ids,
                             SnapshotTable table = Table(true)) {
  const std::string path = NewPath("whole");
  std::vector<std::string> records;
  for (int64_t id : ids) {
    records.push_back(RowRecord(table, id, static_cast<float>(id)));
  }
  FileMaker(path, table).AddRows(records).Finish();
  return path;
}

inline Status Restore(const std::vector<std::string>& files,
                      const EmbeddingStore& like,
                      std::unique_ptr<EmbeddingStore>* out, bool reset = false,
                      const ParallelFor* parallel = nullptr) {
  RestoreOptions options;
  options.reset_slots = reset;
  const std::vector<SavedPart> saved = {{{}, {files.begin(), files.end()}}};
  return RestoreTable(saved, {}, like, options, parallel, out);
}

inline std::unique_ptr<EmbeddingStore> MustRestore(
    const std::vector<std::string>& files, const EmbeddingStore& like,
    bool reset = false) {
  std::unique_ptr<EmbeddingStore> store;
  const Status status = Restore(files, like, &store, reset);
  EXPECT_TRUE(status.ok()) << status.message();
  return store;
}

inline Status ApplyFiles(const std::vector<std::string>& files,
                         EmbeddingStore* store,
                         SnapshotDelta::Applied* applied = nullptr,
                         bool reset = false) {
  RestoreOptions options;
  options.reset_slots = reset;
  std::unique_ptr<SnapshotDelta> delta;
  const std::vector<ListedFile> listed(files.begin(), files.end());
  LODESTAR_RETURN_IF_ERROR(
      SnapshotDelta::Open(listed, {}, store, options, {}, &delta));
  SnapshotDelta::Applied unused;
  return delta->Apply(applied == nullptr ? &unused : applied);
}
inline Status ApplyFile(const std::string& file, EmbeddingStore* store,
                        SnapshotDelta::Applied* applied = nullptr,
                        bool reset = false) {
  return ApplyFiles({file}, store, applied, reset);
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_SNAPSHOT_SNAPSHOT_TABLES_H_
