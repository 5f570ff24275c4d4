// CallerWatch: warns about a user's kernel that has kept one of the user's own threads for long,
// and ends the process after SHMAP_COLLECTIVE_TIMEOUT_SEC, since a thread cannot be taken back from
// a function that does not return.
//
// A user's thread that runs a kernel itself (at enqueue or, without workers, while it waits) cannot
// wait with a deadline. A thread of the library watches it instead; this thread is started with the
// first such kernel and sleeps while no such kernel runs.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace shmap::cpu {

class Executor;

class CallerWatch {
 public:
  explicit CallerWatch(const Executor& executor) noexcept : executor_(executor) {}
  ~CallerWatch() { stop(); }

  // To be called when a user's kernel begins on a user's thread, after its RunningTask has been
  // noted with the begin time. If no thread can be started, kernels are not watched.
  void begin() noexcept;
  // Ends the watching thread; a later begin() starts another one.
  void stop() noexcept;
  // Whether a user's kernel runs on a user's thread.
  bool any() const noexcept;

 private:
  void run() noexcept;
  void look() const;
  // Takes `ns` off the times for which the tasks that began before `since` have run.
  void do_not_count(std::int64_t ns, std::int64_t since) const;
  [[noreturn]] static void end_process(const std::string& what);

  const Executor& executor_;
  std::atomic<bool> seen_{false};    // a kernel began since the last look
  std::atomic<bool> asleep_{false};  // the watching thread sleeps until a kernel begins
  std::atomic<bool> started_{false};
  std::mutex mutex_;
  bool stopping_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace shmap::cpu
