// CallerWatch: says which kernel of the user's has kept a thread of the user's for long.
//
// Such a thread cannot wait with a deadline, since it is the one that computes: at enqueue, or,
// where there are no workers, while it waits. A thread of the library's own looks after it, which
// is started with the first such kernel and sleeps while there are none.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace shmap::cpu {

class Executor;

class CallerWatch {
 public:
  explicit CallerWatch(const Executor& executor) noexcept : executor_(executor) {}
  ~CallerWatch() { stop(); }

  // Such a kernel begins, noted as a RunningTask with its time. Where no thread can be started,
  // nothing is watched.
  void begin() noexcept;
  void stop() noexcept;

 private:
  void run() noexcept;
  void look() const;

  const Executor& executor_;
  std::atomic<bool> seen_{false};    // one began since the last look
  std::atomic<bool> asleep_{false};  // until one begins
  std::atomic<bool> started_{false};
  std::mutex mutex_;
  bool stopping_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace shmap::cpu
