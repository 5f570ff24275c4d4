// Running: which task each thread runs at this moment, for whoever waits and has to say for what.
//
// A thread notes its task at the price of a store, and takes the note back by one exchange; a
// reader holds on to a note, so that the task and its arguments stay while it describes them.
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
  std::int64_t begin_ns = 0;      // of timeline_now(), where known
  bool on_worker = true;          // false: on a thread of the user's
  std::atomic<int> warnings = 0;  // of it
};

// While it stands, its thread runs that task.
class RunningScope {
 public:
  explicit RunningScope(RunningTask& task) noexcept;
  ~RunningScope();
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  bool noted_ = false;  // not where there is no memory for it
};

// Calls see(task) for each task that some thread runs; a thread whose task ends meanwhile waits
// until see() returned, so that should be soon. Not to be called inside of see().
void for_each_running(const std::function<void(RunningTask&)>& see);

// "exp (op 17) on CpuDevice(id=3) …\n  at file.cpp:12".
std::string describe(const RunningTask& running);

}  // namespace shmap::cpu
