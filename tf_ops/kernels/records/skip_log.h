// SkipLog: the errors that readers have skipped. Process-global by name, so
// that any thread can add and query.

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
  // Returns the log of this name, creating it if necessary; an empty name
  // returns a new log.
  static std::shared_ptr<SkipLog> Named(const std::string& name);

  // Adds `count` skipped records (0 or more) with the error message. The first
  // ones also go to TensorFlow's log.
  void Add(const std::string& message, int64_t count);

  // Whether a message added now would be kept.
  bool wants_messages() const;

  int64_t count() const;
  // The first messages, at most kMaxMessages.
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
