// Processes that do not start or end like the others, and processes that run different programs:
// errors name them, and the job ends or goes on where it can. (process_faults_test has the other
// faults.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/mpirun.h"

namespace shmap::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

class ProcessStartFaults : public testing::Test {
 protected:
  void SetUp() override {
    program_ = program_for_mpirun("process_fault_program");
    if (program_.empty()) GTEST_SKIP() << "OpenMPI is not installed";
    set_deadlines("1", "3");
  }
  // Runs a job of 4 processes with 2 devices each.
  JobOutcome job(const std::string& fault) const {
    JobOutcome outcome = run_processes(program_, fault, 4, 2);
    EXPECT_THAT(outcome.output, Not(HasSubstr("WRONG VALUE")));
    EXPECT_EQ(outcome.left, 0);
    return outcome;
  }
  // A job that must end well, with deadlines that a busy machine does not reach.
  JobOutcome job_without_fault(const std::string& what) const {
    set_deadlines("30", "60");
    JobOutcome outcome = job(what);
    set_deadlines("1", "3");
    return outcome;
  }
  static void set_deadlines(const char* warn_sec, const char* timeout_sec) {
    setenv("SHMAP_COLLECTIVE_WARN_SEC", warn_sec, 1);
    setenv("SHMAP_COLLECTIVE_TIMEOUT_SEC", timeout_sec, 1);
  }
  std::string program_;
};

TEST_F(ProcessStartFaults, WhoDoesNotStartIsNamed) {
  for (const char* fault : {"absent", "stop_at_start"}) {
    SCOPED_TRACE(fault);
    const JobOutcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output,
                AllOf(HasSubstr("for the other processes to start"), HasSubstr("Giving up"),
                      HasSubstr("process 1 (pid "), HasSubstr("has not used a device yet"),
                      Not(HasSubstr("process 2 (pid "))));
    EXPECT_EQ(o.output.find("which a signal has stopped") != std::string::npos,
              std::string(fault) == "stop_at_start");
  }
}

// With deadlines that are far away.
TEST_F(ProcessStartFaults, WhoEndsBeforeItUsesADeviceIsNamed) {
  set_deadlines("30", "600");
  const JobOutcome o = job("end_at_start");
  EXPECT_EQ(o.report, "");
  EXPECT_NE(o.status, 0);
  // Where it ends after the others have begun to start MPI, mpirun ends the job at once. OpenMPI
  // 4.1.4 then sometimes loses its own message, and the others tell what they waited for.
  EXPECT_THAT(o.output,
              AnyOf(AllOf(HasSubstr("and process 1 has ended without using a device"),
                          HasSubstr("SHMAP_ALONE=1"), HasSubstr("Giving up"),
                          Not(HasSubstr("have started")), Not(HasSubstr("process 2 has"))),
                    HasSubstr("mpirun has exited due to process rank 1 with PID"),
                    HasSubstr("waited for the other processes to start: perhaps one of them has "
                              "ended without using a device")));
}

// SHMAP_FAULT's points in the processes' own code.
TEST_F(ProcessStartFaults, InjectedFaultsAreNamed) {
  struct Row {
    const char *fault, *named;
  };
  for (const auto& [fault, named] :
       {Row{"start@1:throw", "fault injected at start of process 1 (SHMAP_FAULT)"},
        Row{"start@1:stop", "has not used a device yet, which a signal has stopped"},
        Row{"send@1#9:throw", "cannot send: fault injected at send of process 1 (SHMAP_FAULT)"},
        Row{"send@1#9:stop", "does not answer, which a signal has stopped"},
        Row{"receive@1#9:throw", "sends: fault injected at receive of process 1 (SHMAP_FAULT)"},
        Row{"receive@1#9:stop", "which a signal has stopped"},
        Row{"finish@1:throw", "cannot end: fault injected at finish of process 1 (SHMAP_FAULT)"},
        Row{"finish@1:stop", "has not ended, which a signal has stopped"}}) {
    SCOPED_TRACE(fault);
    setenv("SHMAP_FAULT", fault, 1);
    const JobOutcome o = job("none");
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, HasSubstr(named));
  }
  setenv("SHMAP_FAULT", "send@1#9:sleep=300,receive@2#9:sleep=300", 1);
  const JobOutcome o = job_without_fault("none");
  EXPECT_EQ(o.status, 0) << o.output;
  unsetenv("SHMAP_FAULT");
}

TEST_F(ProcessStartFaults, AnotherEnvironmentOrLibraryIsRefused) {
  JobOutcome o = job("environment");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("differ in environment variables"), HasSubstr("process 1"),
                              HasSubstr("has SHMAP_CHECK_NANS=1, and process 0"),
                              HasSubstr("has SHMAP_CHECK_NANS=0. Give")));
  o = job("environment_overlap");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("differ in environment variables: process 1"),
                              HasSubstr("has SHMAP_OVERLAP=ring, and process 0"),
                              HasSubstr("has SHMAP_OVERLAP=auto. Give")));
  o = job("version");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("differ in the version of this library: process 1"),
                              HasSubstr("0.0.1")));
}

TEST_F(ProcessStartFaults, WhoDoesNotEndIsNamed) {
  for (const char* fault : {"stuck_at_end", "stop_at_end"}) {
    SCOPED_TRACE(fault);
    const JobOutcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, AllOf(HasSubstr("process 1 (pid "), HasSubstr("has not ended"),
                                HasSubstr("Giving up")));
    EXPECT_EQ(o.output.find("which a signal has stopped") != std::string::npos,
              std::string(fault) == "stop_at_end");
  }
}

TEST_F(ProcessStartFaults, WhoStopsWhileMpiEndsIsNamed) {
  const JobOutcome o = job("stop_in_finalize");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("MPI_Finalize waits"), HasSubstr("process 1 (pid "),
                              HasSubstr("has not ended, which a signal has stopped"),
                              HasSubstr("Giving up")));
}

TEST_F(ProcessStartFaults, OneThatDiesAtAnyMoment) {
  setenv("SHMAP_TEST_FAULT_DELAY_US", "20000", 1);
  for (const char* fault : {"kill_in", "kill_after", "kill_in_capture", "kill_at_end"}) {
    SCOPED_TRACE(fault);
    const JobOutcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, AllOf(HasSubstr("process 1 (pid "), HasSubstr("has died")));
  }
  // If all processes have said that they end, perhaps only mpirun reports it.
  EXPECT_NE(job("kill_in_finish").status, 0);
  unsetenv("SHMAP_TEST_FAULT_DELAY_US");
}

TEST_F(ProcessStartFaults, WhatOverrunsItsDeadlineIsWrittenDown) {
  if (std::system("command -v python3 > /dev/null") != 0)
    GTEST_SKIP() << "python3 is not installed";
  // The library has no deadlines here: process 0 waits forever for process 1, which loops.
  set_deadlines("0", "0");
  const JobOutcome o = run_processes(program_, "stuck", 2, 1, 10);
  ASSERT_EQ(WEXITSTATUS(o.status), 124) << o.output;
  ASSERT_NE(o.report, "");
  EXPECT_THAT(o.output, AllOf(HasSubstr("did not end in 10 s"), HasSubstr(o.report)));
  // Both get SIGTERM. Where process 0 sees the end of process 1 before its own signal, it names
  // that.
  EXPECT_THAT(o.output, AnyOf(AllOf(HasSubstr("SIGTERM came. process 0: the collectives"),
                                    HasSubstr("waits for process 1")),
                              AllOf(HasSubstr("process 1 (pid "), HasSubstr("has died"))));
  std::ifstream file(o.report);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, AllOf(HasSubstr("3 processes of the job are left"), HasSubstr("mpirun"),
                          HasSubstr("process_fault_program stuck"), HasSubstr("State:\tR"),
                          HasSubstr("wchan"), HasSubstr("shmap-joined")));
  EXPECT_THAT(text, AnyOf(HasSubstr("loop_in_host_code"), HasSubstr("gdb is not installed"),
                          HasSubstr("ptrace: ")));
  std::filesystem::remove(o.report);
  EXPECT_NE(std::system(("pgrep -f '" + program_ + "[ ]stuck' > /dev/null").c_str()), 0);
}

TEST_F(ProcessStartFaults, MeshesAxesAndThreadsThatAreMixedUp) {
  JobOutcome o = job("mesh");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("process 1 (pid "),
                              HasSubstr("it waits in collective number 0 of another mesh")));
  for (const char* fault : {"axes", "axes_early", "permutation", "threads"}) {
    SCOPED_TRACE(fault);
    o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, AllOf(HasSubstr("out of step"), HasSubstr("process_fault_program.cpp:")));
  }
  o = job("not_under_jit");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("the processes run different programs"),
                              HasSubstr("outside of jit"), HasSubstr("process 1")));
}

// Also where no collective follows: the job ends with an error though the program has ended.
TEST_F(ProcessStartFaults, ValuesThatDifferAreNamed) {
  struct Row {
    const char *fault, *headline, *what;
  };
  for (const auto& [fault, headline, what] :
       {Row{"captured_large", "the same program with other captured values",
            "captured array 0 of the function under jit at "},
        Row{"literal_alone", "the processes run different programs",
            "the program of the function under jit at "},
        Row{"argument", "other values of an argument that all devices have alike",
            "args[1] of the function under jit at "},
        Row{"argument_of_body", "other values of an argument that all devices have alike",
            "args[1] of shard_map at "},
        Row{"closed_over", "other values of an argument that all devices have alike",
            "closed-over value 0 of a body at "},
        Row{"put", "place other data where all devices have it alike",
            "what device_put is given at "}}) {
    SCOPED_TRACE(fault);
    const JobOutcome o = job(fault);
    EXPECT_NE(o.status, 0);
    // A process that had said that it ends, and that mpirun has not ended after a second, lists the
    // others as gone, which is no word on process 2's values.
    EXPECT_THAT(
        o.output,
        AllOf(HasSubstr(headline), HasSubstr(what), HasSubstr("process_fault_program.cpp:"),
              HasSubstr(" differs between process 0 (pid "), HasSubstr(" and process 1 (pid "),
              Not(HasSubstr(" and process 2 (pid ")), Not(HasSubstr("between process 2 (pid "))));
  }
  const JobOutcome o = job_without_fault("same");
  EXPECT_EQ(o.status, 0) << o.output;
}

TEST_F(ProcessStartFaults, OneThatIsStoppedAndGoesOnInTimeIsAWarning) {
  set_deadlines("1", "60");
  const JobOutcome o = job("stop_long_and_go");
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_THAT(o.output, AllOf(HasSubstr("which a signal has stopped"), Not(HasSubstr("Giving up")),
                              HasSubstr("process 1: all steps done"),
                              HasSubstr("process 3: all steps done")));
}

// For longer than the deadline, which counts only while a process runs.
TEST_F(ProcessStartFaults, AllThatAreStoppedAndGoOnLater) {
  set_deadlines("30", "5");
  const JobOutcome o = job("suspended");
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_THAT(o.output, AllOf(Not(HasSubstr("shmap:")), HasSubstr("process 0: all steps done"),
                              HasSubstr("process 1: all steps done")));
}

// The child has its parent's memory, rings among it, and none of its threads.
TEST_F(ProcessStartFaults, AChildThatWasForkedAndExitsHarmsNobody) {
  for (const char* fault : {"fork_exit_0", "fork_exit_3", "fork_exit_3 jit"}) {
    SCOPED_TRACE(fault);
    const JobOutcome o = job_without_fault(fault);
    EXPECT_EQ(o.status, 0) << o.output;
    EXPECT_THAT(o.output, AllOf(HasSubstr("process 1: all steps done"),
                                HasSubstr("process 3: all steps done"), Not(HasSubstr("shmap:"))));
  }
}

TEST_F(ProcessStartFaults, OneThatIsTerminatedSaysWhatItRan) {
  // mpirun sends a second SIGTERM when it ends a job, perhaps before the record is written.
  for (const char* fault : {"term", "term_twice"}) {
    SCOPED_TRACE(fault);
    const JobOutcome o = job(fault);
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output, AllOf(HasSubstr("SIGTERM came. process 1: the collectives"),
                                HasSubstr("ago: number 18, pmax"), HasSubstr("process 1 (pid "),
                                HasSubstr("has died"), Not(HasSubstr("SIGTERM came. process 0"))));
  }
  // The program's own handler stays, and the program goes on.
  const JobOutcome o = job_without_fault("own_term");
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_THAT(o.output, Not(HasSubstr("SIGTERM")));
}

TEST_F(ProcessStartFaults, AKernelThatDoesNotReturn) {
  const JobOutcome o = job("stuck_kernel");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("process 1 (pid "), HasSubstr("has not come so far"),
                              HasSubstr("the kernel of mul")));
}

}  // namespace
}  // namespace shmap::test
