// Registry: objects of this process by name. Ops that find them can run in
// tf.data, which rebuilds the graph of a dataset and may serve it to others.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_REGISTRY_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_REGISTRY_H_

#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tf_ops/core/base/mutex.h"

namespace lodestar {

// Thread-safe.
template <typename T>
class Registry {
 public:
  // Never destroyed, since readers may outlive static destruction.
  static Registry& Global() {
    static Registry* const registry = new Registry;
    return *registry;
  }

  // Returns false if the name is in use.
  bool Add(const std::string& name, std::shared_ptr<T> object) {
    MutexLock lock(&mutex_);
    EraseExpired();
    Entry entry{object, object};
    return entries_.emplace(name, std::move(entry)).second;
  }
  // Returns null if there is no such object.
  std::shared_ptr<T> Find(const std::string& name) {
    MutexLock lock(&mutex_);
    const auto it = entries_.find(name);
    return it == entries_.end() ? nullptr : it->second.object.lock();
  }
  // Makes the object if there is none.
  std::shared_ptr<T> FindOrMake(const std::string& name) {
    MutexLock lock(&mutex_);
    EraseExpired();
    Entry& entry = entries_[name];
    std::shared_ptr<T> object = entry.object.lock();
    if (object == nullptr) {
      entry.object = object = entry.kept = std::make_shared<T>();
    }
    return object;
  }
  // Removes the name once there is no other owner.
  void Release(const std::string& name) {
    std::shared_ptr<T> last;  // destroyed after unlocking
    MutexLock lock(&mutex_);
    const auto it = entries_.find(name);
    if (it != entries_.end()) last.swap(it->second.kept);
  }

 private:
  struct Entry {
    std::shared_ptr<T> kept;  // null once released
    std::weak_ptr<T> object;
  };

  void EraseExpired() LODESTAR_REQUIRES(mutex_) {
    for (auto it = entries_.begin(); it != entries_.end();) {
      it = it->second.object.expired() ? entries_.erase(it) : std::next(it);
    }
  }

  Mutex mutex_;
  std::map<std::string, Entry> entries_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_REGISTRY_H_
