// Executor: runs the tasks of all CPU streams.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cpu/executor/caller_watch.h"
#include "core/cpu/executor/executor_options.h"
#include "core/cpu/executor/node.h"
#include "core/cpu/executor/waiting.h"
#include "core/device/failure_log.h"

namespace shmap::cpu {

// Dataflow: a node counts its unfinished predecessors and is ready at zero. Ready tasks of
// communication streams run before ready tasks of computation. At most `workers` threads run tasks
// at once, including a caller that waits.
class Executor {
 public:
  explicit Executor(const ExecutorOptions& options);
  ~Executor();  // waits for all submitted tasks
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const ExecutorOptions& options() const noexcept { return options_; }
  Mode mode() const noexcept { return options_.mode; }
  int workers() const noexcept { return options_.workers; }
  std::string repro() const;
  // The number of tasks that are submitted and have not ended, and of task parts that can run now.
  std::int64_t in_flight() const noexcept { return in_flight_.load(); }
  int ready_parts() const noexcept { return ready_parts_.load(); }
  // Changes when a part of a task has begun, or work that a task started (Task::later) has ended.
  std::int64_t progress() const noexcept {
    return begun_parts_.load(std::memory_order_relaxed) +
           ended_later_.load(std::memory_order_relaxed);
  }
  // Tasks of at most this cost run at enqueue if their stream and the events they wait for allow
  // it.
  std::int64_t inline_below_ns() const noexcept { return inline_below_ns_; }

  // Makes `node` start after `before`; where `data` is set, a failure of `before` makes `node`
  // fail. To be called before submit(node), at most as often as node.reserve_edges made room for.
  void add_edge(Node& before, Node& node, bool data) noexcept;
  // Makes `node` start after these events, and fail with `waits`, as Stream::enqueue says. Room:
  // count_pending() of both.
  void add_waits(Node& node, std::span<const Event> waits, std::span<const Event> after) noexcept;
  // How many of the events are pending, at most. Blocks for events of other executors, which cannot
  // notify this one.
  std::size_t count_pending(std::span<const Event> events) const;
  // The first failed event, null where none has failed. Errors of the others count as reported: the
  // first one is.
  static const Event* first_failed(std::span<const Event> events);
  // Submits a node that has all its edges. The executor keeps a reference until the node ended.
  void submit(Node& node) noexcept;
  // Submits the node. The calling thread itself runs the small tasks that follow it, as long as
  // they need not wait for another thread's task.
  void submit_and_follow_up(Node& node) noexcept;
  // To be called before a task is submitted. Where max_in_flight tasks are in flight: runs tasks,
  // or blocks, until an eighth of them has ended. Throws DeviceError like Deadline::check.
  void make_room();
  // To be called after a task was submitted. In the seeded mode runs up to two tasks.
  void interleave();
  // Runs all parts of the task on the calling thread. Returns what the task threw. Does not call
  // task.drop.
  Ref<Failure> run_here(const Task& task, Stream& stream, std::span<Stream* const> others,
                        std::uint64_t ticket = 0) noexcept;
  // Ends a task with `later`, whose work has ended. Runs small tasks that waited for the task.
  void ended(Node& node, std::exception_ptr error) noexcept;
  // A failure for synchronize() to report; its text says how to repeat the schedule.
  Ref<Failure> make_failure(std::exception_ptr error) noexcept {
    return failures_.add(std::move(error));
  }
  Event failed_event(Ref<Failure> failure);

  void wait(Node& node);
  // Blocks until no task is in flight.
  void drain();
  void rethrow_unreported() { failures_.rethrow_unreported(); }
  // Runs one part of a ready task, or parts until `until` ended. False where no part is ready, or
  // enough threads run tasks already.
  bool help(const Node* until = nullptr);

  // In seeded mode: reserves room for `more` further ready nodes.
  void reserve_ready(int more);
  // For process exit: the workers finish the tasks that they run and take no more. A worker that
  // has not ended by the deadline of a wait is left behind, with a warning that names its task;
  // such a worker uses nothing of the library any more. False where one was left behind.
  bool stop() noexcept;

 private:
  friend class CpuGraph;
  // A thread that waits for room goes on when fewer tasks than this are in flight.
  std::int64_t low_water() const noexcept {
    return options_.max_in_flight - options_.max_in_flight / 8;
  }
  struct Queue {
    Node* head = nullptr;
    Node* tail = nullptr;
  };
  // Nodes linked by ready_next, in order.
  struct List {
    Node* head = nullptr;
    Node* tail = nullptr;
    void push(Node* node) noexcept;
    Node* pop() noexcept;
  };
  struct Part {
    Node* node = nullptr;
    int part = 0;
    bool comm = false;  // queue of communication streams
  };

  // The task that may run together with a given task (Task::join). `ready`: the former waits for no
  // task besides the latter.
  struct Joiner {
    Node* node = nullptr;
    bool ready = false;
  };
  static Joiner joiner_of(const Node& node) noexcept;

  struct Worker {
    std::thread thread;
    bool left = false;  // guarded by mutex_: the worker takes no more tasks and is about to end
  };

  // Both functions require mutex_. `helps` is true for a waiting caller, which leaves tasks that
  // call user code (Task::foreign) to the workers.
  bool take_part(Part& part, bool helps) noexcept;
  static int own_part(Node& node) noexcept;
  // Returns the task of which this thread should run a part, or null if there is none. Removes the
  // task from compute_ if that part is its last.
  Node* next_to_compute(bool helps) noexcept;
  void run_part(const Part& part, bool on_worker) noexcept;
  // Tells a task that it is not run (Task::skip), or all tasks of a launch: `carrier` has failed.
  static void skip(const Node& node, const Node& carrier) noexcept;
  // Starts a task with `later`. True if the start succeeded: the node may then be freed already.
  bool start_later(Node& node, Node& carrier) noexcept;
  void end_part(Node* node) noexcept;
  // Runs a part of the node's task, or runs it together with the task after it (Task::join).
  static void run_task(Node& node, int part);
  // Ends nodes that need no running and queues the others. A task of the stream `hot`, whose latest
  // task this thread has just ended, goes first, since its operands are in this core's cache: up to
  // kMaxStreak tasks in a row, of which `streak` have run.
  void make_ready(List ready, const Stream* hot = nullptr, int streak = 0) noexcept;
  void queue(List runnable, const Stream* hot, int streak) noexcept;
  // All four require mutex_. begin_waking: for workers that the caller then wakes (work_). The last
  // two are true if the caller should wake one, and have begun it: for what is ready, and for what
  // is left to do besides a part that this thread has taken.
  Load load() const noexcept;
  void begin_waking(int workers) noexcept;
  bool begin_waking_for_ready() noexcept;
  bool begin_waking_for_rest(const Part& taken) noexcept;
  // Runs tasks with `later`, and small tasks that follow them, one after another on this thread,
  // since handing them to another thread would take longer (executor_follow_up.h).
  class FollowUp;
  bool follows_up(const Node& node) const noexcept;
  void finish(Node* node, List& ready) noexcept;
  void push_locked(Node* node, bool first) noexcept;
  // A thread in spin() runs a task that becomes ready itself, so that one worker less is woken. To
  // be followed by a call of help() that ran a part, or of leave_to_workers().
  template <class Pending>
  bool spin(Pending pending) noexcept;
  static thread_local Executor* spins_in;  // where this thread is in spin(); else null
  void leave_to_workers() noexcept;
  // The other threads in spin() that may run tasks. Those of a job of several processes may have to
  // look for messages: none of them counts.
  int other_lookers() const noexcept;
  void look_for_others() noexcept;
  void learn_to_yield(bool yielded) noexcept;
  void start_workers();
  void worker(Worker& self) noexcept;
  // How long a thread, which spinners_ or lookers_ count already, looks before it sleeps. Requires
  // mutex_.
  std::chrono::nanoseconds time_to_look() const noexcept;
  void wait_for_workers(const std::vector<Worker>& workers) noexcept;
  std::uint64_t random() noexcept;  // requires mutex_

  const ExecutorOptions options_;
  std::int64_t inline_below_ns_;

  std::mutex mutex_;  // guards the queues and the numbers declared below
  Queue comm_, compute_;
  // In seeded mode, in place of the queues. Reserved in advance: push_back must not fail.
  std::vector<Node*> random_ready_;
  std::size_t ready_capacity_ = 0;
  std::uint64_t random_state_;
  int active_ = 0;       // threads that run a task
  int active_comm_ = 0;  // how many of them run a task of a communication stream
  int sleepers_ = 0;     // workers that are parked
  int woken_ = 0;        // how many of them have been woken, and have yet to go on
  int spinners_ = 0;     // workers that look for work
  WakingTime waking_;
  bool stopping_ = false;
  std::condition_variable work_;
  std::condition_variable left_;  // notified when a worker ends
  std::vector<Worker> threads_;   // never grows once they run

  std::atomic<int> lookers_{0};               // threads in spin()
  std::atomic<int> ready_parts_{0};           // in the queues; written under mutex_
  std::atomic<std::int64_t> begun_parts_{0};  // written under mutex_
  std::atomic<std::int64_t> ended_later_{0};
  std::atomic<std::int64_t> in_flight_{0};
  std::atomic<int> waiting_for_room_{0};
  std::atomic<bool> started_{false};
  std::atomic<bool> stopped_{false};
  // After so long a wait for other processes, a thread yields its core after each look.
  std::atomic<std::int64_t> yields_after_ns_{30'000};
  std::atomic<bool> abandoned_{false};  // the process ends without the workers that still run

  std::mutex done_mutex_;  // of threads that sleep until a node ended
  std::condition_variable done_;

  FailureLog failures_;
  CallerWatch callers_{*this};
};

}  // namespace shmap::cpu
