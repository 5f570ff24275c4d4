#include "core/processes/start_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/signals_blocked.h"
#include "core/base/wait_clock.h"
#include "core/base/warning.h"

namespace shmap {
namespace {

constexpr double kLeastWarnSec = 5;
constexpr std::chrono::milliseconds kEndingTime{50};
constexpr const char* kRule =
    "Every process of a job must use devices. A program that is to run alone within a job sets "
    "SHMAP_ALONE=1";
constexpr double kLooksEverySec = 1;  // for processes that have ended
constexpr double kStartFactor = 2;  // times the timeout: joining includes the start of MPI and the
                                    // loading of each process

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

int number_in(std::string_view text) {
  int n = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() ? n : -1;
}

std::string environment_of(int pid) {
  return contents("/proc/" + std::to_string(pid) + "/environ");
}

int parent_of(int pid) {
  const std::string text = contents("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t end = text.rfind(") ");  // "7 (name) S 1 ..."
  if (end == text.npos || end + 4 >= text.size()) return 0;
  const std::string_view rest = std::string_view(text).substr(end + 4);
  return number_in(rest.substr(0, rest.find(' ')));
}

// The launcher: the nearest ancestor that is not of the job; 0 where it cannot be seen. In a
// container of its own a process sees neither the launcher nor the other processes.
int launcher_of(std::string_view job) {
  for (int pid = getppid(); pid > 1; pid = parent_of(pid)) {
    const std::string environment = environment_of(pid);
    if (!environment.empty() && value_in(environment, "PMIX_NAMESPACE") != job) return pid;
  }
  return 0;
}

bool descends_from(int pid, int ancestor) {
  while (pid > 1 && pid != ancestor) pid = parent_of(pid);
  return pid == ancestor;
}

// True for a process that is running and whose environment this one may not read (of another user,
// or one that has said so by prctl(PR_SET_DUMPABLE)).
bool hides_environment(int pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/environ";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == EACCES || errno == EPERM;
  close(file);
  return false;
}

struct Rank {
  int pid = 0;
  bool come = false;
};

// The ranks of the job that can be seen to have a process on this node. Child processes of a
// process of the job inherit its environment: a rank has arrived if any process with its
// environment has; the oldest one is named.
std::map<int, Rank> ranks_on_this_node(const char* job) {
  std::map<int, Rank> ranks;
  for (const std::string& name : names_in("/proc")) {
    const int pid = number_in(name);
    if (pid < 0) continue;
    const std::string environment = contents("/proc/" + name + "/environ");
    const int rank = number_in(value_in(environment, "PMIX_RANK"));
    if (rank < 0 || value_in(environment, "PMIX_NAMESPACE") != job) continue;
    Rank& known = ranks[rank];
    if (known.pid == 0 || pid < known.pid) known.pid = pid;
    known.come = known.come || has_come("/proc/" + name);
  }
  return ranks;
}

}  // namespace

std::string missing_on_this_node() {
  const char* const job = std::getenv("PMIX_NAMESPACE");
  if (job == nullptr) return "";
  std::map<int, Rank> ranks = ranks_on_this_node(job);
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

std::string ended_on_this_node(const Job& job) {
  const char* const name = std::getenv("PMIX_NAMESPACE");
  if (name == nullptr || job.node_size <= 0) return "";
  const int launcher = launcher_of(name);
  if (launcher == 0) return "";
  const std::map<int, Rank> ranks = ranks_on_this_node(name);
  const int ended = job.node_size - static_cast<int>(ranks.size());
  if (ended <= 0) return "";
  // A process that hides its environment may be one of those that are missed.
  for (const std::string& process : names_in("/proc")) {
    const int pid = number_in(process);
    if (pid > 0 && hides_environment(pid) && descends_from(pid, launcher)) return "";
  }
  if (job.node_size != job.size)  // which ranks this node has is not known
    return fmt::format("{} of the {} processes of this node {}", ended, job.node_size,
                       ended == 1 ? "has" : "have");
  std::string text;
  for (int rank = 0; rank < job.size; ++rank)
    if (!ranks.contains(rank)) text += fmt::format("{}process {}", text.empty() ? "" : ", ", rank);
  return text + (ended == 1 ? " has" : " have");
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
    double looked_at = 0;
    std::string ended;
    while (!over_after(0.1)) {
      const WaitClock::Due due = clock.look();
      // After kLeastWarnSec the launcher has long started all processes. Those that two looks in a
      // row find ended will not come.
      if (clock.seconds() > kLeastWarnSec && clock.seconds() > looked_at + kLooksEverySec) {
        looked_at = clock.seconds();
        const std::string before = std::exchange(ended, ended_on_this_node(job_));
        if (!ended.empty() && ended == before) {
          warn(fmt::format("{}, and {} ended without using a device.\n  {}. Giving up", job_.text(),
                           ended, kRule));
          _exit(1);
        }
      }
      if (due == WaitClock::Due::nothing) continue;
      const std::string missing = missing_on_this_node();
      const std::string what = fmt::format(
          "{}, and has waited {:.1f} s for the other processes to start:{}\n  {}", job_.text(),
          clock.seconds(),
          missing.empty() ? "\n  as far as can be seen, the processes of this node have started: "
                            "one of another node has not used a device yet, or has ended, or MPI "
                            "cannot reach it"
                          : missing,
          kRule);
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
