// Running: which task each thread runs at this moment, for the messages of waits that take long.
//
// A thread notes its task by one store and takes the note back by one exchange. A reader locks a
// note while it describes the task, so that the task and its arguments stay meanwhile.
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
  std::int64_t begin_ns = 0;         // begin by timeline_now(), if known
  bool on_worker = true;             // false on a thread of the user
  std::atomic<bool> warned = false;  // whether CallerWatch has warned about this task
  std::uint64_t serial = 0;          // distinguishes the tasks that one thread has noted
};

// Notes during its lifetime that the calling thread runs the task.
class RunningScope {
 public:
  explicit RunningScope(RunningTask& task) noexcept;
  ~RunningScope();
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  bool noted_ = false;  // false if there was no memory for the note
};

// Calls see(task) for each task that some thread runs. A thread whose task ends meanwhile waits
// until see() returned, so see() should be short. Not to be called inside of see().
void for_each_running(const std::function<void(RunningTask&)>& see);

// A text such as "exp (op 17) on CpuDevice(id=3) …\n  at file.cpp:12".
std::string describe(const RunningTask& running);

}  // namespace shmap::cpu
