// Tables that are saved in parts, and tables that are parts.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/snapshot/snapshot_tables.h"
#include "tf_ops/core/snapshot/restored_records.h"
#include "tf_ops/core/snapshot/snapshot_restore.h"

namespace lodestar {
namespace {

std::vector<int64_t> Ids(int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(i % 2 == 0 ? i : -i * (int64_t{1} << 40));
  }
  return ids;
}

std::vector<int64_t> Owned(const std::vector<int64_t>& ids,
                           const TablePart& part) {
  std::vector<int64_t> owned;
  for (int64_t id : ids) {
    if (part.Has(id)) owned.push_back(id);
  }
  return owned;
}

Status RestorePart(const std::vector<SavedPart>& saved, const TablePart& part,
                   const EmbeddingStore& like,
                   std::unique_ptr<EmbeddingStore>* out) {
  return RestoreTable(saved, part, like, {}, nullptr, out);
}

std::unique_ptr<EmbeddingStore> MustRestorePart(
    const std::vector<SavedPart>& saved, const TablePart& part,
    const EmbeddingStore& like) {
  std::unique_ptr<EmbeddingStore> store;
  const Status status = RestorePart(saved, part, like, &store);
  EXPECT_TRUE(status.ok()) << status.message();
  return store;
}

void ExpectRefused(const std::vector<SavedPart>& saved, const TablePart& part,
                   const EmbeddingStore& like, StatusCode code,
                   const std::string& message) {
  std::unique_ptr<EmbeddingStore> store;
  ExpectError(RestorePart(saved, part, like, &store), code, {message});
  EXPECT_EQ(store, nullptr);
}

// A new file for each call.
std::string NewWhole(const std::vector<int64_t>& ids,
                     const SnapshotTable& table = Table(true)) {
  static int count = 0;
  const std::string path = NewPath(StrCat("whole", ++count));
  std::vector<std::string> records;
  for (int64_t id : ids) {
    records.push_back(RowRecord(table, id, static_cast<float>(id)));
  }
  FileMaker(path, table).AddRows(records).Finish();
  return path;
}

// 300 rows, of which some are removed and some written, and new ones.
struct Written {
  std::vector<SavedPart> parts;
  std::vector<int64_t> ids;  // resident at the end
};

Written WriteTable(uint32_t count) {
  const std::vector<int64_t> first = Ids(300);
  const std::vector<int64_t> changed = Ids(400);
  Written written;
  written.ids = {changed.begin() + 50, changed.end()};
  for (uint32_t p = 0; p < count; ++p) {
    const TablePart part = {p, count};
    const std::string whole = NewWhole(Owned(first, part));
    const std::string delta = NewPath(StrCat("delta", p, "of", count));
    const SnapshotTable table = Table(false);
    std::vector<std::string> records;
    for (int64_t id : Owned({changed.begin() + 200, changed.end()}, part)) {
      records.push_back(RowRecord(table, id, static_cast<float>(id % 1000)));
    }
    FileMaker(delta, table)
        .AddIds(BlockKind::kRemoved,
                Owned({first.begin(), first.begin() + 50}, part))
        .AddRows(records)
        .Finish();
    written.parts.push_back({part, {whole, delta}});
  }
  return written;
}

TEST(TablePartTest, PartsThatDoNotMeetAreDisjoint) {
  const std::vector<int64_t> ids = Ids(1000);
  for (uint32_t n = 1; n <= 6; ++n) {
    for (uint32_t m = 1; m <= 6; ++m) {
      for (uint32_t a = 0; a < n; ++a) {
        uint32_t met = 0;
        for (uint32_t b = 0; b < m; ++b) {
          const TablePart one = {a, n};
          const TablePart other = {b, m};
          EXPECT_EQ(one.Meets(other), other.Meets(one));
          const double both = Owned(Owned(ids, one), other).size();
          EXPECT_EQ(one.Meets(other), both > 0);
          EXPECT_EQ(one.Meets(other), one.ShareIn(other) > 1e-9);
          EXPECT_NEAR(one.ShareIn(other), both / Owned(ids, one).size(), 0.1);
          met += one.Meets(other);
        }
        // Of equal numbers of parts, each part meets only itself.
        if (n == m) {
          EXPECT_EQ(met, 1);
        }
      }
    }
  }
}

TEST(SnapshotRestorePartsTest, RestoresAnyNumberOfPartsFromAnyOther) {
  const auto like = MakeStore();
  const Written whole = WriteTable(1);
  const auto wanted = MustRestorePart(whole.parts, {}, *like);
  ASSERT_NE(wanted, nullptr);
  const EmbeddingRows all = Export(*wanted);
  ASSERT_EQ(all.ids.size(), whole.ids.size());
  for (uint32_t n = 1; n <= 4; ++n) {
    const Written written = WriteTable(n);
    for (uint32_t m = 1; m <= 4; ++m) {
      SCOPED_TRACE(StrCat(n, " parts become ", m));
      std::vector<std::pair<int64_t, std::vector<float>>> found;
      for (uint32_t p = 0; p < m; ++p) {
        const TablePart part = {p, m};
        const auto store = MustRestorePart(written.parts, part, *like);
        ASSERT_NE(store, nullptr);
        EXPECT_EQ(store->step(), 11);
        const EmbeddingRows rows = Export(*store);
        EXPECT_EQ(rows.ids, Owned(all.ids, part));
        EXPECT_EQ(rows.optimizer.name, "adagrad");
        const std::vector<float> values = Floats(rows.values);
        const std::vector<float> slots = Floats(rows.slots);
        for (size_t i = 0; i < rows.ids.size(); ++i) {
          const auto row = [&](const std::vector<float>& of) {
            return std::vector<float>(of.begin() + i * kDim,
                                      of.begin() + (i + 1) * kDim);
          };
          std::vector<float> numbers = row(values);
          for (float x : row(slots)) numbers.push_back(x);
          found.push_back({rows.ids[i], numbers});
        }
      }
      std::sort(found.begin(), found.end());
      ASSERT_EQ(found.size(), all.ids.size());
      const std::vector<float> values = Floats(all.values);
      const std::vector<float> slots = Floats(all.slots);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].first, all.ids[i]);
        for (int c = 0; c < kDim; ++c) {
          EXPECT_EQ(found[i].second[c], values[i * kDim + c]);
          EXPECT_EQ(found[i].second[kDim + c], slots[i * kDim + c]);
        }
      }
    }
  }
}

TEST(SnapshotRestorePartsTest, DoesNotReadFilesOfOtherIds) {
  const Written written = WriteTable(2);
  const std::vector<SavedPart> half = {
      written.parts[0], {{1, 2}, {std::string("/there/is/no/such/file")}}};
  const auto like = MakeStore();
  EXPECT_NE(MustRestorePart(half, {0, 2}, *like), nullptr);
  EXPECT_NE(MustRestorePart(half, {1, 4}, *like), nullptr);
  ExpectRefused(half, {1, 2}, *like, StatusCode::kNotFound, "/there/is/no");
  ExpectRefused(half, {1, 3}, *like, StatusCode::kNotFound, "/there/is/no");
  ExpectRefused(half, {}, *like, StatusCode::kNotFound, "/there/is/no");
  ExpectRefused({written.parts[0]}, {1, 2}, *like, StatusCode::kInvalidArgument,
                "there are no snapshot files of the table");
}

TEST(SnapshotRestorePartsTest, RejectsIdsOfAnotherPart) {
  const std::vector<int64_t> own = Owned(Ids(20), {0, 2});
  const int64_t foreign = Owned(Ids(20), {1, 2}).front();
  const std::string path = NewWhole({own[0], foreign});
  const std::vector<SavedPart> saved = {{{0, 2}, {path}},
                                        {{1, 2}, {NewWhole({})}}};
  const std::string message =
      StrCat("id ", foreign, " belongs to part 1 of 2, expected ids of part 0");
  const auto like = MakeStore();
  ExpectRefused(saved, {}, *like, StatusCode::kDataLoss, message);
  ExpectRefused(saved, {0, 2}, *like, StatusCode::kDataLoss,
                StrCat("'", path, "', byte "));
  // Swapped files are detected.
  const Written written = WriteTable(2);
  const std::vector<SavedPart> exchanged = {{{0, 2}, written.parts[1].files},
                                            {{1, 2}, written.parts[0].files}};
  ExpectRefused(exchanged, {0, 2}, *like, StatusCode::kDataLoss,
                "belongs to part 1 of 2, expected ids of part 0");
}

TEST(SnapshotRestorePartsTest, RejectsPartsOfDifferentTables) {
  const auto like = MakeStore();
  const auto refuse = [&](const SnapshotTable& other,
                          const std::string& message) {
    const std::vector<SavedPart> saved = {{{0, 2}, {NewWhole({})}},
                                          {{1, 2}, {NewWhole({}, other)}}};
    ExpectRefused(saved, {}, *like, StatusCode::kInvalidArgument, message);
  };
  SnapshotTable table = Table(true);
  table.seed = 99;
  refuse(table, "different tables: the seed is 11 in the first and 99 in");
  table = Table(true);
  table.salt = 99;
  refuse(table, "different tables: the salt is 12 in the first and 99 in");
  table = Table(true, RowType::kFloat32, Adam());
  refuse(table, "different tables: the optimizer is 'adagrad' with slots");
  table = Table(true);
  table.shared_rows = 3;
  refuse(table, "different tables: the number of shared rows is 0 in");
  const std::vector<SavedPart> shared = {{{0, 2}, {NewWhole({}, table)}},
                                         {{1, 2}, {NewWhole({}, table)}}};
  ExpectRefused(shared, {}, *like, StatusCode::kInvalidArgument,
                "has 3 shared rows, but is one of several parts");
}

TEST(SnapshotRestorePartsTest, APartWithoutAnOptimizerGetsItFromOthers) {
  const int64_t early = Owned(Ids(20), {1, 2}).front();
  const int64_t trained = Owned(Ids(20), {0, 2}).front();
  SnapshotTable none = Table(true);
  none.optimizer = {};
  none.step = 13;
  std::vector<SavedPart> saved = {{{0, 2}, {NewWhole({trained})}},
                                  {{1, 2}, {NewWhole({early}, none)}}};
  for (int order = 0; order < 2; ++order) {
    const auto store = MustRestorePart(saved, {}, *MakeStore());
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->step(), 13);
    const EmbeddingRows rows = Export(*store);
    EXPECT_EQ(rows.optimizer.name, "adagrad");
    std::vector<float> slots(kDim, 0.5f);  // the initial value of Adagrad
    slots.insert(early < trained ? slots.end() : slots.begin(), kDim,
                 static_cast<float>(trained) + 1);
    EXPECT_EQ(Floats(rows.slots), slots);
    std::swap(saved[0], saved[1]);
  }
}

TablePolicies Counting(AdmissionPolicy::Kind kind) {
  TablePolicies policies;
  policies.admission.kind = kind;
  policies.admission.min_count = 3;
  policies.admission.num_counters = 4;
  policies.admission.num_hashes = 2;
  return policies;
}

TEST(SnapshotRestorePartsTest, PendingIdsBelongToTheirPart) {
  const std::vector<int64_t> ids = Ids(40);
  std::vector<SavedPart> saved;
  for (uint32_t p = 0; p < 3; ++p) {
    const std::string path = NewPath(StrCat("pending", p));
    const std::vector<int64_t> own = Owned(ids, {p, 3});
    std::string records;
    for (int64_t id : own) records += PendingRecord(id, 2, 7);
    FileMaker(path, Table(true))
        .Add(BlockKind::kPending, own.size(), records)
        .Finish();
    saved.push_back({{p, 3}, {path}});
  }
  const auto like = MakeStore(Counting(AdmissionPolicy::Kind::kMinCount));
  std::vector<int64_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t count = 1; count <= 3; ++count) {
    for (uint32_t p = 0; p < count; ++p) {
      const auto store = MustRestorePart(saved, {p, count}, *like);
      ASSERT_NE(store, nullptr);
      const EmbeddingRows rows = Export(*store);
      EXPECT_EQ(rows.pending_ids, Owned(sorted, {p, count}));
      for (int64_t occurrences : rows.pending_sightings)
        EXPECT_EQ(occurrences, 2);
    }
  }
}

std::string SketchFile(const std::string& counters, int64_t step,
                       int64_t waiting) {
  SnapshotTable table = Table(true);
  table.step = step;
  const std::string path = NewPath(StrCat("sketch", waiting, counters.size()));
  FileMaker(path, table)
      .Add(BlockKind::kPending, 1, PendingRecord(waiting, 1, step))
      .Add(BlockKind::kSketch, counters.size(), counters)
      .Finish();
  return path;
}

TEST(SnapshotRestorePartsTest, SketchesAreMergedByMaximum) {
  const int64_t first = Owned(Ids(20), {0, 2}).front();
  const int64_t second = Owned(Ids(20), {1, 2}).front();
  const std::string one = SketchFile({0, 3, 1, 0}, 10, first);
  const std::string two = SketchFile({2, 1, 1, 0}, 12, second);
  const std::vector<SavedPart> saved = {{{0, 2}, {one}}, {{1, 2}, {two}}};
  const auto like = MakeStore(Counting(AdmissionPolicy::Kind::kCountingBloom));
  const auto joined = MustRestorePart(saved, {}, *like);
  ASSERT_NE(joined, nullptr);
  EmbeddingRows rows = Export(*joined);
  EXPECT_EQ(rows.sketch, (std::vector<uint8_t>{2, 3, 1, 0}));
  // The sketch has counted ids of earlier steps.
  EXPECT_EQ(rows.pending_ids, (std::vector<int64_t>{second}));
  const auto alone = MustRestorePart(saved, {0, 2}, *like);
  ASSERT_NE(alone, nullptr);
  rows = Export(*alone);
  EXPECT_EQ(rows.sketch, (std::vector<uint8_t>{0, 3, 1, 0}));
  EXPECT_EQ(rows.pending_ids, (std::vector<int64_t>{first}));
  const std::string large = SketchFile({2, 1, 1, 0, 0}, 10, second);
  ExpectRefused({{{0, 2}, {one}}, {{1, 2}, {large}}}, {}, *like,
                StatusCode::kInvalidArgument,
                StrCat("'", large,
                       "' has a sketch of 5 counters, but earlier parts "
                       "have 4"));
}

TEST(SnapshotRestorePartsTest, RowsAboveTheCapOfAPartAreEvicted) {
  const Written written = WriteTable(3);
  TablePolicies policies;
  policies.eviction.max_rows = 100;
  const auto like = MakeStore(policies);
  for (uint32_t p = 0; p < 2; ++p) {
    const auto store = MustRestorePart(written.parts, {p, 2}, *like);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->size(), 100);
    EXPECT_GT(store->Stats().count(Event::kEvicted), 0);
  }
  ExpectRefused(written.parts, {}, *like, StatusCode::kFailedPrecondition,
                "makes 350 rows, but `max_rows` of the table is 100");
}

TEST(SnapshotRestorePartsTest, IncrementalFilesOfPartsAreAppliedTogether) {
  const Written written = WriteTable(3);
  std::vector<SavedPart> wholes;
  std::vector<std::string> deltas;
  for (const SavedPart& part : written.parts) {
    wholes.push_back({part.part, {part.files[0]}});
    deltas.push_back(part.files[1].path);
  }
  const auto live = MustRestorePart(wholes, {}, *MakeStore());
  ASSERT_NE(live, nullptr);
  const EmbeddingRows before = Export(*live);
  // One file, with its ids, occurs twice.
  ExpectError(ApplyFiles({deltas[0], deltas[1], deltas[0]}, live.get()),
              StatusCode::kDataLoss, {"occurs a second time"});
  SnapshotTable other = Table(false);
  other.shared_rows = 2;
  const std::string foreign = NewPath("foreign");
  FileMaker(foreign, other).Finish();
  ExpectError(ApplyFiles({deltas[0], foreign}, live.get()),
              StatusCode::kInvalidArgument, {"different tables"});
  ExpectEqual(Export(*live), before);
  SnapshotDelta::Applied applied;
  ASSERT_TRUE(ApplyFiles(deltas, live.get(), &applied).ok());
  EXPECT_EQ(applied.written, 200);
  EXPECT_EQ(applied.removed, 50);
  ExpectEqual(Export(*live),
              Export(*MustRestorePart(written.parts, {}, *MakeStore())));
}

}  // namespace
}  // namespace lodestar
