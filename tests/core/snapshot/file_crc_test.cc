#include "tf_ops/core/snapshot/file_crc.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/core/snapshot/snapshot_files.h"
#include "tf_ops/core/base/crc32c.h"

namespace lodestar {
namespace {

TEST(FileCrcTest, CoversAllBytes) {
  const std::string path = NewPath("file");
  for (const int64_t size : {0, 1, 9, 1 << 20, (1 << 20) + 1, 5000000}) {
    std::string bytes(size, 'a');
    for (int64_t i = 0; i < size; i += 7) bytes[i] = static_cast<char>(i);
    WriteAll(path, bytes);
    int64_t found = -1;
    uint32_t crc = 1;
    ASSERT_TRUE(FileCrc(path, &found, &crc).ok());
    EXPECT_EQ(found, size);
    EXPECT_EQ(crc, Crc32c(bytes.data(), size));
  }
}

TEST(FileCrcTest, RejectsMissingFilesAndFolders) {
  int64_t bytes = 0;
  uint32_t crc = 0;
  EXPECT_EQ(FileCrc(NewPath("none"), &bytes, &crc).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(FileCrc(testing::TempDir(), &bytes, &crc).code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lodestar
