// Contracts: tf_ops/ops/snapshot/snapshot_ops.cc.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/snapshot/manifest.h"
#include "tf_ops/core/snapshot/saved_arrays.h"
#include "tf_ops/core/snapshot/snapshot_compact.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/snapshot/snapshot_inputs.h"

namespace lodestar {
namespace {

// Outputs scalars at 0, 1, ...
absl::Status OutputNumbers(OpKernelContext* ctx,
                           const std::vector<int64_t>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    LODESTAR_TRY(OutputScalar(ctx, static_cast<int>(i), numbers[i]));
  }
  return absl::OkStatus();
}

absl::Status RunSnapshotVerifyFile(OpKernelContext* ctx) {
  std::string path;
  LODESTAR_TRY(ReadString(ctx->input(0), "path", &path));
  const ParallelFor parallel = OwnThreads(ctx);
  SnapshotFileSummary summary;
  LODESTAR_TRY(VerifySnapshotFile(path, &parallel, &summary));
  return OutputNumbers(ctx, {summary.bytes, summary.crc, summary.totals.rows,
                             summary.totals.removed});
}

absl::Status RunSnapshotReadBlock(OpKernelContext* ctx) {
  std::string path;
  LODESTAR_TRY(ReadString(ctx->input(0), "path", &path));
  LODESTAR_TRY(CheckRank(ctx->input(1), "offset", 0));
  std::unique_ptr<SnapshotFileReader> file;
  LODESTAR_TRY(SnapshotFileReader::Open(path, &file));
  SnapshotFileReader::Block block;
  LODESTAR_TRY(file->ReadBlock(ctx->input(1).scalar<int64_t>()(), &block));
  LODESTAR_TRY(OutputScalar(ctx, 0, static_cast<int64_t>(block.kind)));
  LODESTAR_TRY(OutputScalar(ctx, 1, int64_t{block.count}));
  LODESTAR_TRY(OutputScalar(
      ctx, 2,
      tstring(std::string_view(block.payload.data(), block.payload.size()))));
  return OutputScalar(ctx, 3, int64_t{block.next});
}

absl::Status RunSnapshotMerge(OpKernelContext* ctx) {
  std::vector<FileInput> inputs;
  std::string out;
  LODESTAR_TRY(ReadFiles(ctx->input(0), ctx->input(1), &inputs));
  LODESTAR_TRY(ReadString(ctx->input(2), "out", &out));
  LODESTAR_TRY(CheckRank(ctx->input(3), "label", 0));
  std::vector<ListedFile> files;
  for (const FileInput& input : inputs) files.push_back(input.file);
  SnapshotFileSummary compacted;
  LODESTAR_TRY(
      CompactChain(files, out, BytesOf(ctx->input(3)).front(), &compacted));
  return OutputNumbers(ctx,
                       {compacted.totals.rows, compacted.bytes, compacted.crc});
}

absl::Status RunSnapshotWriteBlobs(OpKernelContext* ctx) {
  // Block size, which limits how much of a blob one damaged byte affects.
  constexpr int64_t kMost = int64_t{16} << 20;
  std::string path;
  LODESTAR_TRY(ReadString(ctx->input(0), "path", &path));
  LODESTAR_TRY(CheckRank(ctx->input(1), "blobs", 1));
  LODESTAR_TRY(CheckRank(ctx->input(2), "label", 0));
  std::unique_ptr<SnapshotFileWriter> file;
  LODESTAR_TRY(
      SnapshotFileWriter::Create(path, BytesOf(ctx->input(2)).front(), &file));
  const auto blobs = ctx->input(1).vec<tstring>();
  for (int64_t k = 0; k < blobs.size(); ++k) {
    const int64_t size = static_cast<int64_t>(blobs(k).size());
    for (int64_t begin = 0; begin < size; begin += kMost) {
      const int64_t bytes = std::min(kMost, size - begin);
      LODESTAR_TRY(file->Append(BlockKind::kBlob, bytes,
                                blobs(k).data() + begin, bytes));
    }
  }
  LODESTAR_TRY(file->Finish());
  return OutputNumbers(ctx, {file->bytes(), file->crc()});
}

absl::Status RunSnapshotReadBlobs(OpKernelContext* ctx) {
  ListedFile file;
  LODESTAR_TRY(ReadString(ctx->input(0), "path", &file.path));
  LODESTAR_TRY(CheckRank(ctx->input(1), "listed", 0));
  const int64_t crc = ctx->input(1).scalar<int64_t>()();
  if (crc >= 0) file.content = {static_cast<uint32_t>(crc), 0, 0};
  std::string blobs;
  LODESTAR_TRY(ReadBlobs(file, &blobs));
  return OutputScalar(ctx, 0, tstring(blobs));
}

absl::Status RunSnapshotCheckManifest(OpKernelContext* ctx) {
  std::string path;
  LODESTAR_TRY(ReadString(ctx->input(0), "path", &path));
  LODESTAR_TRY(CheckRank(ctx->input(1), "content", 0));
  Manifest unused;
  return ToTensorFlow(
      ParseManifest(ctx->input(1).scalar<tstring>()(), path, &unused));
}

absl::Status RunSnapshotCrc(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "data", 0));
  const tstring& data = ctx->input(0).scalar<tstring>()();
  return OutputScalar(ctx, 0, int64_t{Crc32c(data.data(), data.size())});
}

absl::Status RunSnapshotFileCrc(OpKernelContext* ctx) {
  std::string path;
  LODESTAR_TRY(ReadString(ctx->input(0), "path", &path));
  int64_t bytes = 0;
  uint32_t crc = 0;
  LODESTAR_TRY(FileCrc(path, &bytes, &crc));
  return OutputNumbers(ctx, {bytes, crc});
}

LODESTAR_REGISTER_FUNCTION(SnapshotVerifyFile);
LODESTAR_REGISTER_FUNCTION(SnapshotReadBlock);
LODESTAR_REGISTER_FUNCTION(SnapshotMerge);
LODESTAR_REGISTER_FUNCTION(SnapshotWriteBlobs);
LODESTAR_REGISTER_FUNCTION(SnapshotReadBlobs);
LODESTAR_REGISTER_FUNCTION(SnapshotCheckManifest);
LODESTAR_REGISTER_FUNCTION(SnapshotCrc);
LODESTAR_REGISTER_FUNCTION(SnapshotFileCrc);

}  // namespace
}  // namespace lodestar
