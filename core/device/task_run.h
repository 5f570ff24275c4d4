// run_as_task: runs a task's work at once, on the thread that enqueues the task.
#pragma once
#include <exception>

#include "core/base/thread_state.h"

namespace shmap {

// Runs `work` as a task of that name on the calling thread, whose state `thread` is. Returns what
// it threw, or null.
template <class Work>
[[gnu::always_inline]] inline std::exception_ptr run_as_task(const char* name,
                                                             detail::ThreadState& thread,
                                                             const Work& work) noexcept {
  std::exception_ptr error;
  thread.task = name;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  thread.task = nullptr;
  return error;
}

}  // namespace shmap
