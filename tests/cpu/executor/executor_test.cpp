// Properties of the CPU executor alone: its modes, seeds, and its behaviour at fork() and exit().
#include "core/cpu/executor/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/fault.h"
#include "core/cpu/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/runtime.h"
#include "core/device/timeline.h"
#include "shmap/error.h"
#include "tests/cpu/executor/lone_executor.h"
#include "tests/support/timeline_scope.h"

namespace shmap::cpu {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(ExecutorOptions, ReadsItsVariables) {
  auto mode_of = [](const char* text) {
    const Environment e("SHMAP_EXECUTOR", text);
    return ExecutorOptions::from_environment();
  };
  EXPECT_EQ(mode_of("").mode, Mode::async);
  EXPECT_EQ(mode_of("async").mode, Mode::async);
  EXPECT_EQ(mode_of("inline").mode, Mode::inline_);
  EXPECT_EQ(mode_of("seeded").seed, 0u);
  EXPECT_EQ(mode_of("seeded:18446744073709551615").seed, UINT64_MAX);
  for (const char* bad : {"asynch", "seeded:", "seeded:-1", "seeded:1x", "SEEDED", "inline:2",
                          "seeded:18446744073709551616"}) {
    try {
      mode_of(bad);
      FAIL() << bad;
    } catch (const ValueError& e) {
      EXPECT_THAT(e.what(), HasSubstr("SHMAP_EXECUTOR=\"" + std::string(bad) + "\""));
      EXPECT_THAT(e.what(), HasSubstr("inline, async, seeded"));
    }
  }
}

// There is one worker, and ten tasks are queued in each of two streams before the first may begin.
TEST(ExecutorOrder, AStreamGoesOnWhereItsLastTaskEndedButNotForEver) {
  const auto backend = make(with(Mode::async, 0, 1));
  std::atomic<bool> go{false};
  std::string order;
  auto wait = [&](const TaskContext&) {
    while (!go) std::this_thread::yield();
  };
  auto a = [&](const TaskContext&) { order += 'a'; };
  auto b = [&](const TaskContext&) { order += 'b'; };
  const Event gate = enqueue(*backend, backend->devices()[2].compute, task_of(wait));
  for (int i = 0; i < 10; ++i) {
    for (auto* stream : {backend->devices()[0].compute, backend->devices()[1].compute}) {
      const bool first = stream == backend->devices()[0].compute;
      enqueue(*backend, stream, first ? task_of(a) : task_of(b), {gate});
    }
  }
  go = true;
  backend->synchronize();
  EXPECT_EQ(order, "aaabbbaaabbbaaabbbab");
}

// The order in which 40 independent tasks ran.
std::vector<int> order_of(Mode mode, std::uint64_t seed) {
  const auto backend = make(with(mode, seed));
  std::vector<int> order;
  struct Item {
    std::vector<int>* order;
    int i;
    void operator()(const TaskContext&) { order->push_back(i); }
  };
  std::vector<Item> items;
  for (int i = 0; i < 40; ++i) items.push_back({&order, i});
  for (int i = 0; i < 40; ++i) {
    const LocalDevice& d = backend->devices()[static_cast<std::size_t>(i) % 8];
    enqueue(*backend, i % 2 == 0 ? d.compute : d.comm, task_of(items[static_cast<std::size_t>(i)]));
  }
  backend->synchronize();
  EXPECT_EQ(order.size(), 40u);
  return order;
}

TEST(Seeded, OneSeedIsOneOrder) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    EXPECT_EQ(order_of(Mode::seeded, seed), order_of(Mode::seeded, seed));
    EXPECT_NE(order_of(Mode::seeded, seed), order_of(Mode::seeded, seed + 1));
    EXPECT_NE(order_of(Mode::seeded, seed), order_of(Mode::inline_, 0));
  }
}

TEST(Seeded, KeepsTheOrderOfAStream) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<int> order = order_of(Mode::seeded, seed);
    for (int stream = 0; stream < 8; ++stream) {
      int before = -1;
      for (int i : order) {
        if (i % 8 != stream) continue;
        EXPECT_GT(i, before);
        before = i;
      }
    }
  }
}

TEST(Seeded, AnErrorSaysHowToRepeatIt) {
  const auto backend = make(with(Mode::seeded, 77));
  EXPECT_EQ(backend->repro(), "SHMAP_EXECUTOR=seeded:77");
  auto bad = [](const TaskContext&) { throw TypeError("wrong"); };
  const Event e = enqueue(*backend, backend->devices()[0].compute, task_of(bad));
  try {
    e.wait();
    FAIL();
  } catch (const TypeError& error) {
    EXPECT_STREQ(error.what(), "wrong\n  repeat with SHMAP_EXECUTOR=seeded:77");
  }
}

TEST(Inline, RunsInProgramOrderOnThisThread) {
  const std::vector<int> order = order_of(Mode::inline_, 0);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  const auto backend = make(with(Mode::inline_));
  std::thread::id id;
  auto note = [&](const TaskContext&) { id = std::this_thread::get_id(); };
  EXPECT_TRUE(enqueue(*backend, backend->devices()[0].compute, task_of(note)).done());
  EXPECT_EQ(id, std::this_thread::get_id());
}

TEST(Inline, RefusesWhatIsNotDone) {
  Gate gate;
  const auto other = make(with(Mode::async));
  const auto backend = make(with(Mode::inline_));
  const Event pending = enqueue(*other, other->devices()[0].compute, task_of(gate));
  gate.wait_reached();
  std::thread opener([&] { gate.open = true; });
  // The executor waits for another executor's event. An inline executor never has a pending event
  // of its own.
  int ran = 0;
  auto count = [&](const TaskContext&) { ++ran; };
  const Event e = enqueue(*backend, backend->devices()[0].compute, task_of(count), {pending});
  EXPECT_TRUE(e.done());
  EXPECT_TRUE(pending.done());
  EXPECT_EQ(ran, 1);
  opener.join();
}

TEST(Async, SmallTasksRunAtEnqueueAndLargeOnesDoNot) {
  const auto backend = make(with(Mode::async));
  Stream* stream = backend->devices()[0].compute;
  std::thread::id id;
  auto note = [&](const TaskContext&) { id = std::this_thread::get_id(); };
  {
    std::lock_guard lock(backend->submit_mutex());
    EXPECT_TRUE(stream->runs_at_once(0));
    EXPECT_FALSE(stream->runs_at_once(kLarge));
  }
  EXPECT_TRUE(enqueue(*backend, stream, task_of(note, 100)).done());
  EXPECT_EQ(id, std::this_thread::get_id());
  // The task does not run before a pending task on its stream.
  Gate gate;
  const Event first = enqueue(*backend, stream, task_of(gate));
  EXPECT_FALSE(first.done());
  {
    std::lock_guard lock(backend->submit_mutex());
    EXPECT_FALSE(stream->runs_at_once(0));
    EXPECT_FALSE(stream->idle());
  }
  const Event second = enqueue(*backend, stream, task_of(note, 100));
  EXPECT_FALSE(second.done());
  gate.open = true;
  second.wait();
  EXPECT_TRUE(first.done());
}

TEST(Async, PartsRunAtTheSameTime) {
  const auto backend = make(with(Mode::async, 0, 2));
  std::atomic<int> inside{0};
  auto meet = [&](const TaskContext&) {  // ends only if the other part runs too
    inside.fetch_add(1);
    while (inside.load() < 2) std::this_thread::yield();
  };
  enqueue(*backend, backend->devices()[0].compute, task_of(meet, kLarge, 2)).wait();
  EXPECT_EQ(inside.load(), 2);
}

TEST(Async, AThreadRunsTheSamePartOfTasksThatFollowEachOther) {
  const auto backend = make(with(Mode::async));
  Stream* const stream = backend->devices()[0].compute;
  // Each part waits for the other one, so that the two workers run one part each. The caller runs
  // none, since it waits for no task.
  constexpr int kTasks = 200;
  std::atomic<int> begun{0}, ended{0};
  std::thread::id first_by[kTasks];
  auto part = [&](const TaskContext& context) {
    const int task = begun.fetch_add(1) / 2;
    while (begun.load() < 2 * (task + 1)) std::this_thread::yield();
    if (context.part == 0) first_by[task] = std::this_thread::get_id();
    ended.fetch_add(1);
  };
  for (int i = 0; i < kTasks; ++i) enqueue(*backend, stream, task_of(part, kLarge, 2));
  while (ended.load() < 2 * kTasks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int i = 1; i < kTasks; ++i) EXPECT_EQ(first_by[i], first_by[0]) << "task " << i;
}

TEST(Async, NoMoreThreadsRunTasksThanWorkers) {
  for (int workers : {1, 3}) {
    const auto backend = make(with(Mode::async, 0, workers));
    std::atomic<int> now{0}, most{0};
    auto work = [&](const TaskContext&) {
      const int n = now.fetch_add(1) + 1;
      for (int m = most; m < n && !most.compare_exchange_weak(m, n);) {
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      now.fetch_sub(1);
    };
    for (int i = 0; i < 200; ++i) {
      enqueue(*backend, backend->devices()[static_cast<std::size_t>(i) % 8].compute, task_of(work));
    }
    backend->synchronize();
    EXPECT_LE(most.load(), workers);
  }
}

thread_local bool stays_in_its_look = false;

// Enqueues two tasks, one after the other, while another thread waits for a third and looks: it
// takes one of the two. Returns whether both have begun, although neither ends.
bool both_begin(int cores, std::int64_t cost_ns) {
  static std::atomic<bool> looks, looked_enough;
  looks = looked_enough = false;
  ExecutorOptions options = with(Mode::async, 0, 4);
  options.cores = cores;
  options.look = []() noexcept {
    if (stays_in_its_look) {
      looks = true;
      while (!looked_enough) std::this_thread::yield();
    }
    return detail::LookAgain::no_reason;
  };
  const auto backend = make(options);
  Gate awaited, first, second;
  const Event end = enqueue(*backend, backend->devices()[0].compute, task_of(awaited));
  awaited.wait_reached();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the other workers sleep
  std::thread waits([&] {
    stays_in_its_look = true;
    end.wait();
  });
  while (!looks) std::this_thread::yield();
  enqueue(*backend, backend->devices()[1].compute, task_of(first, cost_ns));
  enqueue(*backend, backend->devices()[2].compute, task_of(second, cost_ns));
  looked_enough = true;
  const auto both = [&] { return first.reached && second.reached; };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!both() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  const bool begun = both();
  awaited.open = first.open = second.open = true;
  waits.join();
  backend->synchronize();
  return begun;
}

TEST(Async, WhatBecomesReadyWhileAThreadLooksRunsAtTheSameTime) {
  // A worker is woken where a core is idle, by the thread that enqueues.
  EXPECT_TRUE(both_begin(8, 100'000));
  // Where it is not, by the thread that looks, if what it takes is long.
  EXPECT_TRUE(both_begin(2, 100'000'000));
}

// The case of the copy after an exchange with another process, which a waiting thread ends.
TEST(Async, WhatALookMakesReadyRunsOnTheThreadThatLooks) {
  static std::atomic<TaskEnd*> end;
  static std::atomic<int> looks;
  static std::atomic<bool> started;
  ExecutorOptions options = with(Mode::async, 0, 2);
  options.look = []() noexcept {
    if (!started) return detail::LookAgain::no_reason;
    if (TaskEnd* const begun = end.load(); begun != nullptr && ++looks == 1000) {
      end.store(nullptr);
      begun->end(nullptr);
    }
    return detail::LookAgain::moved;
  };
  const auto backend = make(options);
  Stream* const stream = backend->devices()[0].compute;
  auto nothing = [](const TaskContext&) {};
  enqueue(*backend, stream, task_of(nothing)).wait();  // the workers have started
  started = true;
  int here = 0;
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // and sleep
    looks = 0;
    auto begin = [](const TaskContext& c) { end = c.end; };
    Task exchange = task_of(begin);
    exchange.later = true;
    std::thread::id ran;
    auto copy = [&](const TaskContext&) { ran = std::this_thread::get_id(); };
    enqueue(*backend, stream, exchange);
    enqueue(*backend, stream, task_of(copy)).wait();
    here += ran == std::this_thread::get_id();
  }
  started = false;
  EXPECT_GE(here, 18);  // a worker may wake without a reason
}

TEST(Async, CommunicationGoesFirst) {
  const auto backend = make(with(Mode::async, 0, 1));
  Gate gate;
  enqueue(*backend, backend->devices()[0].compute, task_of(gate));
  gate.wait_reached();  // the only worker is busy: all that follows queues up
  std::vector<int> order;
  auto compute = [&](const TaskContext&) { order.push_back(0); };
  auto comm = [&](const TaskContext&) { order.push_back(1); };
  enqueue(*backend, backend->devices()[1].compute, task_of(compute));
  enqueue(*backend, backend->devices()[2].compute, task_of(compute));
  enqueue(*backend, backend->devices()[3].comm, task_of(comm));
  gate.open = true;
  backend->synchronize();
  EXPECT_THAT(order, ElementsAre(1, 0, 0));
}

TEST(Async, TheWorkersAreThoseOfTheAffinityMask) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_EQ(make(with(Mode::async, 0, 0))->workers(), available_cores());
}

TEST(Timeline, HasEveryTaskOnce) {
  for (const Mode mode : {Mode::inline_, Mode::async, Mode::seeded}) {
    const auto backend = make(with(mode));
    TimelineRecorder recorder;
    auto nothing = [](const TaskContext&) {};
    std::optional<test::TimelineScope> recording;
    recording.emplace(recorder, *backend);
    for (int i = 0; i < 10; ++i) {
      const LocalDevice& d = backend->devices()[static_cast<std::size_t>(i) % 8];
      Task task = task_of(nothing, i % 2 == 0 ? 0 : kLarge, 1 + i % 3);
      task.name = i % 2 == 0 ? "small" : "large";
      task.bytes = i;
      enqueue(*backend, i < 5 ? d.compute : d.comm, task);
    }
    Stream* both[] = {backend->devices()[6].comm, backend->devices()[7].comm};
    {
      Task task = task_of(nothing);
      task.name = "group";
      std::lock_guard lock(backend->submit_mutex());
      backend->enqueue_group(both, task, {});
    }
    backend->synchronize();
    recording.reset();
    enqueue(*backend, backend->devices()[0].compute, task_of(nothing)).wait();
    const std::vector<TimelineEvent> events = recorder.take();
    ASSERT_EQ(events.size(), 12u);
    std::int64_t bytes = 0;
    int comm = 0, group = 0;
    for (const TimelineEvent& e : events) {
      EXPECT_LE(e.begin_ns, e.end_ns);
      EXPECT_GT(e.begin_ns, 0);
      bytes += e.bytes;
      comm += e.role == StreamRole::comm;
      if (std::string(e.name) == "group") group += e.device;
    }
    EXPECT_EQ(bytes, 45);
    EXPECT_EQ(comm, 7);
    EXPECT_EQ(group, 13);
    EXPECT_EQ(recorder.lost(), 0);
  }
}

// A replay uses no heap after the first one: the memory in use by malloc does not change, whatever
// the number of launches.
TEST(Graph, LaunchesAllocateNothing) {
  for (const std::int64_t cost : {std::int64_t{0}, kLarge}) {
    const auto backend = make(with(Mode::async));
    std::atomic<int> ran{0};
    auto count = [&](const TaskContext&) { ran.fetch_add(1); };
    Ref<Graph> graph;
    {
      CaptureScope capture(*backend);
      Event e;
      for (int i = 0; i < 32; ++i) {
        const LocalDevice& d = backend->devices()[static_cast<std::size_t>(i) % 8];
        e = enqueue(*backend, i % 2 == 0 ? d.compute : d.comm, task_of(count, cost), {e});
      }
      graph = capture.end();
    }
    auto launch = [&] {
      Event e;
      {
        std::lock_guard lock(backend->submit_mutex());
        e = graph->launch();
      }
      e.wait();
    };
    launch();
    const std::int64_t before = Node::made();
    for (int i = 0; i < 100; ++i) launch();
    EXPECT_EQ(Node::made(), before);
    EXPECT_EQ(ran.load(), 101 * 32);
  }
}

TEST(Runtime, ManyDevicesAreCheap) {
  for (const char* devices : {"cpu:512", "cpu:4096", "cpu:4096/4096"}) {
    const auto backend = make(with(Mode::async), devices);
    int ran = 0;
    auto count = [&](const TaskContext&) { ++ran; };
    {
      std::lock_guard lock(backend->submit_mutex());
      for (const LocalDevice& d : backend->devices()) d.compute->enqueue(task_of(count, 0), {});
    }
    EXPECT_EQ(ran, static_cast<int>(backend->devices().size()));
    EXPECT_NE(backend->devices().back().space->allocate(100)->data(), nullptr);
    backend->synchronize();
  }
}

// The exit code of a child process: 0 if `body` threw a DeviceError whose text mentions the fork.
template <class F>
int in_child(F body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    int code = 1;
    try {
      body();
    } catch (const DeviceError& e) {
      code = std::string(e.what()).find("forked") != std::string::npos ? 0 : 2;
    } catch (...) {
      code = 3;
    }
    _exit(code);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Fork, AChildGetsAnErrorInsteadOfAHang) {
  const auto backend = make(with(Mode::async));
  auto nothing = [](const TaskContext&) {};
  Stream* stream = backend->devices()[0].compute;
  enqueue(*backend, stream, task_of(nothing)).wait();  // the workers run
  BufferRef buffer = backend->devices()[0].space->allocate(64);
  Gate gate;
  const Event pending = enqueue(*backend, stream, task_of(gate));
  runtime();
  EXPECT_EQ(in_child([&] { pending.wait(); }), 0);
  EXPECT_EQ(in_child([&] { stream->enqueue(task_of(nothing), {}); }), 0);
  EXPECT_EQ(in_child([&] { stream->enqueue(task_of(nothing, 0), {}); }), 0);
  EXPECT_EQ(in_child([&] { backend->devices()[0].space->allocate(64); }), 0);
  EXPECT_EQ(in_child([&] { backend->synchronize(); }), 0);
  EXPECT_EQ(in_child([&] { backend->begin_capture(); }), 0);
  EXPECT_EQ(in_child([&] { runtime(); }), 0);
  EXPECT_EQ(in_child([&] {
              buffer.reset();  // nothing to be done with it, and no hang
              throw_forked();
            }),
            0);
  gate.open = true;
  EXPECT_NO_THROW(pending.wait());  // the parent goes on
}

TEST(ExitDeathTest, BuffersAndTasksMayBeAliveAtExit) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        static BufferRef buffer;
        static std::atomic<int> spins;
        Backend& backend = runtime().backend();
        buffer = backend.devices()[0].space->allocate(1 << 20);
        auto* work = new auto([](const TaskContext&) {
          for (spins = 0; spins < 1000; ++spins) std::this_thread::yield();
        });
        for (int i = 0; i < 100; ++i) {
          buffer->def() = enqueue(backend, backend.devices()[0].compute, task_of(*work));
        }
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace shmap::cpu
