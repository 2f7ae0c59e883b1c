// Writes the files of tests/data/golden/snapshot into a new folder:
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
  return testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}
