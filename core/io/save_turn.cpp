#include "core/io/save_turn.h"

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>

#include "core/device/fork_guard.h"
#include "shmap/error.h"

namespace shmap::io {

namespace {

struct Queue {
  std::uint64_t next = 0;     // the number of the next save that is requested
  std::uint64_t serving = 0;  // the number of the save that may write
};
struct Queues {
  std::mutex mutex;
  std::condition_variable moved;
  std::map<std::string, Queue> of;  // by folder; only folders with unfinished saves
};
Queues& queues() {
  static auto& all = *new Queues();  // never destroyed: saves may run while the process ends
  return all;
}

// A canonical path of the folder, which need not exist.
std::string key_of(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::weakly_canonical(folder, error);
  if (error) path = folder;
  if (!path.has_filename()) path = path.parent_path();  // "run/": drops the empty last component
  return path.string();
}

thread_local const SaveTurn* writing = nullptr;

}  // namespace

SaveTurn::SaveTurn(const std::string& folder) : key_(key_of(folder)) {
  if (forked()) throw_forked();
  for (const SaveTurn* t = writing; t != nullptr; t = t->outer_) {
    if (t->key_ != key_) continue;
    throw Error("save_checkpoint of '" + folder +
                "' by the progress callback of a save into the same folder, which would wait for "
                "itself: save after that one");
  }
  Queues& all = queues();
  const std::lock_guard lock(all.mutex);
  number_ = all.of[key_].next++;
}

void SaveTurn::wait() {
  if (came_) return;
  if (forked()) throw_forked();
  Queues& all = queues();
  std::unique_lock lock(all.mutex);
  all.moved.wait(lock, [&] { return all.of[key_].serving == number_; });
  came_ = true;
  outer_ = writing;
  writing = this;
}

SaveTurn::~SaveTurn() {
  if (forked()) return;  // the threads whose saves are earlier do not exist in this process
  wait();
  writing = outer_;
  Queues& all = queues();
  const std::lock_guard lock(all.mutex);
  Queue& mine = all.of[key_];
  if (++mine.serving == mine.next) all.of.erase(key_);
  all.moved.notify_all();
}

}  // namespace shmap::io
