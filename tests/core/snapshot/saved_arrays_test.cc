#include "tf_ops/core/snapshot/saved_arrays.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/core/testing/errors.h"
#include "tests/core/testing/snapshot_folders.h"

namespace lodestar {
namespace {

std::string Npy(const std::string& header, const std::string& body,
                char version = 1) {
  std::string npy = "\x93NUMPY";
  npy += version;
  npy += '\0';
  npy += static_cast<char>(header.size());
  npy.append(version == 1 ? 1 : 3, '\0');
  return npy + header + body;
}

ManifestBlob Blob(const std::string& dtype, const std::vector<int64_t>& shape) {
  ManifestBlob blob;
  blob.name = "weight/x";
  blob.dtype = dtype;
  blob.shape = shape;
  return blob;
}

TEST(SavedArraysTest, ReadsEveryOrderAndDtype) {
  const std::string body = "abcdef";
  SavedArray array;
  ASSERT_TRUE(ParseArray(Npy("{'descr': '|i1', 'fortran_order': False, "
                             "'shape': (2, 3), }",
                             body),
                         Blob("int8", {2, 3}), "P", &array)
                  .ok());
  EXPECT_EQ(array.bytes, "abcdef");
  EXPECT_EQ(array.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(array.dtype, "int8");
  ASSERT_TRUE(ParseArray(Npy("{'descr': '|b1', 'fortran_order': True, "
                             "'shape': (2, 3), }",
                             body, 2),
                         Blob("bool", {2, 3}), "P", &array)
                  .ok());
  EXPECT_EQ(array.bytes, "acebdf");
  ASSERT_TRUE(
      ParseArray(
          Npy("{'descr': '<u2', 'fortran_order': False, 'shape': (), }", "ab"),
          Blob("bfloat16", {}), "P", &array)
          .ok());
  EXPECT_EQ(array.bytes, "ab");
  ASSERT_TRUE(
      ParseArray(
          Npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 0), }",
              ""),
          Blob("float64", {3, 0}), "P", &array)
          .ok());
  EXPECT_EQ(array.bytes, "");
}

TEST(SavedArraysTest, RefusesOtherContent) {
  const auto expect = [](const std::string& npy, const ManifestBlob& blob,
                         const std::string& message) {
    SavedArray array;
    ExpectError(ParseArray(npy, blob, "P", &array), StatusCode::kDataLoss,
                {message});
  };
  const std::string good =
      Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "abcd");
  expect(good, Blob("complex64", {1}), "unknown dtype");
  expect(good, Blob("int32", {1}), "its items are '<f4'");
  expect(good, Blob("float32", {2}), "has another shape than [2]");
  expect(good + "e", Blob("float32", {1}), "it has 5 bytes for the shape [1]");
  expect("NUMPY", Blob("float32", {1}), "no NPY data");
  expect(good.substr(0, 40), Blob("float32", {1}), "its header is truncated");
  expect(Npy("{'descr': '<f4', 'shape': (1,), }", "abcd"), Blob("float32", {1}),
         "its header has no order");
  const int64_t large = int64_t{1} << 40;
  expect(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': "
             "(1099511627776, 1099511627776), }",
             "abcd"),
         Blob("float32", {large, large}), "it has 4 bytes for the shape");
}

TEST(SavedArraysTest, ReadsTheArraysOfAVersion) {
  const FolderMaker maker;
  const SnapshotFolder folder(maker.path());
  maker.Add(MadeVersion(1).Weights({{"a", {1, 2}}, {"b", {3}}}));
  std::shared_ptr<const Manifest> manifest;
  ASSERT_TRUE(folder.ReadManifest(1, &manifest).ok());
  std::map<std::string, SavedArray> arrays;
  ASSERT_TRUE(ReadArrays(folder, *manifest, "weight/", &arrays).ok());
  ASSERT_EQ(arrays.size(), 2);
  EXPECT_EQ(arrays["a"].bytes.size(), 8);
  EXPECT_EQ(arrays["b"].bytes, std::string("\0\0\x40\x40", 4));
  arrays.clear();
  ASSERT_TRUE(ReadArrays(folder, *manifest, "other/", &arrays).ok());
  EXPECT_TRUE(arrays.empty());
  Manifest changed = *manifest;
  changed.blobs[1].offset += 10;
  EXPECT_EQ(ReadArrays(folder, changed, "weight/", &arrays).code(),
            StatusCode::kDataLoss);
  changed = *manifest;
  changed.files[0].crc32c += 1;
  EXPECT_EQ(ReadArrays(folder, changed, "weight/", &arrays).code(),
            StatusCode::kDataLoss);
  FlipByte(maker.FilePath(1, "blobs"));
  EXPECT_EQ(ReadArrays(folder, *manifest, "weight/", &arrays).code(),
            StatusCode::kDataLoss);
}

}  // namespace
}  // namespace lodestar
