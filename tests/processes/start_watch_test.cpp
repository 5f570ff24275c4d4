// What the environment of a process says of its job, and which processes of the job its watch sees.
#include "core/processes/start_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/processes/job.h"

namespace shmap {
namespace {

using testing::HasSubstr;

class JobOfEnvironment : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"PMIX_RANK", "PMIX_NAMESPACE"}) unsetenv(name);
  }
};

// The first process of a job has the same variables as the others.
TEST_F(JobOfEnvironment, OfALauncherThatSetsVariablesOfPmixAlone) {
  setenv("PMIX_NAMESPACE", "job.1", 1);
  for (const int rank : {0, 2}) {
    setenv("PMIX_RANK", std::to_string(rank).c_str(), 1);
    const Job job = job_of_environment();
    EXPECT_TRUE(job.is_several());
    EXPECT_EQ(job.size, 0);
    EXPECT_EQ(job.rank, rank);
    EXPECT_TRUE(job.has_server);
    EXPECT_THAT(job.text(), HasSubstr(rank == 0 ? "number 0 of one or more that a launcher started "
                                                  "(PMIX_RANK=0, PMIX_NAMESPACE=job.1)"
                                                : "number 2 of several that a launcher started"));
  }
  setenv("PMIX_RANK", "0", 1);
  unsetenv("PMIX_NAMESPACE");
  EXPECT_FALSE(job_of_environment().is_several());
}

// From now on this process, and those that it starts, may read of others only what users may.
void drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
  if (syscall(SYS_capget, &header, data) != 0) _exit(1);
  for (const int capability : {CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON}) {
    prctl(PR_CAPBSET_DROP, capability);
    __user_cap_data_struct& part = data[capability / 32];
    for (auto* set : {&part.effective, &part.permitted, &part.inheritable})
      *set &= ~(1u << capability % 32);
  }
  if (syscall(SYS_capset, &header, data) != 0) _exit(1);
}

int number_of(const char* variable) { return std::atoi(std::getenv(variable)); }

// A process of the job that a launcher in EndedOnThisNode starts; not a test by itself.
TEST(StartWatch, DISABLED_Rank) {
  if (std::getenv("SHMAP_TEST_ROLE") == nullptr) GTEST_SKIP() << "no launcher started this process";
  const std::string role = std::getenv("SHMAP_TEST_ROLE");
  if (role == "ends") std::exit(0);
  if (role == "hides") prctl(PR_SET_DUMPABLE, 0);
  std::string text;
  if (role == "looks") {
    Job job;
    job.size = job.node_size = number_of("SHMAP_TEST_SIZE");
    text = ended_on_this_node(job);
  }
  text += '\n';
  if (write(number_of("SHMAP_TEST_PIPE"), text.data(), text.size()) < 0) std::exit(1);
  while (role != "looks") pause();
  std::exit(0);
}

std::string line_from(int file) {
  std::string text;
  for (char c = 0; read(file, &c, 1) == 1 && c != '\n';) text += c;
  return text;
}

// Starts processes with these roles, the last of which looks; returns what it sees.
void launch(const std::vector<std::string>& roles, int result) {
  drop_capabilities();
  setenv("SHMAP_TEST_SIZE", std::to_string(roles.size()).c_str(), 1);
  std::vector<pid_t> started;
  for (const std::string& role : roles) {
    int ends[2];
    if (pipe(ends) != 0) _exit(1);
    const pid_t rank = fork();
    if (rank == 0) {
      setenv("PMIX_NAMESPACE", ("start_watch_test." + std::to_string(getppid())).c_str(), 1);
      setenv("PMIX_RANK", std::to_string(started.size()).c_str(), 1);
      setenv("SHMAP_TEST_ROLE", role.c_str(), 1);
      setenv("SHMAP_TEST_PIPE", std::to_string(ends[1]).c_str(), 1);
      execl("/proc/self/exe", "start_watch_test", "--gtest_filter=StartWatch.DISABLED_Rank",
            "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
      _exit(1);
    }
    started.push_back(rank);
    close(ends[1]);
    const std::string line = line_from(ends[0]) + "\n";
    if (role == "ends") waitpid(rank, nullptr, 0);
    if (role == "looks" && write(result, line.data(), line.size()) < 0) _exit(1);
  }
  for (const pid_t rank : started) kill(rank, SIGKILL);
  _exit(0);
}

std::string seen(const std::vector<std::string>& roles) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t launcher = fork();
  if (launcher == 0) launch(roles, ends[1]);
  close(ends[1]);
  std::string text = line_from(ends[0]);
  close(ends[0]);
  int status = 0;
  waitpid(launcher, &status, 0);
  return status == 0 ? text : "the launcher failed";
}

TEST(EndedOnThisNode, NamesThoseThatHaveEndedWhereAllCanBeSeen) {
  EXPECT_EQ(seen({"lives", "lives", "looks"}), "");
  EXPECT_EQ(seen({"lives", "ends", "looks"}), "process 1 has");
  EXPECT_EQ(seen({"ends", "ends", "looks"}), "process 0, process 1 have");
}

// A process that cannot be seen has not ended.
TEST(EndedOnThisNode, SaysNothingOfOneThatHidesItsEnvironment) {
  EXPECT_EQ(seen({"lives", "hides", "looks"}), "");
  EXPECT_EQ(seen({"ends", "hides", "looks"}), "");
}

}  // namespace
}  // namespace shmap
