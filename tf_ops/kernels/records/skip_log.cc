#include "tf_ops/kernels/records/skip_log.h"

#include <limits>

#include "tensorflow/core/platform/logging.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/records/registry.h"
#include "tf_ops/kernels/records/slot_attributes.h"

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

absl::Status RunSkipLogRead(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx->input(0), "log", &name));
  const std::shared_ptr<SkipLog> log = SkipLog::Named(name);
  const std::vector<std::string> messages = log->messages();
  LODESTAR_TRY(OutputScalar(ctx, 0, log->count()));
  return OutputVector(ctx, 1, messages);
}

absl::Status RunSkipLogAdd(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx->input(0), "log", &name));
  LODESTAR_TRY(CheckRank(ctx->input(1), "message", 0));
  int64_t count = 0;
  LODESTAR_TRY(ReadScalar(ctx->input(2), "count", &count, 0));
  SkipLog::Named(name)->Add(ctx->input(1).scalar<tstring>()(), count);
  return absl::OkStatus();
}

absl::Status RunSkipLogForget(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx->input(0), "log", &name));
  Registry<SkipLog>::Global().Release(name);
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(SkipLogRead);
LODESTAR_REGISTER_FUNCTION(SkipLogAdd);
LODESTAR_REGISTER_FUNCTION(SkipLogForget);

}  // namespace
}  // namespace lodestar
