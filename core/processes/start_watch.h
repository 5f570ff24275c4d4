// StartWatch: who is missing while a process waits for the others to join the job.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/processes/job.h"

namespace shmap {

// Threads whose name begins so show other processes of the node how far theirs has come: the first
// of one that joins, the second of one that has joined. (The kernel keeps 15 characters.)
inline constexpr const char* kJoiningThread = "shmap-joining";
inline constexpr const char* kJoinedThread = "shmap-joined";

// While it lives, a thread of its own watches over the time that this process takes to join. MPI
// waits for all processes as it starts, cannot be interrupted, and does not say for whom it waits.
//
// After warn_sec (and not before 5 s, since MPI itself takes a while) it warns, with the processes
// of this node that have not used a device yet; after twice timeout_sec it says so again, and ends
// the process with the exit code 1, upon which the launcher ends the job. 0 seconds: never.
class StartWatch {
 public:
  StartWatch(const Job& job, double warn_sec, double timeout_sec);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void watch() noexcept;
  bool over_after(double sec);  // waits so long after the start; true where all have joined

  const Job& job_;
  const double warn_sec_, timeout_sec_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

// Of the processes on this node that the same launcher started (as their environments say): a line
// for each rank that has no thread of one of those names, "\n  process 3 (pid 1234) has not used a
// device yet". "" where none is missing, or it cannot be told.
std::string missing_on_this_node();

}  // namespace shmap
