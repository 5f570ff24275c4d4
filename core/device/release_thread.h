// ReleaseThread: the thread that calls release functions of wrapped memory (MemorySpace::wrap)
// which the thread that gave the memory up may not call itself (core/base/no_user_code.h).
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/device/at_exit.h"

namespace shmap {

class ReleaseThread final : detail::BeforeStop {
 public:
  static ReleaseThread& get();  // never destroyed
  // Lets the thread call the release functions that wait (MemorySpace::run_deferred_deleters); the
  // first call starts it. Does nothing after the devices have stopped, in a forked child, and where
  // no thread can be started: the functions then wait for the next thread that may call them.
  void wake() noexcept;

 private:
  ReleaseThread() = default;
  void work();
  // Calls what waits, and ends the thread.
  void before_stop() noexcept override;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  bool wanted_ = false, stopped_ = false;
};

}  // namespace shmap
