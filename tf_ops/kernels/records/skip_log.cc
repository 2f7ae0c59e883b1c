#include "tf_ops/kernels/records/skip_log.h"

#include <limits>
#include <map>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/logging.h"
#include "tf_ops/kernels/base/status_util.h"

namespace lodestar {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

struct Logs {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<SkipLog>> by_name
      LODESTAR_GUARDED_BY(mutex);
};

Logs& AllLogs() {
  // Never destroyed: a reading thread may outlive static destruction.
  static Logs* const logs = new Logs;
  return *logs;
}

}  // namespace

std::shared_ptr<SkipLog> SkipLog::Named(const std::string& name) {
  if (name.empty()) return std::make_shared<SkipLog>();
  Logs& logs = AllLogs();
  MutexLock lock(&logs.mutex);
  std::shared_ptr<SkipLog>& log = logs.by_name[name];
  if (log == nullptr) log = std::make_shared<SkipLog>();
  return log;
}

void SkipLog::Forget(const std::string& name) {
  Logs& logs = AllLogs();
  MutexLock lock(&logs.mutex);
  logs.by_name.erase(name);
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

class SkipLogOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

 protected:
  static bool GetName(OpKernelContext* ctx, std::string* name) {
    const Tensor& input = ctx->input(0);
    if (input.dims() != 0 || input.scalar<tstring>()().empty()) {
      ctx->SetStatus(InvalidArgumentError(
          "`log` must be a scalar that is not empty, found shape ",
          input.shape().DebugString()));
      return false;
    }
    *name = input.scalar<tstring>()();
    return true;
  }
};

class SkipLogReadOp : public SkipLogOp {
 public:
  using SkipLogOp::SkipLogOp;

  void Compute(OpKernelContext* ctx) override {
    std::string name;
    if (!GetName(ctx, &name)) return;
    const std::shared_ptr<SkipLog> log = SkipLog::Named(name);
    const std::vector<std::string> texts = log->messages();
    Tensor* count = nullptr;
    Tensor* messages = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({}), &count));
    OP_REQUIRES_OK(
        ctx,
        ctx->allocate_output(
            1, TensorShape({static_cast<int64_t>(texts.size())}), &messages));
    count->scalar<int64_t>()() = log->count();
    for (size_t i = 0; i < texts.size(); ++i) {
      messages->vec<tstring>()(i) = texts[i];
    }
  }
};

class SkipLogAddOp : public SkipLogOp {
 public:
  using SkipLogOp::SkipLogOp;

  void Compute(OpKernelContext* ctx) override {
    std::string name;
    if (!GetName(ctx, &name)) return;
    for (int i = 1; i < 3; ++i) {
      OP_REQUIRES(
          ctx, ctx->input(i).dims() == 0,
          InvalidArgumentError("`message` and `count` must be scalars, found ",
                               ctx->input(i).shape().DebugString()));
    }
    const int64_t count = ctx->input(2).scalar<int64_t>()();
    OP_REQUIRES(
        ctx, count >= 0,
        InvalidArgumentError("`count` must be at least 0, found ", count));
    SkipLog::Named(name)->Add(ctx->input(1).scalar<tstring>()(), count);
  }
};

class SkipLogForgetOp : public SkipLogOp {
 public:
  using SkipLogOp::SkipLogOp;

  void Compute(OpKernelContext* ctx) override {
    std::string name;
    if (GetName(ctx, &name)) SkipLog::Forget(name);
  }
};

REGISTER_KERNEL_BUILDER(
    Name("Lodestar>SkipLogRead").Device(tensorflow::DEVICE_CPU), SkipLogReadOp);
REGISTER_KERNEL_BUILDER(
    Name("Lodestar>SkipLogAdd").Device(tensorflow::DEVICE_CPU), SkipLogAddOp);
REGISTER_KERNEL_BUILDER(
    Name("Lodestar>SkipLogForget").Device(tensorflow::DEVICE_CPU),
    SkipLogForgetOp);

}  // namespace
}  // namespace lodestar
