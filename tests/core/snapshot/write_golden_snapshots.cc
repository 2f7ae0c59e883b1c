// Wrote tests/data/golden/snapshot and snapshot_2, and writes a folder like
// them; the labelled file is labelled.snapshot there:
//
//   bazel run //tests/core/snapshot:write_golden_snapshots -- $PWD/new_folder/

#include <cstdio>
#include <string>

#include "gtest/gtest.h"
#include "tests/core/snapshot/golden_snapshots.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "wanted: a folder, with a / behind it\n");
    return 2;
  }
  testing::InitGoogleTest();
  lodestar::WriteGoldens(argv[1]);
  lodestar::WriteLabelledGolden(std::string(argv[1]) + "labelled.snapshot");
  return testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}
