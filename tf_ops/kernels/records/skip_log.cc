#include "tf_ops/kernels/records/skip_log.h"

#include <limits>

#include "tensorflow/core/platform/logging.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/records/registry.h"

namespace lodestar {
std::shared_ptr<SkipLog> SkipLog::Named(const std::string& name) {
  return name.empty() ? std::make_shared<SkipLog>()
                      : Registry<SkipLog>::Global().FindOrMake(name);
}

void SkipLog::Add(const std::string& message, int64_t count) {
  MutexLock lock(&mutex_);
  if (__builtin_add_overflow(count_, count, &count_)) {
    count_ = std::numeric_limits<int64_t>::max();
  }
  if (messages_.size() == kMaxMessages) return;
  messages_.push_back(message);
  if (messages_.size() <= kMaxLogged) {
    LOG(WARNING) << "skipped: " << message
                 << (messages_.size() == kMaxLogged ? " (no more are logged)"
                                                    : "");
  }
}

bool SkipLog::wants_messages() const {
  MutexLock lock(&mutex_);
  return messages_.size() < kMaxMessages;
}

int64_t SkipLog::count() const {
  MutexLock lock(&mutex_);
  return count_;
}

std::vector<std::string> SkipLog::messages() const {
  MutexLock lock(&mutex_);
  return messages_;
}

namespace {

absl::Status ReadName(OpKernelContext* ctx, std::string* name) {
  const Tensor& input = ctx->input(0);
  if (input.dims() != 0 || input.scalar<tstring>()().empty()) {
    return InvalidArgumentError(
        "`log` must be a scalar that is not empty, found shape ",
        input.shape().DebugString());
  }
  *name = input.scalar<tstring>()();
  return absl::OkStatus();
}

absl::Status RunSkipLogRead(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx, &name));
  const std::shared_ptr<SkipLog> log = SkipLog::Named(name);
  const std::vector<std::string> messages = log->messages();
  LODESTAR_TRY(OutputScalar(ctx, 0, log->count()));
  return OutputVector(ctx, 1, messages);
}

absl::Status RunSkipLogAdd(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx, &name));
  for (int i = 1; i < 3; ++i) {
    if (ctx->input(i).dims() != 0) {
      return InvalidArgumentError(
          "`message` and `count` must be scalars, found ",
          ctx->input(i).shape().DebugString());
    }
  }
  const int64_t count = ctx->input(2).scalar<int64_t>()();
  if (count < 0) {
    return InvalidArgumentError("`count` must be at least 0, found ", count);
  }
  SkipLog::Named(name)->Add(ctx->input(1).scalar<tstring>()(), count);
  return absl::OkStatus();
}

absl::Status RunSkipLogForget(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx, &name));
  Registry<SkipLog>::Global().Remove(name);
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(SkipLogRead);
LODESTAR_REGISTER_FUNCTION(SkipLogAdd);
LODESTAR_REGISTER_FUNCTION(SkipLogForget);

}  // namespace
}  // namespace lodestar
