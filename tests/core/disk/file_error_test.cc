#include "tf_ops/core/disk/file_error.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/core/testing/errors.h"

namespace lodestar {
namespace {

TEST(FileErrorTest, NamesTheFileTheOperationAndTheCause) {
  ExpectError(FileError("/a/b", "open", EACCES), StatusCode::kPermissionDenied,
              {"cannot open '/a/b': Permission denied"});
  ExpectError(FileError("/a/b", "write to", ENOSPC),
              StatusCode::kResourceExhausted,
              {"cannot write to '/a/b': No space left on device"});
}

TEST(FileErrorTest, HasTheCodeOfTheCause) {
  EXPECT_EQ(FileError("", "open", ENOENT).code(), StatusCode::kNotFound);
  EXPECT_EQ(FileError("", "open", EEXIST).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(FileError("", "open", EISDIR).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FileError("", "open", EMFILE).code(),
            StatusCode::kResourceExhausted);
  // Not DataLoss: the file may be intact.
  EXPECT_EQ(FileError("", "read", EIO).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace lodestar
