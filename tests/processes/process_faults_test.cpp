// Faults of one process of a job: an error names the process and the collective that waits for it,
// and the job ends soon, with an exit code other than 0. On CPU devices and, if SHMAP_DEVICES says
// so, on simulated GPUs, one per process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/mpirun.h"

namespace shmap {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  std::string output;
  int status = 0;  // as of pclose
  double seconds = 0;
  double to_end = -1;  // from the fault to the end of the job
};

std::string program() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "process_fault_program")
      .string();
}

std::string devices() {
  static const char* const set = std::getenv("SHMAP_DEVICES");
  static const std::string text = set != nullptr ? set : "cpu:2";
  return text;
}

std::string other_devices;  // in place of these, where it is not ""

Outcome job(const std::string& fault, const std::string& warn = "1",
            const std::string& timeout = "3", int processes = 4) {
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
    setenv(name, "1", 1);
  setenv("SHMAP_DEVICES", (other_devices.empty() ? devices() : other_devices).c_str(), 1);
  setenv("SHMAP_WORKERS", "1", 1);
  setenv("SHMAP_COLLECTIVE_WARN_SEC", warn.c_str(), 1);
  setenv("SHMAP_COLLECTIVE_TIMEOUT_SEC", timeout.c_str(), 1);
  const test::StderrFile said;
  const std::string command =
      test::with_deadline(60, test::new_report()) + "mpirun --bind-to none --oversubscribe -n " +
      std::to_string(processes) + " " + said.words() + "'" + program() + "' " + fault + " 2>&1";
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  for (char text[4096]; std::fgets(text, sizeof text, pipe) != nullptr;) outcome.output += text;
  outcome.status = pclose(pipe);
  outcome.output += said.text();
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double end = static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                             std::chrono::system_clock::now().time_since_epoch())
                                             .count());
  if (const auto at = outcome.output.find("AT fault "); at != std::string::npos)
    outcome.to_end = (end - std::atof(outcome.output.c_str() + at + 9)) / 1000;
  std::printf("%s: %.1f s after the fault the job had ended\n", fault.c_str(), outcome.to_end);
  return outcome;
}

// A job that must end well, with deadlines that a busy machine does not reach.
Outcome job_without_fault(const std::string& what, int processes = 4) {
  return job(what, "30", "60", processes);
}

// The process that gets the first message that does not fit reports it: process 1 or another one.
const auto kNamesTheFirst = HasSubstr("process 1");

class ProcessFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun > /dev/null") != 0 || !std::filesystem::exists(program()))
      GTEST_SKIP() << "OpenMPI is not installed";
  }
};

TEST_F(ProcessFaults, NoneEndsWell) {
  const Outcome o = job_without_fault("none");
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_THAT(o.output, Not(AnyOf(HasSubstr("CollectiveError"), HasSubstr("shmap:"))));
}

TEST_F(ProcessFaults, OneThatDies) {
  for (const char* fault : {"kill", "abort", "throw"}) {
    SCOPED_TRACE(fault);
    const Outcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, AllOf(HasSubstr("process 1 (pid "), HasSubstr("has died")));
    EXPECT_LT(o.to_end, 20);
  }
  EXPECT_NE(job("kill_at_start").status, 0);
}

TEST_F(ProcessFaults, ReplaysHearOfItToo) {
  Outcome o = job_without_fault("none jit");
  EXPECT_EQ(o.status, 0) << o.output;
  o = job("kill jit");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("process 1 (pid "), HasSubstr("has died")));
  EXPECT_LT(o.to_end, 20);
  for (const char* fault : {"skip jit", "op jit"}) {
    SCOPED_TRACE(fault);
    o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, AllOf(HasSubstr("out of step"), kNamesTheFirst,
                                HasSubstr("process_fault_program.cpp:")));
  }
}

// Two processes with a core each. A small exchange ends in the call that begins it; if it does not,
// its fault is named as always.
TEST_F(ProcessFaults, TwoProcessesThatKeepInStep) {
  Outcome o = job_without_fault("none jit", 2);
  EXPECT_EQ(o.status, 0) << o.output;
  for (const char* fault : {"kill", "kill jit", "stop"}) {
    SCOPED_TRACE(fault);
    o = job(fault, "1", "3", 2);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, AllOf(HasSubstr("process 1"),
                                AnyOf(HasSubstr("has died"), HasSubstr("a signal has stopped"))));
  }
  for (const char* fault : {"skip jit", "op jit", "op", "count", "dtype"}) {
    SCOPED_TRACE(fault);
    o = job(fault, "1", "3", 2);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output,
                AllOf(HasSubstr("out of step"), HasSubstr("process 1"),
                      HasSubstr("process_fault_program.cpp:"), Not(HasSubstr("WRONG VALUE"))));
  }
}

TEST_F(ProcessFaults, OneThatEnds) {
  Outcome o = job("exit_0");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("process 1 (pid "), HasSubstr("with the exit code 0"),
                              HasSubstr("psum"), HasSubstr("process_fault_program.cpp:")));
  o = job("exit_3");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("process 1 (pid "),
                              AnyOf(HasSubstr("ends with the exit code 3"), HasSubstr("died"))));
}

TEST_F(ProcessFaults, OneThatDoesSomethingElse) {
  for (const char* fault : {"skip", "extra", "count", "dtype", "op"}) {
    SCOPED_TRACE(fault);
    const Outcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output,
                AllOf(HasSubstr("out of step"), kNamesTheFirst,
                      HasSubstr("process_fault_program.cpp:"), Not(HasSubstr("WRONG VALUE"))));
  }
}

// Data that is only copied has as many bytes in either dtype.
TEST_F(ProcessFaults, OneThatCopiesAnotherDtype) {
  for (const char* fault :
       {"dtype_gather", "dtype_exchange", "dtype_broadcast", "dtype_permutation"}) {
    SCOPED_TRACE(fault);
    const Outcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, AllOf(HasSubstr("out of step"), kNamesTheFirst, HasSubstr(" of i32, "),
                                HasSubstr(" of f32, "), HasSubstr("process_fault_program.cpp:")));
  }
}

// Which elements a parcel holds is not seen from its size.
TEST_F(ProcessFaults, OneThatSendsAsManyBytesOfOtherElements) {
  for (const char* fault : {"exchange_dims", "exchange_axes"}) {
    // Its mesh wants two devices a process; on GPUs each process has one.
    if (!devices().starts_with("cpu") && std::string(fault) == "exchange_axes") continue;
    SCOPED_TRACE(fault);
    const Outcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, AllOf(HasSubstr("out of step"), kNamesTheFirst,
                                HasSubstr("process_fault_program.cpp:")));
  }
}

// A second try of the whole collective would meet the next one of the ways that have begun.
TEST_F(ProcessFaults, OneWithoutMemoryForTheSecondOfTwoWays) {
  if (!devices().starts_with("cpu"))
    GTEST_SKIP() << "the program wants two devices a process, and each has one GPU";
  const Outcome o = job("branches_without_memory");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output,
              AllOf(HasSubstr("process 1"), HasSubstr("cannot go on with psum"),
                    HasSubstr("process_fault_program.cpp:"), Not(HasSubstr("WRONG VALUE"))));
}

// A second try of the call runs again what the others have done. Where memory runs out at the same
// place in all processes, they are in step. (Under jit the processes allocate in different orders.)
TEST_F(ProcessFaults, OneWithoutMemoryBehindACollective) {
  for (const std::string call : {"body", "jit", "global"}) {
    SCOPED_TRACE(call);
    for (const int processes : {2, 4}) {
      const Outcome o = job("again_" + call, "20", "40", processes);
      EXPECT_NE(o.status, 0);
      EXPECT_THAT(o.output,
                  AllOf(HasSubstr("process 1 (pid "), HasSubstr("ran out of memory in a call"),
                        HasSubstr("out of step with them from collective number"),
                        HasSubstr("process_fault_program.cpp:"), Not(HasSubstr("WRONG VALUE")),
                        Not(HasSubstr("Giving up"))));
      EXPECT_LT(o.to_end, 15);
    }
    if (call == "jit") continue;
    const Outcome o = job_without_fault("again_" + call + "_in_all");
    EXPECT_EQ(o.status, 0) << o.output;
    EXPECT_THAT(o.output, Not(HasSubstr("WRONG VALUE")));
  }
}

// Also listeners that listen only after the job has failed.
TEST_F(ProcessFaults, EachListenerIsToldOnce) {
  EXPECT_THAT(job("op").output, HasSubstr("listeners were told 1, 1 and 1 times"));
}

TEST_F(ProcessFaults, OneWithAnotherProgram) {
  for (const char* fault : {"literal", "traced"}) {
    SCOPED_TRACE(fault);
    const Outcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output,
                AllOf(HasSubstr("the processes run different programs"), HasSubstr("process 1"),
                      HasSubstr("psum"), HasSubstr("process_fault_program.cpp:")));
  }
  for (const char* fault : {"captured", "captured_on_thread"}) {
    if (!devices().starts_with("cpu")) continue;
    SCOPED_TRACE(fault);
    const Outcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, AllOf(HasSubstr("the same program with other captured values"),
                                HasSubstr("process 1"), HasSubstr("process_fault_program.cpp:")));
  }
  const Outcome o = job_without_fault("same");
  EXPECT_EQ(o.status, 0) << o.output;
}

// Found at the first collective, by 2 x 2 and 4 x 1 processes and devices.
TEST_F(ProcessFaults, OneWithAnotherMesh) {
  struct Reset {
    ~Reset() { other_devices.clear(); }
  } reset;
  const bool cpus = devices().starts_with("cpu");
  const std::vector<std::pair<const char*, const char*>> faults = {
      {"mesh_shape", "Mesh('i': 1, 'j': 4) of devices 0 to 3"},
      {"mesh_names", "Mesh('i': 2, 'k': 2) of devices 0 to 3"},
      {"mesh_order", "Mesh('i': 2, 'j': 2) of devices 3, 1, 2, 0"}};
  for (const int processes : {2, 4}) {
    if (!cpus && processes == 2) continue;
    if (cpus) other_devices = processes == 2 ? "cpu:2" : "cpu:1";
    for (const auto& [fault, mesh] : faults) {
      SCOPED_TRACE(std::string(fault) + " in " + std::to_string(processes));
      const Outcome o = job(fault, "20", "40", processes);
      EXPECT_NE(o.status, 0);
      EXPECT_THAT(o.output,
                  AllOf(HasSubstr("communicate on different meshes"), HasSubstr("process 1 (pid "),
                        HasSubstr(mesh), HasSubstr("Mesh('i': 2, 'j': 2) of devices 0 to 3"),
                        HasSubstr("processes/process_fault_program.cpp:"),
                        Not(HasSubstr("Giving up")), Not(HasSubstr("WRONG VALUE"))));
      EXPECT_LT(o.to_end, 15);
    }
    const Outcome o = job_without_fault("mesh_none", processes);
    EXPECT_EQ(o.status, 0) << o.output;
  }
}

TEST_F(ProcessFaults, OneThatIsLate) {
  for (const char* fault : {"stuck", "stop"}) {
    SCOPED_TRACE(fault);
    const Outcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output,
                AllOf(HasSubstr("waits for others in collective number"),
                      HasSubstr("SHMAP_COLLECTIVE_WARN_SEC"), HasSubstr("Giving up"),
                      HasSubstr(std::string(fault) == "stop" ? "which a signal has stopped"
                                                             : "has not come so far")));
  }
}

// The others need not wait for the timeout. Where all have the same failure, they may go on.
TEST_F(ProcessFaults, OneWhoseKernelFails) {
  if (!devices().starts_with("cpu")) GTEST_SKIP() << "a GPU on which a kernel fails is lost";
  for (const char* fault : {"failed_kernel", "failed_kernel jit"}) {
    SCOPED_TRACE(fault);
    const Outcome o = job(fault, "20", "40");
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output,
                AllOf(HasSubstr("process 1 (pid "), HasSubstr("takes no part in collective number"),
                      HasSubstr("psum"), HasSubstr("mul"), HasSubstr("injected"),
                      HasSubstr("process_fault_program.cpp:"), Not(HasSubstr("Giving up"))));
    EXPECT_LT(o.to_end, 15);
  }
  for (const char* fault : {"failed_kernel_in_all", "failed_kernel_in_all jit"}) {
    SCOPED_TRACE(fault);
    const Outcome o = job_without_fault(fault);
    EXPECT_EQ(o.status, 0) << o.output;
  }
}

// The others wait until the collective is called again. (A replay allocates nothing here.)
TEST_F(ProcessFaults, OneWithoutMemory) {
  const Outcome o = job_without_fault("out_of_memory");
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_THAT(o.output, Not(HasSubstr("WRONG VALUE")));
}

// What device_put is given is compared once for each call that has placed it.
TEST_F(ProcessFaults, OneWithoutMemoryForWhatItPlaces) {
  if (!devices().starts_with("cpu"))
    GTEST_SKIP() << "each process has one GPU, and device_put copies nothing between devices";
  other_devices = "cpu:2/2";
  const Outcome o = job_without_fault("again_put", 2);
  other_devices.clear();
  EXPECT_EQ(o.status, 0) << o.output;
}

// The same if all data goes through memory that the processes share.
TEST_F(ProcessFaults, WithSharedMemory) {
  setenv("SHMAP_SHARED_MEMORY", "1", 1);
  for (const char* fault : {"kill", "op", "stop"}) {
    SCOPED_TRACE(fault);
    const Outcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, AllOf(HasSubstr("process 1"), Not(HasSubstr("WRONG VALUE")),
                                AnyOf(HasSubstr("has died"), HasSubstr("out of step"),
                                      HasSubstr("which a signal has stopped"))));
  }
  unsetenv("SHMAP_SHARED_MEMORY");
}

// Blocks that one process reads in memory that another one shows, or in all of another's, or that
// go through MPI.
TEST_F(ProcessFaults, InTheMiddleOfLargeBlocks) {
  setenv("SHMAP_TEST_FAULT_ELEMENTS", "1000000", 1);
  for (const char* memory : {"1", "auto", "0"}) {
    SCOPED_TRACE(memory);
    setenv("SHMAP_SHARED_MEMORY", memory, 1);
    for (const char* fault : {"none", "kill", "kill_in", "op", "stop"}) {
      SCOPED_TRACE(fault);
      const bool ends_well = std::string(fault) == "none";
      const Outcome o = ends_well ? job_without_fault(fault) : job(fault);
      EXPECT_EQ(o.status == 0, ends_well) << o.output;
      EXPECT_THAT(o.output, Not(HasSubstr("WRONG VALUE")));
      if (ends_well) continue;
      EXPECT_THAT(o.output, AnyOf(HasSubstr("has died"), HasSubstr("out of step"),
                                  HasSubstr("which a signal has stopped")));
    }
  }
  unsetenv("SHMAP_TEST_FAULT_ELEMENTS");
  unsetenv("SHMAP_SHARED_MEMORY");
}

TEST_F(ProcessFaults, DifferentDevicesAreRefusedAtStart) {
  const Outcome o = job("devices");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("differ in their devices"), HasSubstr("process 1"),
                              HasSubstr("cpu:3"), HasSubstr(devices())));
}

TEST_F(ProcessFaults, OneProcessHasAGpu) {
  if (devices() != "cuda")
    GTEST_SKIP() << "this test is about GPUs, and the devices are CPU devices";
  struct Reset {
    ~Reset() { other_devices.clear(); }
  } reset;
  other_devices = "cuda:0x2";
  Outcome o = job("none");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("virtual devices of one GPU"), HasSubstr("cuda:0x2"),
                              HasSubstr("SHMAP_DEVICES=cuda")));
  other_devices = "cuda:1";
  o = job("none");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("have devices on one GPU"), HasSubstr("process 0"),
                              HasSubstr("process 1"), HasSubstr("psum")));
  other_devices.clear();
  o = job("none", "1", "3", 5);
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("5 processes"), HasSubstr("4 GPUs")));
}

}  // namespace
}  // namespace shmap
