// Kernels of SnapshotVerifyFile, SnapshotReadBlock, SnapshotMerge,
// SnapshotWriteBlobs and SnapshotFileCrc. Contracts:
// tf_ops/ops/snapshot/snapshot_ops.cc; algorithms:
// tf_ops/core/snapshot/snapshot_file.h, snapshot_table.h, snapshot_merge.h and
// file_crc.h.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/snapshot/file_crc.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_merge.h"
#include "tf_ops/core/snapshot/snapshot_table.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/snapshot/snapshot_inputs.h"
#include "tf_ops/kernels/snapshot/snapshot_kernel.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

// Scalars at outputs 0, 1, ...
absl::Status OutputNumbers(OpKernelContext* ctx,
                           const std::vector<int64_t>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(
        ctx->allocate_output(static_cast<int>(i), TensorShape({}), &output));
    output->scalar<int64_t>()() = numbers[i];
  }
  return absl::OkStatus();
}

class SnapshotVerifyFileOp : public SnapshotKernel {
 public:
  using SnapshotKernel::SnapshotKernel;
  absl::Status ComputeOn(OpKernelContext* ctx) override {
    std::string path;
    TF_RETURN_IF_ERROR(ReadText(ctx->input(0), "path", &path));
    const ParallelFor parallel = OwnThreads(ctx);
    SnapshotFileSummary summary;
    TF_RETURN_IF_ERROR(
        ToTensorFlow(VerifySnapshotFile(path, &parallel, &summary)));
    return OutputNumbers(ctx, {summary.bytes, summary.crc, summary.totals.rows,
                               summary.totals.removed});
  }
};

class SnapshotReadBlockOp : public SnapshotKernel {
 public:
  using SnapshotKernel::SnapshotKernel;
  absl::Status ComputeOn(OpKernelContext* ctx) override {
    std::string path;
    TF_RETURN_IF_ERROR(ReadText(ctx->input(0), "path", &path));
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(1), "offset", 0));
    std::unique_ptr<SnapshotFileReader> file;
    TF_RETURN_IF_ERROR(ToTensorFlow(SnapshotFileReader::Open(path, &file)));
    SnapshotFileReader::Block block;
    TF_RETURN_IF_ERROR(ToTensorFlow(
        file->ReadBlock(ctx->input(1).scalar<int64_t>()(), &block)));
    Tensor* outputs[4];
    for (int i = 0; i < 4; ++i) {
      TF_RETURN_IF_ERROR(ctx->allocate_output(i, TensorShape({}), &outputs[i]));
    }
    outputs[0]->scalar<int64_t>()() = static_cast<int64_t>(block.kind);
    outputs[1]->scalar<int64_t>()() = block.count;
    outputs[2]->scalar<tstring>()().assign(block.payload.data(),
                                           block.payload.size());
    outputs[3]->scalar<int64_t>()() = block.next;
    return absl::OkStatus();
  }
};

class SnapshotMergeOp : public SnapshotKernel {
 public:
  using SnapshotKernel::SnapshotKernel;
  absl::Status ComputeOn(OpKernelContext* ctx) override {
    std::vector<std::string> files;
    std::string out;
    TF_RETURN_IF_ERROR(ReadTexts(ctx->input(0), "files", &files));
    TF_RETURN_IF_ERROR(ReadText(ctx->input(1), "out", &out));
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(2), "label", 0));
    SnapshotFileSummary merged;
    TF_RETURN_IF_ERROR(ToTensorFlow(MergeSnapshotFiles(
        files, out, &merged, BytesOf(ctx->input(2)).front())));
    return OutputNumbers(ctx, {merged.totals.rows, merged.bytes, merged.crc});
  }
};

class SnapshotWriteBlobsOp : public SnapshotKernel {
 public:
  using SnapshotKernel::SnapshotKernel;
  absl::Status ComputeOn(OpKernelContext* ctx) override {
    // As far as one damaged byte spoils a blob.
    constexpr int64_t kMost = int64_t{16} << 20;
    std::string path;
    TF_RETURN_IF_ERROR(ReadText(ctx->input(0), "path", &path));
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(1), "blobs", 1));
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(2), "label", 0));
    std::unique_ptr<SnapshotFileWriter> file;
    TF_RETURN_IF_ERROR(ToTensorFlow(SnapshotFileWriter::Create(
        path, &file, BytesOf(ctx->input(2)).front())));
    const auto blobs = ctx->input(1).vec<tstring>();
    for (int64_t k = 0; k < blobs.size(); ++k) {
      const int64_t size = static_cast<int64_t>(blobs(k).size());
      for (int64_t begin = 0; begin < size; begin += kMost) {
        const int64_t bytes = std::min(kMost, size - begin);
        TF_RETURN_IF_ERROR(ToTensorFlow(file->Append(
            BlockKind::kBlob, bytes, blobs(k).data() + begin, bytes)));
      }
    }
    TF_RETURN_IF_ERROR(ToTensorFlow(file->Finish()));
    return OutputNumbers(ctx, {file->bytes(), file->crc()});
  }
};

class SnapshotFileCrcOp : public SnapshotKernel {
 public:
  using SnapshotKernel::SnapshotKernel;
  absl::Status ComputeOn(OpKernelContext* ctx) override {
    std::string path;
    TF_RETURN_IF_ERROR(ReadText(ctx->input(0), "path", &path));
    int64_t bytes = 0;
    uint32_t crc = 0;
    TF_RETURN_IF_ERROR(ToTensorFlow(FileCrc(path, &bytes, &crc)));
    return OutputNumbers(ctx, {bytes, crc});
  }
};

#define REGISTER(name) \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name).Device(DEVICE_CPU), name##Op)
REGISTER(SnapshotVerifyFile);
REGISTER(SnapshotReadBlock);
REGISTER(SnapshotMerge);
REGISTER(SnapshotWriteBlobs);
REGISTER(SnapshotFileCrc);
#undef REGISTER

}  // namespace
}  // namespace lodestar
