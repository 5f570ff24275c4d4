#include "core/processes/start_watch.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/signals_blocked.h"
#include "core/base/wait_clock.h"
#include "core/base/warning.h"

namespace shmap {
namespace {

constexpr double kLeastWarnSec = 5;
constexpr std::chrono::milliseconds kEndingTime{50};
constexpr double kStartFactor = 2;  // times the timeout: joining includes the start of MPI and the
                                    // loading of each process
                                    // each process

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir.get()))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  return names;
}

// The value of a variable in the text of /proc/<pid>/environ; "" where it is not set.
std::string_view value_in(std::string_view environment, std::string_view name) {
  while (!environment.empty()) {
    const std::size_t end = std::min(environment.find('\0'), environment.size());
    const std::string_view entry = environment.substr(0, end);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
    environment.remove_prefix(std::min(end + 1, environment.size()));
  }
  return {};
}

bool has_come(const std::string& process) {
  for (const std::string& thread : names_in(process + "/task")) {
    const std::string name = contents(process + "/task/" + thread + "/comm");
    if (name.starts_with(kJoiningThread) || name.starts_with(kJoinedThread)) return true;
  }
  return false;
}

bool is_stopped(const std::string& process) {
  const std::string text = contents(process + "/stat");
  const std::size_t end = text.rfind(") ");
  return end != text.npos && end + 2 < text.size() &&
         (text[end + 2] == 'T' || text[end + 2] == 't');
}

}  // namespace

std::string missing_on_this_node() {
  const char* const job = std::getenv("PMIX_NAMESPACE");
  if (job == nullptr) return "";
  struct Rank {
    int pid = 0;
    bool come = false;
  };
  // Child processes of a process of the job inherit its environment. A rank has arrived if any
  // process with its environment has; the oldest one is named.
  std::map<int, Rank> ranks;
  for (const std::string& name : names_in("/proc")) {
    int pid = 0, rank = 0;
    const char* const end = name.data() + name.size();
    if (std::from_chars(name.data(), end, pid).ptr != end) continue;
    const std::string environment = contents("/proc/" + name + "/environ");
    const std::string_view text = value_in(environment, "PMIX_RANK");
    if (text.empty() || value_in(environment, "PMIX_NAMESPACE") != job) continue;
    std::from_chars(text.data(), text.data() + text.size(), rank);
    Rank& known = ranks[rank];
    if (known.pid == 0 || pid < known.pid) known.pid = pid;
    known.come = known.come || has_come("/proc/" + name);
  }
  std::erase_if(ranks, [](const auto& rank) { return rank.second.come; });
  if (ranks.empty()) return "";
  // A process that is ending may lose the thread of that name before its other threads: it
  // disappears in a moment.
  std::this_thread::sleep_for(kEndingTime);
  std::string missing;
  for (const auto& [rank, known] : ranks) {
    const std::string process = "/proc/" + std::to_string(known.pid);
    if (contents(process + "/environ").empty() || has_come(process)) continue;
    missing += fmt::format("\n  process {} (pid {}) has not used a device yet{}", rank, known.pid,
                           is_stopped(process) ? ", which a signal has stopped" : "");
  }
  return missing;
}

StartWatch::StartWatch(const Job& job, double warn_sec, double timeout_sec)
    : job_(job),
      warn_sec_(warn_sec > 0 ? std::max(warn_sec, kLeastWarnSec) : 0),
      timeout_sec_(kStartFactor * timeout_sec) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { watch(); });
}

StartWatch::~StartWatch() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool StartWatch::over_after(double sec) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(sec), [&] { return over_; });
}

void StartWatch::watch() noexcept {
  prctl(PR_SET_NAME, kJoiningThread);
  try {
    WaitClock clock(warn_sec_, timeout_sec_);
    while (!over_after(0.1)) {
      const WaitClock::Due due = clock.look();
      if (due == WaitClock::Due::nothing) continue;
      const std::string missing = missing_on_this_node();
      const std::string what = fmt::format(
          "{}, and has waited {:.1f} s for the other processes to start:{}\n"
          "  Every process of a job must use devices. A program that is to run alone within a job "
          "sets SHMAP_ALONE=1",
          job_.text(), clock.seconds(),
          missing.empty()
              ? "\n  all processes of this node have started: a process of another node has "
                "not used a device yet, or MPI cannot reach it"
              : missing);
      if (due == WaitClock::Due::warning) {
        warn(what + " (SHMAP_COLLECTIVE_WARN_SEC)");
        continue;
      }
      warn(what + "\n  Giving up (twice SHMAP_COLLECTIVE_TIMEOUT_SEC)");
      _exit(1);
    }
  } catch (...) {
    return;  // no memory for the watch
  }
}

}  // namespace shmap
