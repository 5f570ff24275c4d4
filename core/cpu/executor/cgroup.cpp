#include "core/cpu/executor/cgroup.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>

namespace shmap::cpu {
namespace {

// The smaller of two quotas; 0 means no quota.
double tighter(double a, double b) { return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b); }

double ratio(double quota, double period) { return quota > 0 && period > 0 ? quota / period : 0; }

// Cores, from the text of cpu.max: "max 100000" or "150000 100000".
double read_max(const std::string& path) {
  std::ifstream file(path);
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max") return 0;
  double microseconds = 0;
  std::istringstream(quota) >> microseconds;
  return ratio(microseconds, period);
}

double read_number(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? value : 0;  // -1: no quota
}

// The tightest quota that `read` gives for the folders from base + group up to base. A container
// may see its group as the root of the tree, under a name other than the one in proc: a folder that
// does not exist has no quota.
template <class Read>
double tightest(const std::string& base, std::string group, Read read) {
  double cpus = 0;
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    cpus = tighter(cpus, read(base + group + "/"));
    if (group.empty()) return cpus;
    group.erase(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

bool holds(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::string_view first = list.substr(0, list.find(','));
    if (first == word) return true;
    list.remove_prefix(std::min(list.size(), first.size() + 1));
  }
  return false;
}

}  // namespace

double cgroup_cpus(const std::string& root) {
  const std::string tree = root + "sys/fs/cgroup";
  std::ifstream groups(root + "proc/self/cgroup");
  double cpus = 0;
  for (std::string line; std::getline(groups, line);) {  // NUMBER:CONTROLLERS:GROUP
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      cpus = tighter(cpus, tightest(tree, group, [](const std::string& folder) {
                       return read_max(folder + "cpu.max");
                     }));
    } else if (holds(controllers, "cpu")) {
      const auto read = [](const std::string& folder) {
        return ratio(read_number(folder + "cpu.cfs_quota_us"),
                     read_number(folder + "cpu.cfs_period_us"));
      };
      // cgroup v1 is mounted as "cpu,cpuacct", the list of its controllers, or as "cpu".
      const double by_list = tightest(tree + "/" + controllers, group, read);
      cpus = tighter(cpus, by_list > 0 ? by_list : tightest(tree + "/cpu", group, read));
    }
  }
  return cpus;
}

int whole_cores(double cpus) noexcept {
  return cpus > 0 && cpus < INT_MAX ? static_cast<int>(std::ceil(cpus)) : INT_MAX;
}

}  // namespace shmap::cpu
