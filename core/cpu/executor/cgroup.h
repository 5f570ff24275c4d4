// The CPU quota of this process's control groups. Containers and batch systems limit CPU time by
// quota while the affinity mask still shows every core.
#pragma once
#include <string>

namespace shmap::cpu {

// The smallest quota of this process's group and its parent groups, in cores (1.5, for example); 0:
// no quota. Reads control groups of version 2 (cpu.max) and version 1 (cpu.cfs_quota_us,
// cpu.cfs_period_us) from root + "proc/self/cgroup" and root + "sys/fs/cgroup/". `root` is "/"
// except in tests.
double cgroup_cpus(const std::string& root);

// How many threads `cpus` cores can keep busy: rounded up; 0, which is no quota, gives no limit.
int whole_cores(double cpus) noexcept;

}  // namespace shmap::cpu
