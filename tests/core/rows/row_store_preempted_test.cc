// A writer outside of the step gate is preempted while it marks a row, and a
// reader before it confirms its copy.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "tf_ops/core/base/guards.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/rows/row_images.h"
#include "tf_ops/core/rows/row_store.h"

namespace lodestar {
namespace {

// While true, threads wait at `place`.
std::atomic<bool> hold{false};
std::atomic<PausePoint> place{PausePoint::kMarkWritten};
std::atomic<bool> held{false};

constexpr int64_t kRows = 100;
constexpr int64_t kHot = 7;  // also its row number

const SnapshotRowFormat& Format() {
  static const SnapshotRowFormat format = {
      SnapshotRowLayout(1, RowType::kFloat32, {}), {}, 0};
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

// A store of kRows rows, of which the running incremental snapshot has one.
class PreemptedWriter {
 public:
  // saved: whether the snapshot has already saved the row. hot: whether another
  // write has marked it since.
  PreemptedWriter(bool saved, bool hot) : store_(1, &arena_) {
    EXPECT_TRUE(store_.ReserveMarks().ok());
    EXPECT_TRUE(store_.Reserve(kRows).ok());
    for (int64_t id = 0; id < kRows; ++id) {
      const uint32_t row = store_.Allocate();
      CopyRowIn(&(values_[id] = 1.0f), sizeof(float), store_.values(row));
      store_.Publish(row, id, 0, 0);
    }
    store_.StartMarking();
    Write(&store_, kHot, 2.0f);
    Begin();
    if (saved) Save();
    if (hot) Write(&store_, kHot, 3.0f);
  }

  // Starts a write, which stops at `point`.
  void Pause(PausePoint point) {
    place = point;
    held = false;
    hold = true;
    writer_ = std::thread([&] { Write(&store_, kHot, 4.0f); });
    while (!held) std::this_thread::yield();
  }
  void Continue() {
    hold = false;
    writer_.join();
  }
  void Begin() {
    store_.BeginSnapshot(/*whole=*/false, Format(), 1 << 16, &budget_);
  }
  void Save() { lodestar::Save(&store_, &values_); }
  void End() { lodestar::End(&store_, &values_); }
  // Ends a snapshot whose content is lost.
  void Fail() {
    store_.EndImages(kRows);
    store_.EndSnapshot(kRows, /*failed=*/true);
  }
  // Returns the row according to all snapshots and one more.
  float Restored() {
    Begin();
    Save();
    End();
    return values_[kHot];
  }

 private:
  ImageBudget budget_{StepGates(), 1 << 20};
  Arena arena_;
  RowStore store_;
  std::map<int64_t, float> values_;
  std::thread writer_;
};

constexpr bool kBools[] = {false, true};

// The writer pauses in one snapshot and continues in the next.
TEST(RowStorePreemptedTest, AWriteIsInOneOfTheSnapshotsAroundIt) {
  for (const bool saved : kBools) {
    for (const bool hot : kBools) {
      PreemptedWriter writer(saved, hot);
      writer.Pause(PausePoint::kMarkWritten);
      // A snapshot that does not need a locked row ends without its lock.
      writer.End();
      writer.Begin();
      writer.Continue();
      writer.Save();
      writer.End();
      EXPECT_EQ(writer.Restored(), 4.0f)
          << "saved " << saved << ", hot " << hot;
    }
  }
}

// The writer pauses in one snapshot, misses all of the next, which fails, and
// continues in the third.
TEST(RowStorePreemptedTest, AWriteOutlastsASnapshotThatFails) {
  for (const PausePoint point :
       {PausePoint::kBeforeMarking, PausePoint::kMarkWritten}) {
    for (const bool saved : kBools) {
      for (const bool hot : kBools) {
        for (const bool first_fails : kBools) {
          PreemptedWriter writer(saved, hot);
          writer.Pause(point);
          first_fails ? writer.Fail() : writer.End();
          writer.Begin();
          writer.Fail();
          writer.Begin();
          writer.Continue();
          writer.Save();
          writer.End();
          EXPECT_EQ(writer.Restored(), 4.0f)
              << "point " << static_cast<int>(point) << ", saved " << saved
              << ", hot " << hot << ", first fails " << first_fails;
        }
      }
    }
  }
}

// The second snapshot does not have the row, so it is complete before the
// writer marks it.
TEST(RowStorePreemptedTest, AWriteOutlastsASnapshotWithoutTheRow) {
  for (const bool saved : kBools) {
    PreemptedWriter writer(saved, /*hot=*/false);
    writer.Pause(PausePoint::kBeforeMarking);
    writer.End();
    writer.Begin();
    writer.Save();
    writer.End();
    writer.Begin();
    writer.Continue();
    writer.Save();
    writer.End();
    EXPECT_EQ(writer.Restored(), 4.0f) << "saved " << saved;
  }
}

// A reader compiled for the row's width pauses before it confirms its copy.
TEST(RowStorePreemptedTest, AReadDiscardsACopyThatAWriteOvertook) {
  if (!RowStore::kPlainAccess) GTEST_SKIP() << "one reader for all widths";
  Arena arena;
  RowStore store(1, &arena);
  ASSERT_TRUE(store.Reserve(1).ok());
  float value = 1.0f;
  CopyRowIn(&value, sizeof(value), store.values(store.Allocate()));
  store.Publish(0, 0, 0, 0);
  place = PausePoint::kReadRow;
  held = false;
  hold = true;
  std::thread reader([&] {
    constexpr std::integral_constant<int64_t, sizeof(float)> kWidth;
    EXPECT_TRUE(store.Read(store.meta(0), 0, kWidth, &value));
  });
  while (!held) std::this_thread::yield();
  Write(&store, 0, 2.0f);
  hold = false;
  reader.join();
  EXPECT_EQ(value, 2.0f);
}

}  // namespace

void PauseAt(PausePoint point) {
  if (!hold || point != place) return;
  held = true;
  while (hold) std::this_thread::yield();
}

}  // namespace lodestar
