// Contracts: tf_ops/ops/base/server_ops.cc.

#include <chrono>
#include <string>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

using Clock = std::chrono::steady_clock;

// The program that owns a server.
class Claim : public tensorflow::ResourceBase {
 public:
  std::string DebugString() const override { return "Claim"; }

  struct Owner {
    std::string program;
    float silence = 0;  // seconds since its last claim
  };

  // Returns the owner before the call. `evict` runs before a lapsed owner is
  // replaced, while no other program can claim the server.
  template <typename Evict>
  Owner Take(const std::string& program, float lease, const Evict& evict) {
    MutexLock lock(&mutex_);
    const Clock::time_point now = Clock::now();
    Owner before;
    if (!program_.empty()) {
      before.program = program_;
      before.silence = std::chrono::duration<float>(now - heard_).count();
      if (program_ != program) {
        if (before.silence < lease) return before;
        evict(program_);
      }
    }
    program_ = program;
    heard_ = now;
    return before;
  }

  void GiveUp(const std::string& program) {
    MutexLock lock(&mutex_);
    if (program_ == program) program_.clear();
  }

 private:
  Mutex mutex_;
  std::string program_ LODESTAR_GUARDED_BY(mutex_);  // empty: none
  Clock::time_point heard_ LODESTAR_GUARDED_BY(mutex_);
};

absl::Status FindClaim(OpKernelContext* ctx,
                       tensorflow::core::RefCountPtr<Claim>* claim) {
  tensorflow::ResourceMgr* resources = ctx->resource_manager();
  Claim* found = nullptr;
  LODESTAR_TRY(resources->LookupOrCreate<Claim>(resources->default_container(),
                                                "lodestar_claim", &found,
                                                [](Claim** made) {
                                                  *made = new Claim;
                                                  return absl::OkStatus();
                                                }));
  claim->reset(found);
  return absl::OkStatus();
}

absl::Status ReadProgram(OpKernelContext* ctx, std::string* program) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "program", 0));
  *program = ctx->input(0).scalar<tstring>()();
  if (program->empty()) return InvalidArgumentError("`program` is empty");
  return absl::OkStatus();
}

// Each device of the process has its own resources.
void RemoveContainer(OpKernelContext* ctx, const std::string& program) {
  const tensorflow::DeviceMgr* devices = ctx->function_library()->device_mgr();
  for (tensorflow::Device* device : devices->ListDevices()) {
    device->resource_manager()->Cleanup(program).IgnoreError();
  }
}

absl::Status RunClaimServer(OpKernelContext* ctx) {
  std::string program;
  LODESTAR_TRY(ReadProgram(ctx, &program));
  LODESTAR_TRY(CheckRank(ctx->input(1), "lease", 0));
  tensorflow::core::RefCountPtr<Claim> claim;
  LODESTAR_TRY(FindClaim(ctx, &claim));
  const Claim::Owner before = claim->Take(
      program, ctx->input(1).scalar<float>()(),
      [ctx](const std::string& ended) { RemoveContainer(ctx, ended); });
  LODESTAR_TRY(OutputScalar(ctx, 0, before.program));
  return OutputScalar(ctx, 1, before.silence);
}

absl::Status RunReleaseServer(OpKernelContext* ctx) {
  std::string program;
  LODESTAR_TRY(ReadProgram(ctx, &program));
  tensorflow::core::RefCountPtr<Claim> claim;
  LODESTAR_TRY(FindClaim(ctx, &claim));
  RemoveContainer(ctx, program);
  claim->GiveUp(program);
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(ClaimServer);
LODESTAR_REGISTER_FUNCTION(ReleaseServer);

}  // namespace
}  // namespace lodestar
