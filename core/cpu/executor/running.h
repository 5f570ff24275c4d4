// Running: the task that each thread runs at this moment, so that a waiting thread can name it.
//
// A thread publishes its task by one store and takes it back by one exchange. A reader locks a
// published task, so that the task and its args stay alive while the reader describes them.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "core/device/stream.h"

namespace shmap::cpu {

class Executor;

struct RunningTask {
  const Executor* executor;
  const Task* task;
  const Stream* stream;
  std::int64_t begin_ns = 0;      // on the clock of timeline_now(); 0 if not known
  bool on_worker = true;          // false: on a user's thread
  std::atomic<int> warnings = 0;  // how many warnings named this task
};

// While a RunningScope exists, the list of running tasks has `task` for the calling thread.
class RunningScope {
 public:
  explicit RunningScope(RunningTask& task) noexcept;
  ~RunningScope();
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  bool noted_ = false;  // false if there was no memory for the thread's slot
};

// Calls see(task) for each task that runs. A thread whose task ends meanwhile blocks until see()
// returns, so see() should be short. Must not be called inside see().
void for_each_running(const std::function<void(RunningTask&)>& see);

// A text such as "exp (op 17) on CpuDevice(id=3) …\n  at file.cpp:12".
std::string describe(const RunningTask& running);

}  // namespace shmap::cpu
