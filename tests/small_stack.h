// Runs code on a thread with a small stack: what recurses as deep as a graph overflows it.
#ifndef TALLY_TESTS_SMALL_STACK_H_
#define TALLY_TESTS_SMALL_STACK_H_

#include <pthread.h>

#include <functional>

#include "gtest/gtest.h"

namespace tally {

// 256 KiB.
inline void OnASmallStack(const std::function<void()>& fn) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  pthread_t thread;
  const auto run = [](void* f) -> void* {
    (*static_cast<const std::function<void()>*>(f))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&fn)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace tally

#endif  // TALLY_TESTS_SMALL_STACK_H_
