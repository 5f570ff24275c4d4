// Users' kernels that do forbidden things or never end: they cause an error or a warning that names
// them instead of an endless wait, and the process can still be left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shmap/dlpack.h"
#include "shmap/extend.h"
#include "shmap/shmap.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace shmap {
namespace {

using extend::KernelArgs;
using test::ChildResult;
using test::in_child;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr const char* kExecutors[] = {"inline", "async", "seeded:3"};
// At most a few microseconds of work, which runs at enqueue; and more, which workers run.
constexpr std::int64_t kSizes[] = {64, std::int64_t{1} << 22};

Array with_kernel(const Array& x, std::function<void()> run) {
  extend::Primitive p("users_op");
  p.def_abstract_eval([](ShapedArray a) { return a; }).def_cpu_kernel([run](const KernelArgs& k) {
    run();
    std::memset(k.out[0], 0, static_cast<std::size_t>(k.in_types[0].nbytes()));
  });
  return p.bind(x);
}

// The text of what f throws, or "".
std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(KernelOfUsers, ThatWaitsIsAnErrorAndNoDeadlock) {
  struct Case {
    const char* name;
    std::function<void(const Array&)> wait;
  };
  static const auto twice = [](Array x) { return x * 2.f; };
  const std::vector<Case> cases = {
      {"block_until_ready", [](const Array& x) { x.block_until_ready(); }},
      {"save_npy", [](const Array& x) { save_npy("/tmp/no_such_file_is_written.npy", x); }},
      {"to_dlpack", [](const Array& x) { to_dlpack(x); }},
      {"to_vector", [](const Array& x) { x.to_vector<float>(); }},
      {"reshard", [](const Array& x) { device_put(x, devices()[1]); }},
      {"add", [](const Array& x) { x + 1.f; }},
      {"jit", [](const Array& x) { jit(twice)(x); }},
  };
  for (const char* executor : kExecutors) {
    for (const std::int64_t size : kSizes) {
      for (const Case& c : cases) {
        SCOPED_TRACE(std::string(executor) + ", " + std::to_string(size) + ", " + c.name);
        const ChildResult r =
            in_child({{"SHMAP_DEVICES", "cpu:8"}, {"SHMAP_EXECUTOR", executor}}, [&] {
              alarm(20);
              static const Array other = arange(size) + 0.f;
              jit(twice)(other).block_until_ready();
              const std::string text =
                  error_of([&] { with_kernel(other, [&] { c.wait(other); }).block_until_ready(); });
              // The failed task holds nothing up: the next call is right.
              std::printf("%s\n%g", text.c_str(),
                          static_cast<double>(sum(ones({8}) + 1.f).item<float>()));
            });
        EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
        EXPECT_THAT(r.output, HasSubstr(c.name));
        EXPECT_THAT(r.output, HasSubstr("users_op (op "));
        EXPECT_THAT(r.output, HasSubstr("\n16"));
      }
    }
  }
}

// A function under jit whose own kernel calls it.
std::function<void()> call_again;

TEST(KernelOfUsers, ThatCallsTheFunctionItRunsInIsAnError) {
  const ChildResult r = in_child({{"SHMAP_DEVICES", "cpu:8"}}, [] {
    alarm(20);
    static const Array x = ones({8});
    static const auto f = jit([](Array y) {
      return with_kernel(y, [] {
        static thread_local int depth = 0;
        if (depth++ == 0) call_again();
      });
    });
    call_again = [] { f(x); };
    std::printf("%s", error_of([&] { f(x).block_until_ready(); }).c_str());
  });
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  EXPECT_THAT(r.output, HasSubstr("under jit"));
}

void forever() {
  for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

const std::vector<std::pair<std::string, std::string>> kShort = {
    {"SHMAP_DEVICES", "cpu:8"},
    {"SHMAP_EXECUTOR", "async"},
    {"SHMAP_WORKERS", "2"},
    {"SHMAP_COLLECTIVE_WARN_SEC", "0.3"},
    {"SHMAP_COLLECTIVE_TIMEOUT_SEC", "0.8"}};

// The waiting thread leaves the kernel to a worker, so that its wait ends, and so does the process.
// A task that began while the trace was recorded records itself when it ends.
TEST(KernelOfUsers, ThatRunsOnAnotherThreadWhereATraceEnds) {
  const ChildResult r = in_child({{"SHMAP_DEVICES", "cpu:1"}}, [] {
    const test::TempFolder folder("trace_ends");
    const Array x = ones({64});
    std::atomic<bool> stop{false};
    std::thread other([&] {
      while (!stop)
        with_kernel(x, [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
    });
    for (int i = 0; i < 40; ++i) {
      {
        const profiler::Trace trace(folder / "trace.json");
        Array y = x;
        for (int k = 0; k < 10; ++k) y = y + 1.f;
      }
      // Takes the memory that the trace had.
      std::vector<std::vector<char>> taken;
      for (std::size_t k = 0; k < 200; ++k) taken.emplace_back(16 + k * 4, '\xff');
    }
    stop = true;
    other.join();
  });
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
}

TEST(KernelOfUsers, ThatThrowsAnythingInATraceIsAWarning) {
  const ChildResult r = in_child({{"SHMAP_DEVICES", "cpu:1"}}, [] {
    const test::TempFolder folder("trace_of_failure");
    const profiler::Trace trace(folder / "trace.json");
    with_kernel(ones({64}), [] { throw 42; });
  });
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  EXPECT_THAT(r.output, HasSubstr("trace.json"));
}

// An exception that owns an array gives the array's memory back where it is destroyed, which must
// not happen under a lock of the allocator or of the log of failures.
TEST(KernelOfUsers, ThatThrowsAnArrayHoldsNothingUp) {
  for (const char* executor : kExecutors) {
    SCOPED_TRACE(executor);
    const ChildResult r = in_child({{"SHMAP_DEVICES", "cpu:1"}, {"SHMAP_EXECUTOR", executor}}, [] {
      struct Held {
        Array array;
      };
      constexpr std::int64_t kElements = kSizes[1];
      for (int i = 0; i < 150; ++i) {  // more than the log keeps
        const auto payload = std::make_shared<Array>(full({4096}, static_cast<float>(i)));
        payload->block_until_ready();
        Array x = ones({i % 2 == 0 ? kElements / 16 : 64});
        x.block_until_ready();
        with_kernel(x, [payload] { throw Held{std::move(*payload)}; });  // nobody reads the result
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      for (int i = 0; i < 300; ++i) (ones({3000}) * 2.f).block_until_ready();
      std::printf("went on");
    });
    EXPECT_THAT(r.output, HasSubstr("went on")) << "signal " << r.signal;
  }
}

TEST(KernelOfUsers, ThatNeverEndsIsNamedByTheWaitAndAtExit) {
  const auto start = Clock::now();
  const ChildResult r = in_child(kShort, [] {
    const Array x = arange(kSizes[1]) + 0.f;
    x.block_until_ready();
    const Array y = exp(with_kernel(x, forever));
    std::printf("[%s]\n", error_of([&] { y.block_until_ready(); }).c_str());
    std::fflush(stdout);
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  const std::size_t thrown = r.output.find('[');
  ASSERT_NE(thrown, r.output.npos) << r.output;
  const std::string warned = r.output.substr(0, thrown);
  const std::string error = r.output.substr(thrown, r.output.find(']') - thrown);
  const std::string at_exit = r.output.substr(r.output.find(']'));
  EXPECT_THAT(warned, HasSubstr("users_op (op "));
  EXPECT_THAT(warned, HasSubstr("SHMAP_COLLECTIVE_WARN_SEC"));
  EXPECT_THAT(error, HasSubstr("running: users_op (op "));
  EXPECT_THAT(error, HasSubstr("CpuDevice(id=0)"));
  EXPECT_THAT(error, HasSubstr("SHMAP_COLLECTIVE_TIMEOUT_SEC"));
  EXPECT_THAT(at_exit, HasSubstr("about to end"));
  EXPECT_THAT(at_exit, HasSubstr("running: users_op (op "));
  EXPECT_THAT(at_exit, HasSubstr("It ends without them now"));
}

// The kernels run on every device at once, so that all workers are stuck. An op of the library's
// also has its line in the text.
TEST(KernelOfUsers, ThatNeverEndIsNamedOnAllWorkers) {
  auto environment = kShort;
  environment.push_back({"SHMAP_FAULT", "kernel@3#2:sleep=30000"});
  int line = 0;
  const ChildResult r = in_child(environment, [&] {
    const Mesh mesh = make_mesh({8}, "i");
    const Array x = device_put(zeros({kSizes[1]}), {mesh, P("i")});
    x.block_until_ready();
    const Array y = exp(sin(x));
    std::printf("[%s]\n", error_of([&] { y.block_until_ready(); }).c_str());
    std::fflush(stdout);
  });
  line = __LINE__ - 4;
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  const std::string error = r.output.substr(r.output.find('['));
  EXPECT_THAT(error, HasSubstr("CpuDevice(id=3)"));
  EXPECT_THAT(error, HasSubstr("kernels_of_users_test.cpp:" + std::to_string(line)));
}

// A kernel that runs on the calling thread is named, and may end in time.
TEST(KernelOfUsers, ThatKeepsItsCallerIsNamed) {
  for (const char* executor : kExecutors) {
    auto environment = kShort;
    environment.push_back({"SHMAP_EXECUTOR", executor});
    environment.push_back({"SHMAP_COLLECTIVE_TIMEOUT_SEC", "30"});
    const ChildResult r = in_child(environment, [] {
      const Array x = arange(64) + 0.f;
      with_kernel(x, [] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      }).block_until_ready();
      std::printf("done");
    });
    SCOPED_TRACE(executor);
    EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
    EXPECT_THAT(r.output, HasSubstr("the kernel of users_op (op "));
    EXPECT_THAT(r.output, HasSubstr("CpuDevice(id=0)"));
    EXPECT_THAT(r.output, HasSubstr("SHMAP_COLLECTIVE_WARN_SEC"));
    EXPECT_THAT(r.output, HasSubstr("done"));
  }
}

// The thread that called it cannot be taken back, so that after the timeout the process ends.
TEST(KernelOfUsers, ThatNeverReturnsToItsCallerEndsTheProcess) {
  for (const char* executor : kExecutors) {
    SCOPED_TRACE(executor);
    auto environment = kShort;
    environment.push_back({"SHMAP_EXECUTOR", executor});
    const auto start = Clock::now();
    const ChildResult r = in_child(environment, [] {
      const Array x = arange(64) + 0.f;
      with_kernel(x, forever).block_until_ready();
      std::printf("done");
    });
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
    EXPECT_EQ(r.exit_code, 1) << r.output << " signal " << r.signal;
    EXPECT_THAT(r.output, HasSubstr("SHMAP_COLLECTIVE_WARN_SEC"));
    const std::string end = r.output.substr(std::min(r.output.size(), r.output.rfind("shmap: ")));
    EXPECT_THAT(end, HasSubstr("the kernel of users_op (op "));
    EXPECT_THAT(end, HasSubstr("CpuDevice(id=0)"));
    EXPECT_THAT(end, HasSubstr("kernels_of_users_test.cpp:"));
    EXPECT_THAT(end, HasSubstr("longer than SHMAP_COLLECTIVE_TIMEOUT_SEC"));
    EXPECT_THAT(end, HasSubstr("this process ends now"));
    EXPECT_EQ(r.output.find("done"), r.output.npos);
  }
}

// Also where exit() waits for a thread that is in such a kernel, and where what exit() calls runs
// one, after the library has stopped its devices.
TEST(KernelOfUsers, ThatNeverReturnsAtExitEndsTheProcess) {
  static std::function<void()>& at_exit = *new std::function<void()>;
  for (const bool begun_before : {true, false}) {
    SCOPED_TRACE(begun_before);
    const ChildResult r = in_child(kShort, [&] {
      std::atexit([] { at_exit(); });  // runs after the handlers that the library registers
      const auto* const x = new Array(arange(64) + 0.f);
      const auto call = [x] { with_kernel(*x, forever).block_until_ready(); };
      if (begun_before) {
        auto* const thread = new std::thread(call);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        at_exit = [thread] { thread->join(); };
      } else {
        at_exit = call;
      }
      std::printf("main ends\n");
      std::fflush(stdout);
    });
    EXPECT_EQ(r.exit_code, 1) << r.output << " signal " << r.signal;
    EXPECT_THAT(r.output, HasSubstr("main ends"));
    EXPECT_THAT(r.output, HasSubstr("the kernel of users_op (op "));
    EXPECT_THAT(r.output, HasSubstr("this process ends now"));
  }
}

// There is no warning about kernels that end in time, and a process that used them leaves at once.
TEST(KernelOfUsers, ThatEndsInTimeIsNotSpokenOf) {
  for (const char* executor : kExecutors) {
    auto environment = kShort;
    environment.push_back({"SHMAP_EXECUTOR", executor});
    const ChildResult r = in_child(environment, [] {
      for (int i = 0; i < 200; ++i) {
        const Array x = arange(kSizes[i % 50 == 0]) + 0.f;
        with_kernel(x, [] {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }).block_until_ready();
      }
      std::printf("done");
    });
    EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
    EXPECT_EQ(r.output, "done") << executor;
  }
}

}  // namespace
}  // namespace shmap
