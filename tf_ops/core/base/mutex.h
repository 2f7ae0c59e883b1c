// Mutexes with Clang thread safety annotations. `bazel build
// --config=thread_safety` runs the analysis. For other compilers the
// annotations are empty and these classes wrap the standard library's.
//
//   Mutex mutex_;
//   int64_t count_ LODESTAR_GUARDED_BY(mutex_) = 0;
//   void Grow() LODESTAR_REQUIRES(mutex_);
//
// The analysis treats a lambda as a function that holds no mutex. Call
// AssertHeld in a lambda that runs with the mutex held.

#ifndef LODESTAR_TF_OPS_CORE_BASE_MUTEX_H_
#define LODESTAR_TF_OPS_CORE_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define LODESTAR_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define LODESTAR_THREAD_ANNOTATION(x)
#endif

// For members: access to the member (or, PT, to what it points to) requires
// `x`.
#define LODESTAR_GUARDED_BY(x) LODESTAR_THREAD_ANNOTATION(guarded_by(x))
#define LODESTAR_PT_GUARDED_BY(x) LODESTAR_THREAD_ANNOTATION(pt_guarded_by(x))
// For mutexes: the order of acquisition.
#define LODESTAR_ACQUIRED_AFTER(...) \
  LODESTAR_THREAD_ANNOTATION(acquired_after(__VA_ARGS__))
// For functions: the caller must hold, or must not hold, the mutexes.
#define LODESTAR_REQUIRES(...) \
  LODESTAR_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define LODESTAR_EXCLUDES(...) \
  LODESTAR_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// For functions: the function acquires or releases the mutexes.
#define LODESTAR_ACQUIRE(...) \
  LODESTAR_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define LODESTAR_ACQUIRE_SHARED(...) \
  LODESTAR_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define LODESTAR_TRY_ACQUIRE(...) \
  LODESTAR_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define LODESTAR_RELEASE(...) \
  LODESTAR_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define LODESTAR_RELEASE_SHARED(...) \
  LODESTAR_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
// For functions: the function returns a reference to mutex `x`.
#define LODESTAR_RETURN_CAPABILITY(x) \
  LODESTAR_THREAD_ANNOTATION(lock_returned(x))
// For functions whose locking the analysis cannot follow, such as locking a
// list of mutexes. A comment at the function names the locks.
#define LODESTAR_NO_THREAD_SAFETY_ANALYSIS \
  LODESTAR_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace lodestar {

// Has the member names of std::mutex, so that it works with std::unique_lock.
class LODESTAR_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() LODESTAR_ACQUIRE() { mutex_.lock(); }
  void unlock() LODESTAR_RELEASE() { mutex_.unlock(); }
  bool try_lock() LODESTAR_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  // Tells the analysis that the caller holds the mutex. Does nothing at run
  // time.
  void AssertHeld() const LODESTAR_THREAD_ANNOTATION(assert_capability(this)) {}

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

class LODESTAR_THREAD_ANNOTATION(capability("mutex")) SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock() LODESTAR_ACQUIRE() { mutex_.lock(); }
  void unlock() LODESTAR_RELEASE() { mutex_.unlock(); }
  void lock_shared() LODESTAR_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void unlock_shared() LODESTAR_RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

// Holds a mutex until the end of its scope.
template <typename AnyMutex>
class LODESTAR_THREAD_ANNOTATION(scoped_lockable) ScopedLock {
 public:
  explicit ScopedLock(AnyMutex* mutex) LODESTAR_ACQUIRE(mutex) : mutex_(mutex) {
    mutex_->lock();
  }
  ~ScopedLock() LODESTAR_RELEASE() { mutex_->unlock(); }
  ScopedLock(const ScopedLock&) = delete;
  ScopedLock& operator=(const ScopedLock&) = delete;

 private:
  AnyMutex* const mutex_;
};

using MutexLock = ScopedLock<Mutex>;
// Exclusive lock of a SharedMutex.
using WriterLock = ScopedLock<SharedMutex>;

// Condition variable for Mutex. Requires a loop, since wakeups may be spurious:
//
//   while (!ready_) changed_.Wait(&mutex_);
class ConditionVariable {
 public:
  ConditionVariable() = default;
  ConditionVariable(const ConditionVariable&) = delete;
  ConditionVariable& operator=(const ConditionVariable&) = delete;

  // Releases the mutex while waiting.
  void Wait(Mutex* mutex) LODESTAR_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // Waits until `deadline` at most. Returns false on timeout.
  bool WaitUntil(Mutex* mutex, std::chrono::steady_clock::time_point deadline)
      LODESTAR_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const std::cv_status status = changed_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_BASE_MUTEX_H_
