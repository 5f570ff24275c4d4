// EndWatch: names the processes that keep MPI from ending, while this process finalises it.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/processes/peers.h"

namespace shmap {

// While the object lives, a thread watches how long MPI_Finalize takes. MPI_Finalize waits for all
// other processes, each of which has said before that its program has ended: a process that is
// stopped or dies after that, or a launcher that hangs, would let this process wait forever.
//
// `over`, if given, tells that MPI_Finalize has returned to a program that called it itself: the
// thread then ends, while the object may live on.
//
// After warn_sec the thread warns, with what it can see of the processes of this node. After
// timeout_sec it repeats this and ends the process with exit code 1, upon which the launcher ends
// the job. 0 seconds: never. Made where nothing else uses `peers`, which must outlive the object.
// Where no thread can be started, nothing is watched.
class EndWatch {
 public:
  EndWatch(Peers& peers, double warn_sec, double timeout_sec,
           bool (*over)() noexcept = nullptr) noexcept;
  ~EndWatch();
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

 private:
  void watch() noexcept;
  bool over_after(double sec);  // waits for that long; true where MPI has ended
  std::string text(double sec) const;

  Peers& peers_;
  const double warn_sec_, timeout_sec_;
  bool (*const is_over_)() noexcept;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace shmap
