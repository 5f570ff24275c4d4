// The share of the cores that control groups leave to the process.
#include "core/cpu/executor/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <fstream>
#include <string>

namespace shmap::cpu {
namespace {

// A root folder with the files that tell of control groups.
class Groups {
 public:
  Groups() { std::filesystem::remove_all(root_); }
  ~Groups() { std::filesystem::remove_all(root_); }
  Groups& write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
    return *this;
  }
  double cpus() const { return cgroup_cpus(root_.string() + "/"); }

 private:
  const std::filesystem::path root_ =
      ::testing::TempDir() + "shmap_groups_" + std::to_string(static_cast<long>(getpid()));
};

TEST(Quota, OfControlGroupsOfVersion2) {
  EXPECT_EQ(Groups().cpus(), 0);  // no groups at all
  EXPECT_EQ(Groups().write("proc/self/cgroup", "0::/a/b").cpus(), 0);
  Groups groups;
  groups.write("proc/self/cgroup", "0::/a/b").write("sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(groups.cpus(), 0);
  groups.write("sys/fs/cgroup/a/b/cpu.max", "150000 100000");
  EXPECT_EQ(groups.cpus(), 1.5);
  groups.write("sys/fs/cgroup/a/cpu.max", "50000 100000");  // a group around it has less
  EXPECT_EQ(groups.cpus(), 0.5);
  groups.write("sys/fs/cgroup/a/cpu.max", "400000 100000");
  EXPECT_EQ(groups.cpus(), 1.5);
  for (const char* strange : {"", "x y", "-1 100000", "100000 0", "max"}) {
    groups.write("sys/fs/cgroup/a/b/cpu.max", strange);
    EXPECT_EQ(groups.cpus(), 4) << strange;
  }
  // The case of a container, whose group is the root of the tree that it sees.
  Groups container;
  container.write("proc/self/cgroup", "0::/elsewhere/x")
      .write("sys/fs/cgroup/cpu.max", "20000 100000");
  EXPECT_EQ(container.cpus(), 0.2);
}

TEST(Quota, OfControlGroupsOfVersion1) {
  Groups groups;
  groups.write("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/a/b\n3:cpuset:/c\n1:name=x:/y")
      .write("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1")
      .write("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000")
      .write("sys/fs/cgroup/memory/m/cpu.cfs_quota_us", "1000")
      .write("sys/fs/cgroup/memory/m/cpu.cfs_period_us", "100000");
  EXPECT_EQ(groups.cpus(), 0);
  groups.write("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "250000");
  EXPECT_EQ(groups.cpus(), 2.5);
  groups.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000")
      .write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000");
  EXPECT_EQ(groups.cpus(), 2);
  EXPECT_EQ(Groups()
                .write("proc/self/cgroup", "4:cpuacct,cpu:/a")
                .write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000")
                .write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000")
                .cpus(),
            3);
}

TEST(Quota, IsRoundedUpToThreads) {
  EXPECT_EQ(whole_cores(0), INT_MAX);
  EXPECT_EQ(whole_cores(0.2), 1);
  EXPECT_EQ(whole_cores(1), 1);
  EXPECT_EQ(whole_cores(1.5), 2);
  EXPECT_EQ(whole_cores(1e18), INT_MAX);
}

}  // namespace
}  // namespace shmap::cpu
