#include "tf_ops/core/snapshot/snapshot_folder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/testing/errors.h"
#include "tests/core/testing/snapshot_folders.h"

namespace lodestar {
namespace {

std::vector<int64_t> VersionsOf(const SnapshotFolder& folder) {
  std::vector<int64_t> versions = {-1};
  EXPECT_TRUE(folder.ListVersions(&versions).ok());
  return versions;
}

void ExpectDamage(const Status& status, const std::string& message) {
  ExpectError(status, StatusCode::kDataLoss, {message});
}

TEST(SnapshotFolderTest, VersionsHaveAManifest) {
  const FolderMaker maker;
  const SnapshotFolder folder(maker.path());
  EXPECT_TRUE(VersionsOf(folder).empty());
  maker.Add(MadeVersion(2));
  maker.Add(MadeVersion(123));
  std::filesystem::create_directories(maker.VersionPath(3));
  std::ofstream(maker.FilePath(3, "MANIFEST.partial")) << "x";
  for (const char* name : {"0000002", "000000002", "0000000x", "00000000"}) {
    std::filesystem::create_directories(StrCat(maker.path(), "/", name));
    std::ofstream(StrCat(maker.path(), "/", name, "/MANIFEST")) << "x";
  }
  EXPECT_EQ(VersionsOf(folder), (std::vector<int64_t>{2, 123}));
  EXPECT_EQ(folder.FilePath(123, "f"), maker.FilePath(123, "f"));
}

TEST(SnapshotFolderTest, AFolderThatCannotBeReadIsAnError) {
  const FolderMaker maker;
  std::ofstream(maker.path()) << "a file";
  std::vector<int64_t> versions;
  EXPECT_FALSE(SnapshotFolder(maker.path()).ListVersions(&versions).ok());
}

TEST(SnapshotFolderTest, AChainBeginsWithAFullVersion) {
  const FolderMaker maker;
  const SnapshotFolder folder(maker.path());
  maker.Add(MadeVersion(1).Rows({{1, 1}}));
  maker.Add(MadeVersion(2).Parent(1).Rows({{2, 2}}));
  maker.Add(MadeVersion(3).Parent(2).Rows({{3, 3}}));
  ManifestChain chain;
  ASSERT_TRUE(folder.ReadChain(3, &chain).ok());
  ASSERT_EQ(chain.size(), 3);
  EXPECT_EQ(chain[0]->id.version, 1);
  EXPECT_EQ(chain[2]->id.version, 3);
  std::vector<PartFiles> parts;
  ASSERT_TRUE(folder.TableFiles(chain, "t", &parts).ok());
  ASSERT_EQ(parts.size(), 1);
  ASSERT_EQ(parts[0].files.size(), 3);
  EXPECT_EQ(parts[0].files[0].path, maker.FilePath(1, "table-00000"));
  // A whole table in a delta needs no earlier file.
  maker.Add(MadeVersion(4).Parent(3).Rows({{3, 3}}).Whole());
  ASSERT_TRUE(folder.ReadChain(4, &chain).ok());
  ASSERT_TRUE(folder.TableFiles(chain, "t", &parts).ok());
  EXPECT_EQ(parts[0].files.size(), 1);
}

TEST(SnapshotFolderTest, RefusesAChainThatDoesNotFit) {
  const FolderMaker maker;
  const SnapshotFolder folder(maker.path());
  ManifestChain chain;
  EXPECT_EQ(folder.ReadChain(1, &chain).code(), StatusCode::kNotFound);
  maker.Add(MadeVersion(2).Parent(1));
  ExpectDamage(folder.ReadChain(2, &chain),
               "needs version 1, which is missing");
  maker.Add(MadeVersion(1).History('c'));
  ExpectDamage(folder.ReadChain(2, &chain), "have different histories");
  maker.Add(MadeVersion(1).Dim(3));
  ExpectDamage(folder.ReadChain(2, &chain),
               "the changes of the table 't' have dim 2 and dtype float32 in 1 "
               "part, but in version 1 it has dim 3");
  std::filesystem::rename(maker.VersionPath(1), maker.VersionPath(5));
  ExpectDamage(folder.ReadChain(5, &chain), "`version` must be 5");
}

TEST(SnapshotFolderTest, OnlyNewManifestsAreRead) {
  const FolderMaker maker;
  const SnapshotFolder folder(maker.path());
  maker.Add(MadeVersion(1));
  maker.Add(MadeVersion(2).Parent(1));
  ManifestChain before;
  ASSERT_TRUE(folder.ReadChain(2, &before).ok());
  maker.Add(MadeVersion(3).Parent(2));
  ManifestChain chain;
  ASSERT_TRUE(folder.ReadChain(3, &chain).ok());
  EXPECT_EQ(chain[0], before[0]);
  EXPECT_EQ(chain[1], before[1]);
  // A replaced one is new.
  maker.Add(MadeVersion(2).Parent(1).History('b'));
  maker.Add(MadeVersion(3).Parent(2, 'b'));
  ASSERT_TRUE(folder.ReadChain(3, &chain).ok());
  EXPECT_EQ(chain[0], before[0]);
  EXPECT_NE(chain[1], before[1]);
  // Manifests outside of the last chain are forgotten.
  maker.Add(MadeVersion(4));
  ASSERT_TRUE(folder.ReadChain(4, &chain).ok());
  ASSERT_TRUE(folder.ReadChain(1, &chain).ok());
  EXPECT_NE(chain[0], before[0]);
}

TEST(SnapshotFolderTest, RefusesDamagedAndSwappedFiles) {
  const FolderMaker maker;
  const SnapshotFolder folder(maker.path());
  maker.Add(MadeVersion(1).Rows({{1, 1}}).Weights({{"w", {1}}}));
  maker.Add(MadeVersion(2).Rows({{1, 2}}).Weights({{"w", {2}}}).History('d'));
  std::shared_ptr<const Manifest> manifest;
  ASSERT_TRUE(folder.ReadManifest(1, &manifest).ok());
  ListedFile file;
  ASSERT_TRUE(folder.CheckFile(*manifest, manifest->tables[0], &file).ok());
  EXPECT_EQ(file.path, maker.FilePath(1, "table-00000"));
  ASSERT_TRUE(folder.CheckFile(*manifest, manifest->files[0], &file).ok());
  for (const char* name : {"table-00000", "blobs"}) {
    std::filesystem::copy(maker.FilePath(2, name), maker.FilePath(1, name),
                          std::filesystem::copy_options::overwrite_existing);
  }
  ExpectDamage(folder.CheckFile(*manifest, manifest->tables[0], &file),
               "is another file");
  ExpectDamage(folder.CheckFile(*manifest, manifest->files[0], &file),
               "is another file");
  std::filesystem::resize_file(maker.FilePath(1, "blobs"), 9);
  ExpectDamage(folder.CheckFile(*manifest, manifest->files[0], &file),
               "bytes, got 9");
  std::filesystem::remove(maker.FilePath(1, "table-00000"));
  ExpectDamage(folder.CheckFile(*manifest, manifest->tables[0], &file),
               "is missing");
}

TEST(SnapshotFolderTest, ReadsAFileWithItsChecksum) {
  const FolderMaker maker;
  const SnapshotFolder folder(maker.path());
  maker.Add(MadeVersion(1).Schema("label: [click]"));
  std::shared_ptr<const Manifest> manifest;
  ASSERT_TRUE(folder.ReadManifest(1, &manifest).ok());
  std::string content;
  ASSERT_TRUE(
      folder.ReadFile(*manifest, *manifest->FindFile("schema.yaml"), &content)
          .ok());
  EXPECT_EQ(content, "label: [click]");
  FlipByte(maker.FilePath(1, "schema.yaml"));
  ExpectDamage(
      folder.ReadFile(*manifest, *manifest->FindFile("schema.yaml"), &content),
      "do not have the size and checksum");
  std::filesystem::remove(maker.FilePath(1, "schema.yaml"));
  ExpectDamage(
      folder.ReadFile(*manifest, *manifest->FindFile("schema.yaml"), &content),
      "is missing");
}

TEST(SnapshotFolderTest, ManifestsMustBeRegularFiles) {
  const FolderMaker maker;
  maker.Add(MadeVersion(1));
  const std::string path = maker.FilePath(1, "MANIFEST");
  std::filesystem::rename(path, maker.FilePath(1, "elsewhere"));
  std::filesystem::create_symlink("elsewhere", path);
  std::shared_ptr<const Manifest> manifest;
  ExpectDamage(SnapshotFolder(maker.path()).ReadManifest(1, &manifest),
               "is not a regular file");
}

TEST(SnapshotFolderTest, AStampChangesWithEachFile) {
  const FolderMaker maker;
  const SnapshotFolder folder(maker.path());
  const std::string missing = folder.StampOf(1);
  maker.Add(MadeVersion(1).Rows({{1, 1}}));
  const std::string before = folder.StampOf(1);
  EXPECT_NE(before, missing);
  EXPECT_EQ(folder.StampOf(1), before);
  FlipByte(maker.FilePath(1, "table-00000"));
  EXPECT_NE(folder.StampOf(1), before);
  std::ofstream(maker.FilePath(1, "more")) << "x";
  EXPECT_NE(folder.StampOf(1), before);
}

}  // namespace
}  // namespace lodestar
