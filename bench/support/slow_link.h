// Links of a fixed bandwidth between the memory spaces of CPU devices, which stand in for a network
// or a bus: copies of blocks between spaces (ppermute, broadcast) take as long as the link needs
// for their bytes, and occupy no worker meanwhile.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include "core/runtime/device_ops.h"

namespace shmap::bench {

// Each receiving device has a link of its own. A link carries one block at a time, in the order in
// which the copies start; a block arrives bytes / rate after its link was free. The memory itself
// is copied by a thread of this class when the copy starts, which takes time of a core: at
// 10 GB/s, a hundredth of what a link of 0.1 GB/s takes.
class SlowLinks {
 public:
  // From now on, until the destructor, all copies between spaces of CPU devices use the links. The
  // process must have no other SlowLinks, and no array operation may be pending at either end.
  explicit SlowLinks(double bytes_per_us);
  ~SlowLinks();
  SlowLinks(const SlowLinks&) = delete;
  SlowLinks& operator=(const SlowLinks&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  struct Transfer {
    Clock::time_point due;
    TaskEnd* end;
    bool operator>(const Transfer& other) const { return due > other.due; }
  };
  struct Started {
    SpaceCopy copy;
    Transfer transfer;
  };
  static void start(const SpaceCopy& copy, TaskEnd* end);
  Clock::time_point reserve(const SpaceCopy& copy);
  void run();

  const double bytes_per_us_;
  std::mutex mutex_;  // guards what follows, besides thread_
  std::condition_variable changed_;
  std::vector<Clock::time_point> free_;  // of each receiver's link: when it can start another block
  std::queue<Started> started_;          // their memory has not been copied
  std::priority_queue<Transfer, std::vector<Transfer>, std::greater<>> under_way_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace shmap::bench
