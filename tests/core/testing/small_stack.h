// A thread with a small stack, as started by some runtimes.

#ifndef LODESTAR_TESTS_CORE_TESTING_SMALL_STACK_H_
#define LODESTAR_TESTS_CORE_TESTING_SMALL_STACK_H_

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <functional>

namespace lodestar {

#ifdef __SANITIZE_THREAD__
// TSan itself uses almost a megabyte of the stack.
constexpr size_t kSmallStack = 2 << 20;
#else
constexpr size_t kSmallStack = 256 << 10;
#endif

inline void OnSmallStack(const std::function<void()>& body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kSmallStack), 0);
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, run,
                           const_cast<std::function<void()>*>(&body)),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_SMALL_STACK_H_
