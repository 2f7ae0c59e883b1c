// Contracts: tf_ops/ops/snapshot/snapshot_ops.cc.

#include <memory>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/util/device_name_utils.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/table_kernel.h"
#include "tf_ops/kernels/embedding/table_reference.h"

namespace lodestar {
namespace {

absl::Status RunSnapshotTable(const TableCall& call) {
  // Owned by its handles.
  tensorflow::core::RefCountPtr<TableReference> table(new TableReference());
  LODESTAR_TRY(FindResource(call.ctx, call.ctx->input(0), &table->variable));
  table->device = call.ctx->device()->attributes().name();
#if LODESTAR_CUDA
  if (call.on.on_gpu()) {
    const auto stream = std::make_shared<const KernelStream>(call.ctx);
    table->stream = std::shared_ptr<const DeviceStream>(stream, &stream->on());
    table->make_gpu_current = [gpu = KernelGpu(call.ctx)] {
      gpu.MakeCurrent();
    };
  }
#endif
  using tensorflow::DeviceNameUtils;
  DeviceNameUtils::ParsedName cpu = call.ctx->device()->parsed_name();
  cpu.type = tensorflow::DEVICE_CPU;
  cpu.id = 0;
  return OutputScalar(
      call.ctx, 0,
      tensorflow::ResourceHandle::MakeRefCountingHandle(
          table.release(), DeviceNameUtils::ParsedNameToString(cpu)));
}

absl::Status RunSnapshotBase(const TableCall& call) {
  return OutputScalar(call.ctx, 0, call.table->base());
}

LODESTAR_REGISTER_TABLE(SnapshotTable, TableFunctionKernel<RunSnapshotTable>,
                        .HostMemory("handle").HostMemory("table"));
LODESTAR_REGISTER_TABLE(SnapshotBase, TableFunctionKernel<RunSnapshotBase>,
                        .HostMemory("handle").HostMemory("base"));

}  // namespace
}  // namespace lodestar
