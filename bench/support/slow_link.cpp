#include "bench/support/slow_link.h"

#include <algorithm>
#include <cstring>

namespace shmap::bench {

namespace {
SlowLinks* the_links = nullptr;  // written while no copy is pending
}

SlowLinks::SlowLinks(double bytes_per_us)
    : bytes_per_us_(bytes_per_us), thread_([this] { run(); }) {
  the_links = this;
  device_ops(DeviceKind::cpu).start_space_copy = start;
}

SlowLinks::~SlowLinks() {
  device_ops(DeviceKind::cpu).start_space_copy = nullptr;
  the_links = nullptr;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void SlowLinks::start(const SpaceCopy& copy, TaskEnd* end) {
  SlowLinks& links = *the_links;
  const Clock::time_point due = links.reserve(copy);
  if (end == nullptr) {
    std::memcpy(copy.dst, copy.src, static_cast<std::size_t>(copy.bytes));
    std::this_thread::sleep_until(due);
    return;
  }
  {
    const std::lock_guard lock(links.mutex_);
    links.started_.push({copy, {due, end}});
  }
  links.changed_.notify_one();
}

// Returns when the block will have arrived.
SlowLinks::Clock::time_point SlowLinks::reserve(const SpaceCopy& copy) {
  const std::chrono::duration<double, std::micro> takes(static_cast<double>(copy.bytes) /
                                                        bytes_per_us_);
  const std::lock_guard lock(mutex_);
  const auto receiver = static_cast<std::size_t>(copy.to);
  if (free_.size() <= receiver) free_.resize(receiver + 1);
  free_[receiver] =
      std::max(free_[receiver], Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
  return free_[receiver];
}

void SlowLinks::run() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    if (!started_.empty()) {
      const Started next = started_.front();
      started_.pop();
      lock.unlock();
      std::memcpy(next.copy.dst, next.copy.src, static_cast<std::size_t>(next.copy.bytes));
      lock.lock();
      under_way_.push(next.transfer);
    } else if (!under_way_.empty() && under_way_.top().due <= Clock::now()) {
      TaskEnd* const end = under_way_.top().end;
      under_way_.pop();
      lock.unlock();
      end->end(nullptr);  // may start the copies that waited for this one
      lock.lock();
    } else if (!under_way_.empty()) {
      changed_.wait_until(lock, under_way_.top().due);
    } else {
      changed_.wait(lock);
    }
  }
}

}  // namespace shmap::bench
