// Contracts: tf_ops/ops/serving/snapshot_follower_ops.cc.

#include <memory>

#include "tf_ops/kernels/base/variant_handle.h"
#include "tf_ops/kernels/embedding/table_kernel.h"
#include "tf_ops/kernels/serving/served_version.h"

namespace lodestar {
namespace {

class SnapshotFollowerTableOp : public Kernel {
 public:
  explicit SnapshotFollowerTableOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("index", &index_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    std::shared_ptr<const ServedVersion> served;
    LODESTAR_TRY(ReadHandle(ctx->input(0), "version",
                            "SnapshotFollowerResources", &served));
    const int64_t count = static_cast<int64_t>(served->handles.size());
    if (index_ >= count) {
      return InvalidArgumentError("`index` must be less than ", count, ", got ",
                                  index_, ".");
    }
    ctx->set_output(0, served->handles[index_]);
    return absl::OkStatus();
  }

 private:
  int64_t index_ = 0;
};

LODESTAR_REGISTER_TABLE(SnapshotFollowerTable, SnapshotFollowerTableOp,
                        .HostMemory("version").HostMemory("table"));

}  // namespace
}  // namespace lodestar
