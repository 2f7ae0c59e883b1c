// The contents of the files in tests/data/golden/snapshot.

#ifndef LODESTAR_TESTS_CORE_SNAPSHOT_GOLDEN_SNAPSHOTS_H_
#define LODESTAR_TESTS_CORE_SNAPSHOT_GOLDEN_SNAPSHOTS_H_

#include <string>

#include "tests/core/snapshot/snapshot_files.h"
#include "tf_ops/core/snapshot/snapshot_table.h"

namespace lodestar {

// Relative to the root of the checkout, where Bazel runs tests.
constexpr char kGoldenFolder[] = "tests/data/golden/snapshot/";
// The label of table `t` of version 3 and mark 00112233...ff.
inline std::string LabelOfGolden() {
  std::string label = BytesOf(uint64_t{3});
  for (int i = 0; i < 16; ++i) label += static_cast<char>(17 * i);
  return label + BytesOf(uint32_t{1}) + std::string("t\0\0\0", 4);
}

// The smallest file with a row; docs/internals/formats.md explains its bytes.
inline SnapshotTable SmallGolden() {
  SnapshotTable table;
  table.dim = 1;
  table.step = 7;
  table.seed = 1;
  return table;
}

// Rows of 16 bits, with optimizer slots and every kind of block.
inline SnapshotTable WholeGolden() {
  SnapshotTable table;
  table.dim = 3;
  table.type = RowType::kFloat16;
  table.optimizer = {"adam", {"m", "v"}, {0.0f, 0.25f}};
  table.step = 100;
  table.seed = -5;
  table.salt = int64_t{1} << 40;
  table.own_step = true;
  table.shared_rows = 2;
  return table;
}

inline SnapshotTable DeltaGolden() {
  SnapshotTable table = WholeGolden();
  table.whole = false;
  table.step = 110;
  return table;
}

// Writes the files into a folder.
inline void WriteGoldens(const std::string& folder) {
  const std::string label = LabelOfGolden();
  const SnapshotTable small = SmallGolden();
  FileMaker(folder + "small.snapshot", small, label)
      .AddRows({RowRecord(small, 42, 1.5f, 6, 2)})
      .Finish();
  const SnapshotTable whole = WholeGolden();
  FileMaker(folder + "whole.snapshot", whole, label)
      .AddRows({RowRecord(whole, 0, -1.0f, 99, 1),
                RowRecord(whole, INT64_MIN, 0.5f, -1, 0)})
      .AddRows({RowRecord(whole, INT64_MAX, 2.0f, 100, 0xffffffffu)})
      .AddRows({RowRecord(whole, 0, 8.0f), RowRecord(whole, 1, 9.0f)},
               BlockKind::kSharedRows)
      .Add(BlockKind::kPending, 1, BytesOf(SnapshotPending{-7, 98, 3, 0}))
      .Add(BlockKind::kSketch, 5, std::string("\x00\x01\x02\x03\xff", 5))
      .Finish();
  const SnapshotTable delta = DeltaGolden();
  FileMaker(folder + "delta.snapshot", delta, label)
      .AddIds(BlockKind::kRemoved, {INT64_MIN, 5})
      .AddRows({RowRecord(delta, 0, -2.0f, 109, 2),
                RowRecord(delta, 5, 4.0f, 110, 1)})
      .AddRows({RowRecord(delta, 1, 10.0f)}, BlockKind::kSharedRows)
      .Add(BlockKind::kSketch, 5, std::string("\x01\x01\x02\x03\xff", 5))
      .Finish();
  FileMaker(folder + "blobs.snapshot", label)
      .Add(BlockKind::kBlob, 5, "dense")
      .Add(BlockKind::kBlob, 8, "weights!")
      .Finish();
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_SNAPSHOT_GOLDEN_SNAPSHOTS_H_
