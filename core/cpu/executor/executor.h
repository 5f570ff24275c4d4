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
#include "core/device/failure_log.h"

namespace shmap::cpu {

// Dataflow: a node counts what it waits for, and is ready at zero. Ready communication goes before
// ready computation. At most `workers` threads run tasks at once, a waiting caller among them.
class Executor {
 public:
  explicit Executor(const ExecutorOptions& options);
  ~Executor();  // finishes what was submitted
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const ExecutorOptions& options() const noexcept { return options_; }
  Mode mode() const noexcept { return options_.mode; }
  int workers() const noexcept { return options_.workers; }
  std::string repro() const;
  // How many tasks are submitted and have not ended, and how many parts of them are ready to run.
  std::int64_t in_flight() const noexcept { return in_flight_.load(); }
  int ready_parts() const noexcept { return ready_parts_.load(); }
  // Tasks of at most this cost run at enqueue where their stream and waits allow it.
  std::int64_t inline_below_ns() const noexcept { return inline_below_ns_; }

  // `node` starts after `before`; where data, it fails with it. Before submit(node), and within
  // what node.reserve_edges made room for.
  void add_edge(Node& before, Node& node, bool data) noexcept;
  // The node has all its edges. The executor holds it until it ended.
  void submit(Node& node) noexcept;
  // submit() of a node whose small tasks this thread is to run, where they can run before something
  // ends that others do.
  void submit_and_follow_up(Node& node) noexcept;
  // Where too many tasks are in flight, runs some. Then the seeded schedule's turn.
  void make_room();
  // Runs all of the task here. What it throws is returned. Drops nothing.
  Ref<Failure> run_here(const Task& task, Stream& stream, std::span<Stream* const> others,
                        std::uint64_t ticket = 0) noexcept;
  // The work of a task with `later` has ended. Runs small tasks that waited for it.
  void ended(Node& node, std::exception_ptr error) noexcept;
  // A failure, with the way to repeat it in its text, for synchronize() to report.
  Ref<Failure> make_failure(std::exception_ptr error) noexcept {
    return failures_.add(std::move(error));
  }
  Event failed_event(Ref<Failure> failure);

  void wait(Node& node);
  // Waits until nothing is in flight.
  void drain();
  void rethrow_unreported() { failures_.rethrow_unreported(); }
  void run_parts(int parts, void (*run)(void* args, int part), void* args, Stream& stream);
  // Runs one part of a ready task, or parts until that node ended; false where there is none to
  // run, or enough threads run some.
  bool help(const Node* until = nullptr);

  // Where seeded: room for that many more ready nodes.
  void reserve_ready(int more);
  // For process exit: the workers finish what they run, and take no more. One that has not come
  // back by the deadline of a wait is left behind, with a warning that names its task: false then.
  // It touches nothing more of the library's.
  bool stop() noexcept;

 private:
  friend class CpuGraph;
  // Enqueueing that found too many tasks in flight goes on below this.
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
    bool comm = false;  // of a communication stream
  };

  // The task that may run as one with this one (Task::join), and whether it waits for nothing else.
  struct Joiner {
    Node* node = nullptr;
    bool ready = false;
  };
  static Joiner joiner_of(const Node& node) noexcept;

  struct Worker {
    std::thread thread;
    bool left = false;  // guarded by mutex_: it runs no more tasks, and is about to end
  };

  // Both hold mutex_. `helps`: on a thread that waits, which leaves foreign tasks to the workers.
  bool take_part(Part& part, bool helps) noexcept;
  // Takes it from compute_ if this is its last part; null where there is none for this thread.
  Node* next_to_compute(bool helps) noexcept;
  void run_part(const Part& part, bool on_worker) noexcept;
  // Starts a task with `later`; true where its end is on its way, and the node perhaps gone.
  bool start_later(Node& node, Node& carrier) noexcept;
  void end_part(Node* node) noexcept;
  // What a part does: the task's run, or the join of the task after it.
  static void run_task(Node& node, int part);
  // Ends what needs no running, queues the rest. What goes on in the stream `hot`, whose last task
  // this thread has just ended, goes first, since what it reads is in this core's cache: up to
  // kMaxStreak tasks in a row, of which `streak` were.
  void make_ready(List ready, const Stream* hot = nullptr, int streak = 0) noexcept;
  void queue(List runnable, int parts, const Stream* hot, int streak) noexcept;
  // What this thread starts and runs at once, one after another, since to hand it over would take
  // longer: tasks with `later`, and small tasks that follow one of these (executor_follow_up.cpp).
  class FollowUp;
  bool follows_up(const Node& node) const noexcept;
  void finish(Node* node, List& ready) noexcept;
  void push_locked(Node* node, bool first) noexcept;
  bool spin(const Node& node) noexcept;
  void learn_to_yield(bool yielded) noexcept;
  void start_workers();
  void worker(Worker& self) noexcept;
  void wait_for_workers(const std::vector<Worker>& workers) noexcept;
  std::uint64_t random() noexcept;  // holds mutex_

  const ExecutorOptions options_;
  std::int64_t inline_below_ns_;

  std::mutex mutex_;  // guards the queues and the numbers below it
  Queue comm_, compute_;
  std::vector<Node*> random_ready_;  // instead of the queues, where seeded; never grows
  std::size_t ready_capacity_ = 0;   // while tasks run, since that could fail
  std::uint64_t random_state_;
  int active_ = 0;       // threads that run a task
  int active_comm_ = 0;  // those of them whose task is of a communication stream
  int sleepers_ = 0;     // workers that are parked
  int spinners_ = 0;     // workers that look for work
  bool stopping_ = false;
  std::condition_variable work_;
  std::condition_variable left_;  // a worker has
  std::vector<Worker> threads_;   // never grows once they run

  std::atomic<int> ready_parts_{0};  // in the queues; written under mutex_
  std::atomic<std::int64_t> in_flight_{0};
  std::atomic<int> waiting_for_room_{0};
  std::atomic<bool> started_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<std::int64_t> yields_after_ns_{30'000};  // of a wait for other processes
  std::atomic<bool> abandoned_{false};  // the process ends without the workers that still run

  std::mutex done_mutex_;  // of those who sleep until a node ended
  std::condition_variable done_;

  FailureLog failures_;
  CallerWatch callers_{*this};
};

}  // namespace shmap::cpu
