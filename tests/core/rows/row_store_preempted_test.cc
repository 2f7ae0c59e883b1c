// A writer outside of the step gate is preempted while it marks a row.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "tf_ops/core/base/guards.h"
#include "tf_ops/core/rows/row_store.h"

namespace lodestar {
namespace {

// While true, threads wait at a pause.
std::atomic<bool> hold{false};
std::atomic<bool> held{false};

constexpr int64_t kRows = 100;
constexpr int64_t kHot = 7;  // also its row number

const SnapshotRowFormat& Format() {
  static const SnapshotRowFormat format = {
      SnapshotRowLayout(1, RowType::kFloat32, 0), {}, 0};
  return format;
}

// Holds the row lock from before the mark until after the write.
void Write(RowStore* store, int64_t id, float value) {
  const uint32_t row = static_cast<uint32_t>(id);
  ASSERT_TRUE(store->Lock(row, id));
  store->BeforeWrite(row);
  CopyRowIn(&value, sizeof(value), store->values(row));
  store->Unlock(row);
}

void Merge(const char* record, std::map<int64_t, float>* values) {
  SnapshotRowHead head;
  std::memcpy(&head, record, sizeof(head));
  std::memcpy(&(*values)[head.id], record + Format().layout.values(),
              sizeof(float));
}

// Merges the rows that the running snapshot has not saved yet into `values`.
void Save(RowStore* store, std::map<int64_t, float>* values) {
  std::vector<char> records(kRows * Format().layout.bytes());
  int64_t next = 0;
  const int64_t count =
      store->SaveRows(kRows, Format(), kRows, &next, records.data());
  for (int64_t i = 0; i < count; ++i) {
    Merge(records.data() + i * Format().layout.bytes(), values);
  }
}

// Merges the images that writers saved, and ends the snapshot.
void End(RowStore* store, std::map<int64_t, float>* values) {
  RowImages::Chunk* const chunks = store->images()->Take(/*all=*/true);
  for (const RowImages::Chunk* chunk = chunks; chunk != nullptr;
       chunk = chunk->next) {
    const char* const records = reinterpret_cast<const char*>(chunk + 1);
    for (int64_t i = 0; i < chunk->count; ++i) {
      Merge(records + i * Format().layout.bytes(), values);
    }
  }
  RowImages::Release(chunks);
  store->EndImages(kRows);
  store->EndSnapshot(kRows, /*failed=*/false);
}

// The writer pauses in one snapshot and continues in the next.
TEST(RowStorePreemptedTest, AWriteIsInOneOfTheSnapshotsAroundIt) {
  // Whether the first snapshot saves the row before the writer arrives, and
  // whether another write marks it in between.
  for (const bool saved : {false, true}) {
    for (const bool hot : {false, true}) {
      ImageBudget budget(StepGates(), 1 << 20);
      Arena arena;
      RowStore store(1, &arena);
      ASSERT_TRUE(store.ReserveMarks().ok());
      ASSERT_TRUE(store.Reserve(kRows).ok());
      std::map<int64_t, float> values;
      for (int64_t id = 0; id < kRows; ++id) {
        const uint32_t row = store.Allocate();
        CopyRowIn(&(values[id] = 1.0f), sizeof(float), store.values(row));
        store.Publish(row, id, 0, 0);
      }
      store.StartMarking();
      Write(&store, kHot, 2.0f);
      store.BeginSnapshot(/*whole=*/false, Format(), 1 << 16, &budget);
      if (saved) Save(&store, &values);
      if (hot) Write(&store, kHot, 3.0f);

      held = false;
      hold = true;
      std::thread writer([&] { Write(&store, kHot, 4.0f); });
      while (!held) std::this_thread::yield();
      // A snapshot that does not need a locked row ends without its lock.
      End(&store, &values);
      store.BeginSnapshot(/*whole=*/false, Format(), 1 << 16, &budget);
      hold = false;
      writer.join();
      Save(&store, &values);
      End(&store, &values);

      store.BeginSnapshot(/*whole=*/false, Format(), 1 << 16, &budget);
      Save(&store, &values);
      End(&store, &values);
      EXPECT_EQ(values[kHot], 4.0f) << "saved " << saved << ", hot " << hot;
    }
  }
}

}  // namespace

void PauseAt(PausePoint) {
  if (!hold) return;
  held = true;
  while (hold) std::this_thread::yield();
}

}  // namespace lodestar
