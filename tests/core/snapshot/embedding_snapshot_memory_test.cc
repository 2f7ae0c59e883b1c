// Each allocation of a snapshot, and of concurrent writers to its table, fails
// in turn. The snapshot then fails, but the table and its record of changes
// stay intact.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/testing/allocation_failure.h"
#include "tests/core/testing/snapshot_content.h"
#include "tests/core/testing/stores.h"
#include "tf_ops/core/snapshot/embedding_snapshot.h"

namespace lodestar {
namespace {

constexpr int kDim = 300;
using Store = std::shared_ptr<EmbeddingStore>;
using Ids = std::vector<int64_t>;

// Allocates everything up front, so that Apply makes no allocations of the
// test.
struct Update {
  explicit Update(const Ids& ids) : ids(ids), gradients(ids.size() * kDim, 1) {}
  Status Apply(EmbeddingStore* store) const {
    return store->Apply(ids, gradients.data(), name, sgd, {}, false, -1,
                        nullptr);
  }

  const std::string name = "sgd";
  const Ids ids;
  const std::vector<float> gradients;
  const SparseOptimizer sgd = OptimizerOf(name, {0.5f, 0.0f});
};

// A table with 1000 rows, pending ids, a sketch and shared rows, and a snapshot
// of it. After the snapshot, rows [0, 100) changed and 100 others were removed.
class SnapshotMemory {
 public:
  SnapshotMemory() {
    TablePolicies policies;
    policies.admission.kind = AdmissionPolicy::Kind::kCountingBloom;
    policies.admission.min_count = 2;
    policies.admission.num_counters = 1000;
    policies.admission.num_hashes = 2;
    policies.shared_rows = 10;
    store = StoreOf(kDim, 2, InitializerOf(), policies);
    const Ids ids = Range(0, 1200);
    const std::vector<float> rows(ids.size() * kDim, 2.0f);
    EXPECT_TRUE(store->InsertOrAssign(ids, rows.data(), nullptr).ok());
    EXPECT_TRUE(Update({}).Apply(store.get()).ok());
    auto snapshot = BeginSnapshot(store, "");
    SaveInto(snapshot.get(), &content);
    snapshot->Commit("a");
    EXPECT_TRUE(Update(Range(0, 100)).Apply(store.get()).ok());
    Remove(store.get(), Range(100, 200));
    FindOrInsert(store.get(), Range(5000, 5050));
  }

  // The next snapshot, incremental or full, contains the table's state.
  void ExpectNothingLost() {
    auto snapshot = BeginSnapshot(store, "a");
    ASSERT_NE(snapshot, nullptr);
    whole = snapshot->table().whole;
    TableContent next = content;
    SaveInto(snapshot.get(), &next);
    EXPECT_TRUE(next == ContentOf(*store));
  }

  Store store;
  TableContent content;
  bool whole = false;
};

// Calls call(memory, fail), where `fail` makes one allocation fail during its
// lifetime. Returns the number of allocations that can fail.
using Fail = std::function<std::unique_ptr<FailAllocation>()>;
int FailEach(const std::function<bool(SnapshotMemory*, const Fail&)>& call) {
  for (int allocation = 0;; ++allocation) {
    SCOPED_TRACE(allocation);
    SnapshotMemory memory;
    const bool failed = call(
        &memory, [&] { return std::make_unique<FailAllocation>(allocation); });
    memory.ExpectNothingLost();
    if (!failed || testing::Test::HasFailure()) return allocation;
  }
}

TEST(EmbeddingSnapshotMemoryTest, Begin) {
  const int count = FailEach([](SnapshotMemory* memory, const Fail& fail) {
    const TableContent before = ContentOf(*memory->store);
    const std::vector<EmbeddingSnapshot::Source> sources = {
        {memory->store, "a"}};
    Snapshots snapshots;
    snapshots.reserve(1);
    Status status;
    bool failed;
    {
      const auto failure = fail();
      status = EmbeddingSnapshot::Begin(sources, StepGates(), &snapshots);
      failed = failure->failed();
    }
    EXPECT_EQ(status.code(),
              failed ? StatusCode::kResourceExhausted : StatusCode::kOk);
    EXPECT_TRUE(ContentOf(*memory->store) == before);
    EXPECT_EQ(memory->store->base(), "a");
    return failed;
  });
  EXPECT_GT(count, 5);
}

// Without memory for marks, the next snapshot is full.
TEST(EmbeddingSnapshotMemoryTest, SetBase) {
  const int count = FailEach([](SnapshotMemory* memory, const Fail& fail) {
    // A table without marks.
    std::unique_ptr<EmbeddingStore> store;
    EXPECT_TRUE(EmbeddingStore::Create(kDim, 3, RowInitializer(), &store).ok());
    memory->store = std::move(store);
    const std::vector<float> row(kDim, 2.0f);
    EXPECT_TRUE(
        memory->store->InsertOrAssign(Range(0, 1), row.data(), nullptr).ok());
    EXPECT_TRUE(Update({}).Apply(memory->store.get()).ok());
    memory->content = ContentOf(*memory->store);
    const std::string base = "a";
    bool failed;
    {
      const auto failure = fail();
      memory->store->SetBase(base, {});
      failed = failure->failed();
    }
    EXPECT_EQ(memory->store->base(), failed ? "" : "a");
    EXPECT_TRUE(Update({0}).Apply(memory->store.get()).ok());
    return failed;
  });
  EXPECT_GT(count, 0);
}

TEST(EmbeddingSnapshotMemoryTest, Write) {
  const int count = FailEach([](SnapshotMemory* memory, const Fail& fail) {
    auto snapshot = BeginSnapshot(memory->store, "a");
    EXPECT_TRUE(Update(Range(50, 150)).Apply(memory->store.get()).ok());
    const SnapshotPath path;
    std::unique_ptr<SnapshotFileWriter> file;
    EXPECT_TRUE(SnapshotFileWriter::Create(path.path(), "label", &file).ok());
    Status status;
    bool failed;
    {
      const auto failure = fail();
      status = snapshot->Write(file.get());
      failed = failure->failed();
    }
    EXPECT_EQ(status.code(),
              failed ? StatusCode::kResourceExhausted : StatusCode::kOk);
    // A failed snapshot cannot be committed.
    if (failed) snapshot->Commit("b");
    EXPECT_EQ(memory->store->base(), "a");
    snapshot->Abort();
    return failed;
  });
  EXPECT_GT(count, 1);
}

TEST(EmbeddingSnapshotMemoryTest, Images) {
  int images = 0;
  FailEach([&](SnapshotMemory* memory, const Fail& fail) {
    auto snapshot = BeginSnapshot(memory->store, "");
    const auto budget = RunningBudget(memory->store.get());
    const TableContent before = ContentOf(*memory->store);
    const Update update(Range(0, 800));
    Status applied;
    bool failed;
    {
      const auto failure = fail();
      applied = update.Apply(memory->store.get());
      failed = failure->failed();
    }
    EXPECT_EQ(ContentOf(*memory->store) == before, !applied.ok());
    const SnapshotPath path;
    const Status written = WriteSnapshot(snapshot.get(), path.path());
    if (failed && applied.ok()) {
      ++images;
      EXPECT_EQ(written.code(), StatusCode::kResourceExhausted);
      EXPECT_EQ(written.message(),
                "out of memory for the image of a changed row.");
    } else {
      EXPECT_TRUE(written.ok());
    }
    EXPECT_EQ(budget->bytes(), 0);
    return failed;
  });
  EXPECT_GT(images, 1);
}

// Without memory for the removed ids, the next snapshot is full.
TEST(EmbeddingSnapshotMemoryTest, RemovedIds) {
  int whole = 0;
  FailEach([&](SnapshotMemory* memory, const Fail& fail) {
    const Ids ids = Range(200, 600);
    int64_t removed;
    Status status;
    bool failed;
    {
      const auto failure = fail();
      status = memory->store->Remove(ids, &removed, {});
      failed = failure->failed();
    }
    EXPECT_TRUE(status.ok() || failed);
    EXPECT_EQ(removed, status.ok() ? 400 : 0);
    memory->ExpectNothingLost();
    EXPECT_EQ(memory->whole, failed && status.ok());
    whole += memory->whole;
    return failed;
  });
  EXPECT_GT(whole, 0);
}

TEST(EmbeddingSnapshotMemoryTest, Abort) {
  FailEach([](SnapshotMemory* memory, const Fail& fail) {
    auto snapshot = BeginSnapshot(memory->store, "a");
    Remove(memory->store.get(), Range(200, 250));
    const auto failure = fail();
    snapshot->Abort();
    return failure->failed();
  });
}

}  // namespace
}  // namespace lodestar
