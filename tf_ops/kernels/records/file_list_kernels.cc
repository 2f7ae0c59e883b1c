// File lists for the epochs of a job. Process-global by name, because the
// tf.data service that iterates over them runs in the same process.

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/permutation.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {
namespace {

struct FileList {
  std::vector<std::string> files;
  uint64_t state = 0;  // of later shuffles
};

struct Lists {
  Mutex mutex;
  std::map<std::string, FileList> by_name LODESTAR_GUARDED_BY(mutex);
};

Lists& AllLists() {
  // Never destroyed, since a service may outlive static destruction.
  static Lists* const lists = new Lists;
  return *lists;
}

absl::Status ReadName(OpKernelContext* ctx, std::string* name) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "list", 0));
  *name = ctx->input(0).scalar<tstring>()();
  return absl::OkStatus();
}

absl::Status RunFileListPut(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx, &name));
  FileList list;
  LODESTAR_TRY(ReadPaths(ctx->input(1), &list.files));
  int64_t seed = 0;
  LODESTAR_TRY(ReadScalar(ctx->input(2), "seed",
                          std::numeric_limits<int64_t>::min(),
                          std::numeric_limits<int64_t>::max(), &seed));
  Lists& lists = AllLists();
  MutexLock lock(&lists.mutex);
  const auto [it, added] = lists.by_name.emplace(name, FileList());
  list.state = added ? static_cast<uint64_t>(seed) : it->second.state;
  it->second = std::move(list);
  return absl::OkStatus();
}

class FileListNextOp : public Kernel {
 public:
  explicit FileListNextOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shuffle", &shuffle_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    std::string name;
    LODESTAR_TRY(ReadName(ctx, &name));
    FileList list;
    {
      Lists& lists = AllLists();
      MutexLock lock(&lists.mutex);
      const auto it = lists.by_name.find(name);
      if (it == lists.by_name.end()) {
        return tensorflow::errors::NotFound("the file list '", name,
                                            "' is no longer served.");
      }
      it->second.state += kGoldenGamma;
      list = it->second;
    }
    const int64_t count = static_cast<int64_t>(list.files.size());
    const Permutation permutation(count, Mix64(list.state));
    std::vector<std::string> files;
    for (int64_t i = 0; i < count; ++i) {
      files.push_back(list.files[shuffle_ ? permutation(i) : i]);
    }
    return OutputVector(ctx, 0, files);
  }

 private:
  bool shuffle_;
};

absl::Status RunFileListForget(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx, &name));
  Lists& lists = AllLists();
  MutexLock lock(&lists.mutex);
  lists.by_name.erase(name);
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(FileListPut);
LODESTAR_REGISTER(FileListNext);
LODESTAR_REGISTER_FUNCTION(FileListForget);

}  // namespace
}  // namespace lodestar
