// File lists for the epochs of a job. Process-global by name, because the
// tf.data service that iterates over them runs in the same process.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/permutation.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/records/registry.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {
namespace {

struct FileList {
  Mutex mutex;
  std::vector<std::string> files LODESTAR_GUARDED_BY(mutex);
  std::optional<uint64_t> state
      LODESTAR_GUARDED_BY(mutex);  // of later shuffles
};

using FileLists = Registry<FileList>;

absl::Status RunFileListPut(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx->input(0), "list", &name));
  std::vector<std::string> files;
  LODESTAR_TRY(ReadPaths(ctx->input(1), &files));
  int64_t seed = 0;
  LODESTAR_TRY(ReadScalar(ctx->input(2), "seed", &seed));
  const std::shared_ptr<FileList> list = FileLists::Global().FindOrMake(name);
  MutexLock lock(&list->mutex);
  list->files = std::move(files);
  if (!list->state) list->state = static_cast<uint64_t>(seed);
  return absl::OkStatus();
}

class FileListNextOp : public Kernel {
 public:
  explicit FileListNextOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shuffle", &shuffle_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    std::string name;
    LODESTAR_TRY(ReadName(ctx->input(0), "list", &name));
    const std::shared_ptr<FileList> list = FileLists::Global().Find(name);
    std::vector<std::string> files;
    std::optional<uint64_t> state;
    if (list != nullptr) {
      MutexLock lock(&list->mutex);
      files = list->files;
      if (list->state) state = *list->state += kGoldenGamma;
    }
    if (!state) {
      return tensorflow::errors::NotFound("the file list '", name,
                                          "' is no longer served.");
    }
    if (shuffle_) {
      const std::vector<std::string> ordered = std::move(files);
      const int64_t count = static_cast<int64_t>(ordered.size());
      const Permutation permutation(count, Mix64(*state));
      files.clear();
      for (int64_t i = 0; i < count; ++i)
        files.push_back(ordered[permutation(i)]);
    }
    return OutputVector(ctx, 0, files);
  }

 private:
  bool shuffle_;
};

absl::Status RunFileListForget(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx->input(0), "list", &name));
  FileLists::Global().Release(name);
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(FileListPut);
LODESTAR_REGISTER(FileListNext);
LODESTAR_REGISTER_FUNCTION(FileListForget);

}  // namespace
}  // namespace lodestar
