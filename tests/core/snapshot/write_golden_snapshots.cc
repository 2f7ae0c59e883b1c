// Writes the files of tests/data/golden/snapshot and snapshot_2 into a new
// folder; the labelled file is named labelled.snapshot:
//
//   bazel run //tests/core/snapshot:write_golden_snapshots -- $PWD/new_folder/

#include <cstdio>
#include <string>

#include "gtest/gtest.h"
#include "tests/core/snapshot/golden_snapshots.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "Usage: write_golden_snapshots FOLDER/\n");
    return 2;
  }
  testing::InitGoogleTest();
  lodestar::WriteGoldens(argv[1]);
  lodestar::WriteLabelledGolden(std::string(argv[1]) + "labelled.snapshot");
  return testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}
