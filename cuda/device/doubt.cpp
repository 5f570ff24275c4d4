#include "cuda/device/doubt.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

namespace shmap::cuda {

namespace {

struct Doubts {
  std::mutex mutex;
  std::map<std::uint64_t, std::vector<DoubtedTask>> open;
  std::uint64_t next = 1;
  std::atomic<int> count{0};

  static Doubts& get() {
    static auto& doubts = *new Doubts;  // never destroyed, since threads may wait at exit
    return doubts;
  }
};

}  // namespace

std::uint64_t begin_doubt(std::vector<DoubtedTask> tasks) {
  Doubts& doubts = Doubts::get();
  std::lock_guard lock(doubts.mutex);
  doubts.open.emplace(doubts.next, std::move(tasks));
  doubts.count.fetch_add(1, std::memory_order_relaxed);
  return doubts.next++;
}

void add_to_doubt(std::uint64_t doubt, DoubtedTask task) {
  Doubts& doubts = Doubts::get();
  std::lock_guard lock(doubts.mutex);
  const auto it = doubts.open.find(doubt);
  if (it != doubts.open.end()) it->second.push_back(std::move(task));
}

void end_doubt(std::uint64_t doubt) noexcept {
  std::vector<DoubtedTask> tasks;  // destroyed without the lock
  Doubts& doubts = Doubts::get();
  std::lock_guard lock(doubts.mutex);
  const auto it = doubts.open.find(doubt);
  tasks = std::move(it->second);
  doubts.open.erase(it);
  doubts.count.fetch_sub(1, std::memory_order_relaxed);
}

bool in_doubt() noexcept {
  Doubts& doubts = Doubts::get();
  if (doubts.count.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard lock(doubts.mutex);
  for (const auto& [number, tasks] : doubts.open)
    for (const DoubtedTask& task : tasks)
      if (task.queue->may_have_ended(task.number)) return true;
  return false;
}

}  // namespace shmap::cuda
