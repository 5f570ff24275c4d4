// The deadlines of a wait for tasks of the CPU executor: what counts as time, and what is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>

#include "core/base/warning.h"
#include "shmap/error.h"
#include "tests/cpu/executor/lone_executor.h"

namespace shmap::cpu {
namespace {

using namespace testing;
using ::testing::HasSubstr;

TEST(Deadline, WarnsAndThenFails) {
  static std::atomic<int> warned;
  static std::atomic<bool> text_is_good;
  warned = 0;
  ExecutorOptions options = with(Mode::async, 0, 1);
  options.warn_sec = 0.05;
  options.timeout_sec = 0.2;
  const auto backend = make(options);
  const WarningHandler before = set_warning_handler([](std::string_view text) noexcept {
    text_is_good = text.find("'test' of local device 3, compute") != text.npos &&
                   text.find("SHMAP_COLLECTIVE_WARN_SEC") != text.npos;
    warned.fetch_add(1);
  });
  Gate gate;
  const Event e = enqueue(*backend, backend->devices()[3].compute, task_of(gate));
  gate.wait_reached();
  try {
    e.wait();
    ADD_FAILURE() << "no deadline";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("SHMAP_COLLECTIVE_TIMEOUT_SEC"));
  }
  EXPECT_EQ(warned.load(), 1);
  EXPECT_TRUE(text_is_good.load());
  gate.open = true;
  while (!e.done()) std::this_thread::yield();
  EXPECT_NO_THROW(e.wait());
  set_warning_handler(before);
}

// Waiting threads leave tasks that call user code to the workers.
template <class F>
Task foreign_task_of(F& f) {
  Task task = task_of(f);
  task.foreign = true;
  return task;
}

TEST(Deadline, WorkThatGoesOnMayTakeLong) {
  ExecutorOptions options = with(Mode::async, 0, 1);
  options.warn_sec = 0;
  options.timeout_sec = 0.5;
  const auto backend = make(options);
  auto sleep = [](const TaskContext&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  Event last;
  for (int i = 0; i < 20; ++i)
    last = enqueue(*backend, backend->devices()[0].compute, foreign_task_of(sleep));
  EXPECT_NO_THROW(last.wait());
}

TEST(Deadline, FailsWhereOneTaskIsStuckAndOthersGoOn) {
  ExecutorOptions options = with(Mode::async, 0, 2);
  options.warn_sec = 0;
  options.timeout_sec = 0.3;
  const auto backend = make(options);
  Gate gate;
  std::atomic<bool> enough{false};
  auto sleep = [&](const TaskContext&) {
    if (!enough) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  enqueue(*backend, backend->devices()[0].compute, foreign_task_of(gate));
  const Event after = enqueue(*backend, backend->devices()[0].compute, foreign_task_of(sleep));
  gate.wait_reached();
  for (int i = 0; i < 3000; ++i)
    enqueue(*backend, backend->devices()[1].compute, foreign_task_of(sleep));
  EXPECT_THROW(after.wait(), DeviceError);
  enough = true;
  gate.open = true;
  EXPECT_NO_THROW(after.wait());
}

}  // namespace
}  // namespace shmap::cpu
