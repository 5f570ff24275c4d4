// Task: an entry of a stream's queue.
#pragma once
#include <cstdint>
#include <exception>
#include <string>

namespace shmap {

class Stream;

enum class StreamRole : std::uint8_t { compute, comm };

// Ends a task whose work continues after Task::run has returned (Task::later).
class TaskEnd {
 public:
  // To be called once, from any thread; the task fails where `error` is not null. The args may be
  // freed by this call.
  virtual void end(std::exception_ptr error) noexcept = 0;

 protected:
  ~TaskEnd() = default;
};

struct TaskContext {
  int part;                // 0 … parts - 1
  int parts;               // as in the task
  Stream& stream;          // the stream into which it was enqueued
  void* native;            // the backend's own handle (a cudaStream_t); null on the CPU
  TaskEnd* end = nullptr;  // for a task with `later`; null where run must finish all the work
  // For a task that a launch of a graph runs: the argument `ticket` of Graph::launch. 0 for other
  // tasks. Also 0 on CUDA, where a graph's task runs only when it is captured: launches repeat the
  // work that the task put into its stream, and pass the ticket to the objects that the graph keeps
  // alive (cuda/driver/graph_resource.h).
  std::uint64_t ticket = 0;
};

// Runs one part. May throw: the executor catches the exception and fails the task's event. Must not
// enqueue, wait or allocate, since it runs on a worker, or with the submit mutex held.
using TaskFn = void (*)(void* args, const TaskContext& context);

struct Task {
  // Called once per part; null: there is no work. Where a part throws, others may be left out.
  TaskFn run = nullptr;
  void (*drop)(void* args) noexcept = nullptr;  // frees args; called once, after the last run
  void* args = nullptr;
  int parts = 1;             // independent parts, run in any order and, where large, in parallel
  std::int64_t cost_ns = 0;  // an estimate of all parts together, on one core
  const char* name = "";     // for timelines and errors: static text, or a label (span_label.h)
  std::int64_t bytes = 0;    // bytes moved, for timelines
  // A description of the call for the error of a wait that timed out; null: the name is enough.
  // Called from another thread while the task runs.
  std::string (*describe)(const void* args) = nullptr;
  // The task calls user code, which may never return. If there are workers, a waiting thread does
  // not run it itself, so that the wait can time out.
  bool foreign = false;
  // `run` only starts the work, and context.end ends the task. Where context.end is null, or where
  // run throws, the task ends as others do. Only for tasks of one part.
  bool later = false;
  // For a task with `later`: called once in place of `run` where the task is not run, because
  // something that it waits for has failed with `error`, or an earlier task of the launch of its
  // graph. ticket: as in TaskContext. Any thread, perhaps with the submit mutex held; null: nobody
  // needs to know.
  void (*skip)(void* args, std::uint64_t ticket,
               const std::exception_ptr& error) noexcept = nullptr;

  // Joining two tasks. A task with `join` and `takes` reads the memory at `takes`, which an earlier
  // task of one part writes (`makes` of that task is the same address) and which no other task
  // reads. If the earlier task is the only one for which the later task still waits, an executor
  // may call the later task's join, with the earlier task as `before`, instead of running both:
  // join either does the work of both tasks and returns true, or does nothing and returns false. A
  // task with `join` and without `takes`: core/device/task_attempt.h.
  const void* makes = nullptr;
  const void* takes = nullptr;
  bool (*join)(void* args, const Task& before, const TaskContext& context) = nullptr;
};

}  // namespace shmap
