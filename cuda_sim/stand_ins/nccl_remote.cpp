#include "nccl_remote.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

namespace shmap_sim {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "/dev/shm/";
constexpr const char* kPrefix = "shmap_sim_nccl.";  // then the pid of the process that made the id

bool runs(int pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

// Removes the files of ids that those processes have made.
template <class Which>
void sweep(Which which) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kPrefix, 0) != 0) continue;
    if (which(std::atoi(name.c_str() + std::char_traits<char>::length(kPrefix))))
      fs::remove(entry.path(), error);
  }
}

// Runs last at exit, after the processes of a job have waited for each other.
__attribute__((constructor)) void sweep_at_exit() {
  std::atexit([] {
    if (std::getenv("SHMAP_SIM_GPUS") != nullptr) sweep([](int pid) { return pid == getpid(); });
  });
}

}  // namespace

std::string RemoteRank::new_id(int number) {
  sweep([](int pid) { return !runs(pid); });
  return kPrefix + std::to_string(getpid()) + "." + std::to_string(number);
}

RemoteRank::RemoteRank(std::string id, int ranks, int rank, int device)
    : id_(std::move(id)),
      ranks_(ranks),
      rank_(rank),
      sent_(static_cast<std::size_t>(ranks), 0),
      taken_(static_cast<std::size_t>(ranks), 0) {
  const std::string path = path_of_rank(rank);
  std::ofstream(path + "~") << getpid() << ' ' << device << '\n';
  std::rename((path + "~").c_str(), path.c_str());
}

std::string RemoteRank::path_of_rank(int rank) const {
  return kFolder + id_ + ".rank" + std::to_string(rank);
}

std::string RemoteRank::path(int from, int to, std::uint64_t number) const {
  return kFolder + id_ + "." + std::to_string(from) + "to" + std::to_string(to) + "." +
         std::to_string(number);
}

ncclResult_t RemoteRank::form(bool gpus_may_be_shared) {
  if (error() != ncclSuccess) return error();
  if (!pids_.empty()) return ncclSuccess;
  std::vector<int> pids, devices;
  for (int r = 0; r < ranks_; ++r) {
    std::ifstream file(path_of_rank(r));
    int pid = 0, device = 0;
    if (!(file >> pid >> device)) return ncclInProgress;
    if (!gpus_may_be_shared && std::find(devices.begin(), devices.end(), device) != devices.end()) {
      fail(ncclInvalidUsage);
      return error();
    }
    pids.push_back(pid);
    devices.push_back(device);
  }
  pids_ = std::move(pids);
  return ncclSuccess;
}

void RemoteRank::send(int to, const Message& message, const void* data, std::size_t bytes) {
  std::uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    number = sent_[static_cast<std::size_t>(to)]++;
  }
  const std::string whole = path(rank_, to, number);
  {
    std::ofstream file(whole + "~", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&message), sizeof message);
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    if (!file) fail(ncclSystemError);
  }
  if (std::rename((whole + "~").c_str(), whole.c_str()) != 0) fail(ncclSystemError);
}

bool RemoteRank::is_gone(int rank) const {
  return !pids_.empty() && !runs(pids_[static_cast<std::size_t>(rank)]);
}

bool RemoteRank::has(const std::map<int, int>& wanted) {
  if (aborted()) return true;
  for (const auto& [from, count] : wanted) {
    std::uint64_t last = 0;
    {
      std::lock_guard lock(mutex_);
      last = taken_[static_cast<std::size_t>(from)] + static_cast<std::uint64_t>(count) - 1;
    }
    if (access(path(from, rank_, last).c_str(), F_OK) == 0) continue;
    if (is_gone(from)) fail(ncclRemoteError);
    return false;
  }
  return true;
}

bool RemoteRank::take(int from, const Message& message, std::vector<char>& data,
                      std::size_t bytes) {
  std::uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    number = taken_[static_cast<std::size_t>(from)]++;
  }
  const std::string name = path(from, rank_, number);
  Message came{};
  data.assign(bytes, 0);
  std::ifstream file(name, std::ios::binary);
  file.read(reinterpret_cast<char*>(&came), sizeof came);
  bool fits = static_cast<bool>(file) && came == message;
  if (fits) {
    file.read(data.data(), static_cast<std::streamsize>(bytes));
    fits = static_cast<bool>(file) && file.peek() == std::ifstream::traits_type::eof();
  }
  file.close();
  unlink(name.c_str());
  return fits;
}

}  // namespace shmap_sim
