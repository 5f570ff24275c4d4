#include "core/cpu/executor/executor_options.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <thread>

#include "core/base/env.h"
#include "core/base/printable.h"
#include "core/cpu/executor/cgroup.h"
#include "core/processes/processes.h"

namespace shmap::cpu {

namespace {

int affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

int available_cores() { return std::min(affinity_cores(), whole_cores(cgroup_cpus("/"))); }

ExecutorOptions ExecutorOptions::from_environment() {
  ExecutorOptions options;
  const std::string text = env::text(env::Var::executor);
  const std::string_view mode = text;
  if (mode == "inline") {
    options.mode = Mode::inline_;
  } else if (mode == "seeded" || mode.starts_with("seeded:")) {
    options.mode = Mode::seeded;
    if (mode != "seeded") std::from_chars(text.data() + 7, text.data() + text.size(), options.seed);
  }
  if (const std::int64_t n = env::integer(env::Var::workers); n > 0) {
    options.workers = static_cast<int>(n);
  }
  options.warn_sec = env::seconds(env::Var::collective_warn_sec);
  options.timeout_sec = env::seconds(env::Var::collective_timeout_sec);
  if (const Processes* processes = Processes::joined()) {
    // A wait for other processes has its own deadline and names the missing processes: its error
    // must come first.
    if (options.timeout_sec > 0) options.timeout_sec += 2;
    // Processes that were not bound to cores of their own share the cores.
    const int cores = available_cores();
    if (options.workers <= 0 && cores >= static_cast<int>(std::thread::hardware_concurrency()))
      options.workers = std::max(1, cores / processes->peers().node_size());
  }
  return options;
}

}  // namespace shmap::cpu
