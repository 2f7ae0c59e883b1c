// SkipLog: what readers have left out instead of failing. Known by name to the
// whole process, so that any thread notes and any other asks.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_SKIP_LOG_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_SKIP_LOG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/base/mutex.h"

namespace lodestar {

// Thread-safe.
class SkipLog {
 public:
  // The log of this name, made if there is none; the nameless one is new.
  static std::shared_ptr<SkipLog> Named(const std::string& name);
  // Forgets the name; who holds the log keeps it.
  static void Forget(const std::string& name);

  // Notes `count` records, 0 or more, that were left out, with what was wrong.
  // The first ones also go to TensorFlow's log.
  void Add(const std::string& message, int64_t count);

  // Whether a message that is added now is kept.
  bool wants_messages() const;

  int64_t count() const;
  // The first messages, kMaxMessages of them at most.
  std::vector<std::string> messages() const;

 private:
  static constexpr size_t kMaxMessages = 100;
  static constexpr size_t kMaxLogged = 5;

  mutable Mutex mutex_;
  int64_t count_ LODESTAR_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> messages_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_SKIP_LOG_H_
