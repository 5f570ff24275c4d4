// shmap-test: gpu
// Mistakes of a process as a whole: fork after use, environment variables that cannot be read,
// signals, several processes at once, one core for all. Each case runs in a child, so that this
// process never uses a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shmap/collectives.h"
#include "shmap/jit.h"
#include "shmap/ops.h"
#include "shmap/profiler.h"
#include "shmap/saved_checkpoint.h"
#include "shmap/shard_map.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace shmap {
namespace {

using test::asks_for_gpus;
using test::ChildResult;
using test::executors;
using test::in_child;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// 4 * (0 + 1 + … + 63) by way of a body and a collective.
std::int32_t small_program() {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = device_put(reshape(arange(64, i32), {8, 8}), {mesh, P("i", "j")});
  const Array y =
      shard_map([](Array b) { return psum(b, "i") + b * 0; }, mesh, {P("i", "j")}, P("i", "j"))(x);
  return sum(y).item<std::int32_t>();
}
constexpr std::int32_t kWanted = 4 * 63 * 32;

void expect_small_program(const std::vector<std::pair<std::string, std::string>>& environment) {
  const ChildResult r = in_child(environment, [] { std::printf("%d", small_program()); });
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  EXPECT_EQ(r.output, std::to_string(kWanted));
}

TEST(Fork, AfterUseIsAClearErrorInTheChild) {
  for (const char* executor : executors()) {
    SCOPED_TRACE(executor);
    const ChildResult r = in_child({{"SHMAP_EXECUTOR", executor}}, [] {
      const Array x = arange(8, i32) + 1;
      if (small_program() != kWanted) throw Error("wrong before the fork");
      const std::function<void()> uses[] = {[&] { x + 1; },
                                            [&] { device_put(x, devices()[1]); },
                                            [&] { sum(x); },
                                            [] { small_program(); },
                                            [] { zeros({3}); },
                                            [] { devices(); },
                                            [] { make_mesh({2}, "i"); }};
      for (const auto& use : uses) {
        const ChildResult inner = in_child({}, use);
        std::printf("%d %s\n", inner.exit_code, inner.output.c_str());
        if (inner.exit_code != 1 || inner.output.find("fork") == std::string::npos)
          throw Error("no clear error in the forked child, signal " + std::to_string(inner.signal) +
                      ": " + inner.output);
      }
      // Values from before the fork are in host memory, which the child may read; the memory of a
      // GPU the child may not read.
      const ChildResult idle = in_child({}, [&] {
        Array copy = x;
        if (copy.to_vector<std::int32_t>().back() != 8) throw Error("another value");
      });
      const bool clear = asks_for_gpus()
                             ? idle.exit_code == 1 && idle.output.find("fork") != std::string::npos
                             : idle.exit_code == 0;
      if (!clear) throw Error("a child that reads: " + idle.output);
      if (small_program() != kWanted) throw Error("wrong after the fork");
    });
    EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  }
}

// Neither waits in the child for threads of the parent, nor writes into the parent's file.
TEST(Fork, WhileSavesAndATraceAreUnderWay) {
  const ChildResult r = in_child({}, [] {
    const test::TempFolder folder("fork_while_saving");
    const std::string trace_file = folder / "trace.json";
    {
      const profiler::Trace trace(trace_file);
      const Array x = ones({1 << 20});
      x.block_until_ready();
      // The second save waits for the first, which waits for the child.
      int step[2];
      if (pipe(step) != 0) throw Error("no pipe");
      const auto held = [&](std::int64_t, std::int64_t) {
        char byte = 0;
        (void)!read(step[0], &byte, 1);
      };
      PendingCheckpoint first = save_checkpoint_async(folder / "run", x, {.progress = held});
      PendingCheckpoint second = save_checkpoint_async(folder / "run", x);
      const ChildResult inner = in_child({}, [&] {
        try {
          second.wait();
        } catch (const DeviceError& e) {
          std::printf("%s", e.what());
        }
        PendingCheckpoint a = std::move(first), b = std::move(second);
      });
      close(step[1]);
      first.wait();
      second.wait();
      if (inner.exit_code != 0 || inner.output.find("fork") == std::string::npos)
        throw Error("the child: signal " + std::to_string(inner.signal) + ": " + inner.output);
    }
    std::ifstream in(trace_file);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    if (text.find("\"traceEvents\"") != text.rfind("\"traceEvents\"") || text.empty())
      throw Error("the trace file has the texts of two processes: " + text.substr(0, 2000));
  });
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
}

TEST(Fork, BeforeUseIsFine) { expect_small_program({}); }

TEST(MovedFrom, ArraySaysSo) {
  const ChildResult r = in_child({}, [] {
    Array x = arange(4, i32);
    const Array y = std::move(x);
    const std::function<void()> uses[] = {[&] { x + 1; },
                                          [&] { sum(x); },
                                          [&] { x.shape(); },
                                          [&] { x.dtype(); },
                                          [&] { x[0]; },
                                          [&] { x.to_vector<std::int32_t>(); },
                                          [&] { x.block_until_ready(); },
                                          [&] { x.item<int>(); },
                                          [&] {
                                            concatenate({y, x});
                                          },
                                          [&] { device_put(x, devices()[0]); }};
    int k = 0;
    for (const auto& use : uses) {
      try {
        use();
        throw std::runtime_error("use " + std::to_string(k) + " of an empty array passed");
      } catch (const Error& e) {
        if (std::string(e.what()).find("moved") == std::string::npos)
          throw std::runtime_error("use " + std::to_string(k) + ": " + e.what());
      }
      ++k;
    }
    x = y + 1;  // to be assigned again
    std::printf("%d", sum(x).item<std::int32_t>());
  });
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(r.output, "10");
}

TEST(Environment, WhatCannotBeReadIsNamed) {
  const struct {
    const char *name, *value;
    std::vector<const char*> fragments;
  } kCases[] = {
      {"SHMAP_DEVISES", "cpu:8", {"SHMAP_DEVISES", "SHMAP_DEVICES"}},
      {"SHMAP_EXECUTER", "inline", {"SHMAP_EXECUTER", "SHMAP_EXECUTOR"}},
      {"SHMAP_MEMORYLIMIT", "1G", {"SHMAP_MEMORYLIMIT", "SHMAP_MEMORY_LIMIT"}},
      {"SHMAP_DEVICES", "cpu:0", {"cpu:0"}},
      {"SHMAP_DEVICES", "cpu:-3", {"cpu:-3"}},
      {"SHMAP_DEVICES", "cpu:99999999999999999999", {"cpu:99999999999999999999"}},
      {"SHMAP_DEVICES", "cpu:8/9", {"cpu:8/9"}},
      {"SHMAP_DEVICES", "cpu:8/3", {"cpu:8/3"}},
      {"SHMAP_DEVICES", "tpu:8", {"tpu:8", "cpu"}},
      {"SHMAP_DEVICES", "\xff\xfe", {"SHMAP_DEVICES"}},
      {"SHMAP_EXECUTOR", "fast", {"SHMAP_EXECUTOR", "fast", "inline", "async", "seeded"}},
      {"SHMAP_EXECUTOR", "seeded:x", {"SHMAP_EXECUTOR", "seeded:x"}},
      {"SHMAP_WORKERS", "-1", {"SHMAP_WORKERS", "-1"}},
      {"SHMAP_WORKERS", "1e9", {"SHMAP_WORKERS", "1e9"}},
      {"SHMAP_WORKERS", "999999999", {"SHMAP_WORKERS", "999999999"}},
      {"SHMAP_MEMORY_LIMIT", "lots", {"SHMAP_MEMORY_LIMIT", "lots"}},
      {"SHMAP_MEMORY_LIMIT", "99999999999G", {"SHMAP_MEMORY_LIMIT", "99999999999G"}},
      {"SHMAP_COLLECTIVE_TIMEOUT_SEC", "soon", {"SHMAP_COLLECTIVE_TIMEOUT_SEC", "soon"}},
      {"SHMAP_COLLECTIVE_WARN_SEC", "nan", {"SHMAP_COLLECTIVE_WARN_SEC", "nan"}},
      {"SHMAP_CHECK_NANS", "maybe", {"SHMAP_CHECK_NANS", "maybe"}},
      {"SHMAP_FAULT", "kernel", {"SHMAP_FAULT", "kernel"}},
      {"SHMAP_FAULT", "kernel#0:throw", {"SHMAP_FAULT", "kernel#0:throw"}},
      {"SHMAP_FAULT",
       "kernal:throw",
       {"SHMAP_FAULT", "kernal:throw", "collective, finish, kernel"}},
      {"SHMAP_GRAPHS", "x", {"SHMAP_GRAPHS", "\"x\"", "auto, one, per_gpu"}},
      {"SHMAP_COMMUNICATOR", "mpi", {"SHMAP_COMMUNICATOR", "mpi", "auto, in_process, nccl"}},
      {"SHMAP_LINK", "y", {"SHMAP_LINK", "\"y\"", "direct, staged"}},
      {"SHMAP_ALONE", "perhaps", {"SHMAP_ALONE", "perhaps"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(std::string(c.name) + "=" + c.value);
    const ChildResult r = in_child({{c.name, c.value}}, [] { small_program(); });
    EXPECT_EQ(r.exit_code, 1) << r.output << " signal " << r.signal;
    for (const char* fragment : c.fragments) EXPECT_THAT(r.output, HasSubstr(fragment));
  }
}

TEST(Environment, IsReadWholeAlsoWhereOptionsAreStronger) {
  const ChildResult r = in_child({{"SHMAP_DEVICES", "tpu:8"}}, [] {
    int argc = 0;
    char** argv = nullptr;
    init(argc, argv, {.devices = "cpu:2"});
  });
  EXPECT_EQ(r.exit_code, 1) << r.output;
  EXPECT_THAT(r.output, HasSubstr("tpu:8"));
}

// The data that getenv reads in other threads: the list, the addresses of its entries, and their
// texts.
std::vector<std::pair<const char*, std::string>> environment_entries() {
  std::vector<std::pair<const char*, std::string>> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry, *entry);
  return entries;
}

TEST(Environment, IsNotWrittenAfterMainBegan) {
  for (const char* executor : executors()) {
    SCOPED_TRACE(executor);
    const ChildResult r = in_child({{"SHMAP_EXECUTOR", executor}}, [] {
      char** const list = environ;
      const auto entries = environment_entries();
      const auto unchanged = [&](const char* after) {
        if (environ != list || environment_entries() != entries)
          throw Error(std::string("the environment was written by ") + after);
      };
      devices();
      unchanged("the start of the runtime");
      (ones({4}) + 1).block_until_ready();
      unchanged("the first operation");
      for (const DType dtype : {f32, f64, bf16}) {
        const Array x = ones({96, 96}, dtype);
        matmul(x, x).block_until_ready();
        unchanged("a product");
      }
      jit([](Array x) { return sum(exp(matmul(x, x)), 0); })(ones({64, 64})).block_until_ready();
      unchanged("a program under jit");
      if (small_program() != kWanted) throw Error("wrong");
      unchanged("a collective");
    });
    EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  }
}

// -------------------------------------------------------------------------- signals and processes

// The signals that the threads of this process but the calling one have blocked, a mask each.
std::vector<std::uint64_t> blocked_by_others() {
  std::vector<std::uint64_t> masks;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      if (word != "SigBlk:") continue;
      std::uint64_t mask = 0;
      status >> std::hex >> mask;
      masks.push_back(mask);
    }
  }
  return masks;
}

TEST(Signals, RunOnTheThreadsOfTheProgram) {
  const ChildResult r = in_child({{"SHMAP_EXECUTOR", "async"}, {"SHMAP_WORKERS", "3"}}, [] {
    const Mesh mesh = make_mesh({8}, "i");
    const Array x = device_put(ones({256, 256}), {mesh, P("i")});
    const Array y = device_put(ones({256, 256}, f64), {mesh, P("i")});
    for (int k = 0; k < 4; ++k) {
      matmul(x, x).block_until_ready();
      matmul(y, y).block_until_ready();
    }
    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, nullptr, &mine);
    if (sigismember(&mine, SIGTERM) == 1) throw Error("this thread's own mask was left changed");
    const std::vector<std::uint64_t> masks = blocked_by_others();
    for (const std::uint64_t mask : masks) {
      for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGALRM, SIGUSR1, SIGUSR2}) {
        if ((mask >> (signal - 1) & 1) == 0)
          throw Error("signal " + std::to_string(signal) + " may come to a thread of the library");
      }
      if ((mask >> (SIGSEGV - 1) & 1) != 0) throw Error("SIGSEGV is blocked");
    }
    std::printf("%d", static_cast<int>(masks.size()));
  });
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  // The only threads are the workers: OpenBLAS has no pool of its own. (GPUs have more threads.)
  EXPECT_TRUE(asks_for_gpus() || r.output == "3") << r.output;
}

TEST(Launcher, ProcessesThatCannotMeetAreRefused) {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const std::pair<Variables, const char*> refused[] = {
      {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}},
       "number 2 of 4 that mpirun started (OMPI_COMM_WORLD_SIZE=4)"},
      {{{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}, "number 0 of 2 that mpirun started (PMI_SIZE=2)"},
      {{{"MV2_COMM_WORLD_SIZE", "2"}}, "one of 2 that mpirun started"},
      {{{"PMIX_RANK", "3"}}, "number 3 of several that a launcher started (PMIX_RANK=3)"},
      {{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_PROCID", "1"}},
       "number 1 of 3 that srun started (SLURM_STEP_NUM_TASKS=3)"},
      {{{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"TORCHELASTIC_RUN_ID", "x"}},
       "number 1 of 2 that torchrun started (WORLD_SIZE=2)"},
  };
  for (const auto& [variables, text] : refused) {
    SCOPED_TRACE(text);
    const ChildResult r = in_child(variables, [] { devices(); });
    EXPECT_EQ(r.exit_code, 1) << r.output;
    // There are no other processes to join, and a build without OpenMPI could not join any.
    EXPECT_THAT(
        r.output,
        AllOf(HasSubstr(text),
              asks_for_gpus() ? AnyOf(HasSubstr("virtual devices of one GPU are one process's"),
                                      HasSubstr("cannot join processes"))
                              : AnyOf(HasSubstr("no address by which MPI could join them"),
                                      HasSubstr("cannot join processes")),
              HasSubstr("SHMAP_ALONE=1")));
    Variables alone = variables;
    alone.emplace_back("SHMAP_ALONE", "1");
    expect_small_program(alone);
  }
  const Variables taken[] = {
      {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}},
      {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}},
      {{"PMIX_RANK", "0"}},
      // A batch script of Slurm: one process, whatever its job may start.
      {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "16"}, {"SLURM_PROCID", "0"}},
      {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "16"}},
      // mpirun -n 1 in a job on three nodes, where its helpers are a step of srun.
      {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "3"}},
      {{"OMPI_COMM_WORLD_SIZE", "many"}},
      // Any program may set variables of these names; nothing shows that torchrun has set them.
      {{"WORLD_SIZE", "2"}, {"RANK", "1"}},
  };
  for (const Variables& variables : taken) {
    SCOPED_TRACE(variables.front().first + "=" + variables.front().second);
    expect_small_program(variables);
  }
}

// The program that UnderMpirun starts; disabled, since it is not a test by itself.
TEST(Launcher, DISABLED_Program) { EXPECT_EQ(small_program(), kWanted); }

std::string output_under_mpirun(int processes, const char* options = "") {
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe"})
    setenv(name, "1", 1);
  const std::string command = "timeout 50 mpirun -n " + std::to_string(processes) + " " + options +
                              " '" + std::filesystem::read_symlink("/proc/self/exe").string() +
                              "' --gtest_filter=Launcher.DISABLED_Program "
                              "--gtest_also_run_disabled_tests 2>&1";
  std::string output;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "no pipe";
  for (char text[4096]; std::fgets(text, sizeof text, pipe) != nullptr;) output += text;
  return output + "ended with " + std::to_string(pclose(pipe));
}

TEST(Launcher, UnderMpirun) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "mpirun is not installed";
  EXPECT_THAT(output_under_mpirun(1), HasSubstr("ended with 0"));
  EXPECT_THAT(output_under_mpirun(2, "-x SHMAP_ALONE=1"), HasSubstr("ended with 0"));
}

TEST(Environment, LimitOfMemory) {
  const ChildResult r = in_child({{"SHMAP_MEMORY_LIMIT", "1M"}}, [] {
    if (small_program() != kWanted) throw std::runtime_error("wrong before");
    try {
      zeros({1024, 1024}).block_until_ready();
    } catch (const OutOfMemory& e) {
      std::printf("%s", e.what());
      if (small_program() != kWanted) throw std::runtime_error("wrong after");
      return;
    }
    throw std::runtime_error("nothing was thrown");
  });
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_THAT(r.output, AllOf(HasSubstr("4.0 MiB (4194304 bytes) asked for"),
                              HasSubstr("limit 1.0 MiB"), HasSubstr("SHMAP_MEMORY_LIMIT")));
}

TEST(Environment, NansAreFoundWhereTheyArise) {
  for (const char* executor : executors()) {
    SCOPED_TRACE(executor);
    const ChildResult r = in_child({{"SHMAP_CHECK_NANS", "1"}, {"SHMAP_EXECUTOR", executor}}, [] {
      const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
      const Array x = device_put(reshape(arange(64) - 10, {8, 8}), {mesh, P("i", "j")});
      shard_map([](Array b) { return psum(sqrt(b) + 1, "i"); }, mesh, {P("i", "j")},
                P(none, "j"))(x);
    });
    EXPECT_EQ(r.exit_code, 1) << r.output;
    EXPECT_THAT(r.output, AllOf(HasSubstr("NaN in the result of sqrt (op "),
                                HasSubstr("Device(id=0) at mesh coordinates (i, j,) = (0, 0,)"),
                                HasSubstr("first at element 0"), HasSubstr("process_test.cpp:")));
    const ChildResult summed =
        in_child({{"SHMAP_CHECK_NANS", "1"}, {"SHMAP_EXECUTOR", executor}}, [] {
          const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
          shard_map(
              [](Array b) {
                const Array sign = astype(axis_index("i"), f32) * 2.f - 1.f;
                return psum(sign * (1.f / b), "i");  // an infinity from each device, of both signs
              },
              mesh, {P("i", "j")}, P(none, "j"))(device_put(zeros({8, 8}), {mesh, P("i", "j")}));
        });
    EXPECT_EQ(summed.exit_code, 1) << summed.output;
    EXPECT_THAT(summed.output,
                AllOf(HasSubstr("NaN in the result of psum (op "),
                      HasSubstr("Device(id=0) at mesh coordinates (i, j,) = (0, 0,)"),
                      HasSubstr("process_test.cpp:")));
    const ChildResult injected = in_child(
        {{"SHMAP_CHECK_NANS", "1"},
         {"SHMAP_EXECUTOR", executor},
         {"SHMAP_FAULT", "kernel@5#1:nan"},
         {"SHMAP_DEVICES", asks_for_gpus() ? "cuda:0x8/8" : "cpu:8/8"}},
        [] {
          const Mesh mesh = make_mesh({8}, "i");
          const Array x = device_put(array(std::vector<float>(16, 1.f), {16}), {mesh, P("i")});
          exp(x);
        });
    EXPECT_EQ(injected.exit_code, 1) << injected.output;
    EXPECT_THAT(injected.output,
                AllOf(HasSubstr("NaN in the result of exp (op "), HasSubstr("Device(id=5)")));
  }
  expect_small_program({{"SHMAP_CHECK_NANS", "1"}});
}

TEST(OneCore, IsEnough) {
  if (asks_for_gpus()) GTEST_SKIP() << "only CPU devices have an executor";
  for (const char* devices : {"cpu:8", "cpu:8/8"}) {
    for (const char* executor : executors()) {
      SCOPED_TRACE(std::string(devices) + " " + executor);
      const ChildResult r =
          in_child({{"SHMAP_DEVICES", devices}, {"SHMAP_EXECUTOR", executor}}, [] {
            cpu_set_t allowed, one;
            CPU_ZERO(&allowed);
            if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) throw Error("no affinity");
            CPU_ZERO(&one);
            for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
              if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
            if (sched_setaffinity(0, sizeof one, &one) != 0) throw Error("not pinned");
            for (int k = 0; k < 20; ++k)
              if (small_program() != kWanted) throw Error("wrong");
            const Mesh mesh = make_mesh({8}, "i");
            const Array a = device_put(ones({256, 256}), {mesh, P("i")});
            std::vector<Array> queued;
            for (int k = 0; k < 100; ++k) queued.push_back(matmul(a, a));
            std::printf("%g", static_cast<double>(sum(queued.back()).item<float>()));
          });
      EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
      EXPECT_EQ(r.output, "1.67772e+07");
    }
  }
}

// Collectives overlap with each other and with computation, and buffers are freed in between:
// values are the same in whatever order the tasks run.
std::string overlapping_program() {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = device_put(reshape(arange(1024, i32), {32, 32}), {mesh, P("i", "j")});
  const auto f = shard_map(
      [](Array b) {
        const Array gathered = all_gather(b, "j", {.axis = 1, .tiled = true});
        Array moved = ppermute(b, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
        b = b * 3 + 1;  // in place of what the collectives still read
        moved = moved + b;
        const Array total = psum(moved, "i");
        moved = -moved;
        const Array scattered = psum_scatter(gathered, "i", {.tiled = true});
        const Array swapped = all_to_all(moved, "j", 0, 1, {.tiled = true});
        return sum(scattered) + total + moved * pmax(b, "j") + sum(swapped, 0)[0];
      },
      mesh, {P("i", "j")}, P("i", "j"));
  Array y = x;
  std::vector<Array> all;
  for (int k = 0; k < 4; ++k) {
    y = f(y) % 1009;
    y = transpose(y) + y;
    all.push_back(y * 2);
  }
  std::string out;
  for (const Array& a : all)
    for (std::int32_t v : a.to_vector<std::int32_t>()) out += std::to_string(v) + " ";
  return out;
}

TEST(Seeds, OfTheScheduleGiveTheSameValues) {
  if (asks_for_gpus()) GTEST_SKIP() << "only CPU devices have an executor";
  const auto run = [](const std::string& devices, const std::string& executor) {
    return in_child({{"SHMAP_DEVICES", devices}, {"SHMAP_EXECUTOR", executor}},
                    [] { std::printf("%s", overlapping_program().c_str()); });
  };
  const ChildResult wanted = run("cpu:8", "inline");
  ASSERT_EQ(wanted.exit_code, 0) << wanted.output;
  ASSERT_GT(wanted.output.size(), 4096u);
  for (int seed = 0; seed < 200; ++seed) {
    const ChildResult r = run(seed % 4 ? "cpu:8/8" : "cpu:8", "seeded:" + std::to_string(seed));
    ASSERT_EQ(r.exit_code, 0) << "SHMAP_EXECUTOR=seeded:" << seed << ": " << r.output << " signal "
                              << r.signal;
    ASSERT_EQ(r.output, wanted.output) << "SHMAP_EXECUTOR=seeded:" << seed;
  }
}

}  // namespace
}  // namespace shmap
