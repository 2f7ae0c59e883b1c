// Wrote tests/data/golden/snapshot, and writes a folder like it:
//
//   bazel run //tests/core:write_golden_snapshots -- $PWD/new_folder/

#include <cstdio>
#include <string>

#include "gtest/gtest.h"
#include "tests/core/golden_snapshots.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "wanted: a folder, with a / behind it\n");
    return 2;
  }
  testing::InitGoogleTest();
  lodestar::WriteGoldens(argv[1]);
  return testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}
