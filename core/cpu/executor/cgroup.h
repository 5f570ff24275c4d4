// The CPU quota of the control groups that this process is in: containers and batch systems limit
// the processor's time by it, and leave every core in the affinity mask.
#pragma once
#include <string>

namespace shmap::cpu {

// The smallest quota of this process's group and those around it, in cores, as 1.5; 0 where there
// is none. Control groups of version 2 (cpu.max) and 1 (cpu.cfs_quota_us, cpu.cfs_period_us), read
// from root + "proc/self/cgroup" and root + "sys/fs/cgroup/": "/" but in tests.
double cgroup_cpus(const std::string& root);

// How many threads can be kept busy by that many cores: rounded up, and no limit for 0.
int whole_cores(double cpus) noexcept;

}  // namespace shmap::cpu
