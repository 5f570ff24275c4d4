// StartWatch: names the missing processes while this process waits for the others to join the job.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/processes/job.h"

namespace shmap {

// Threads with names that begin so show the other processes of the node how far a process has come:
// the first while it joins, the second once it has joined. (The kernel keeps 15 characters of a
// name.)
inline constexpr const char* kJoiningThread = "shmap-joining";
inline constexpr const char* kJoinedThread = "shmap-joined";

// While the object lives, a thread watches how long this process takes to join. MPI blocks until
// all processes start, cannot be interrupted, and does not name the missing ones.
//
// After warn_sec (and not before 5 s, since MPI itself takes a while) the thread warns, with the
// processes of this node that have not used a device yet. After twice timeout_sec it repeats this
// and ends the process with exit code 1, upon which the launcher ends the job. 0 seconds: never.
// Where another process of this node has ended, the thread says so and ends this one after 6 s.
class StartWatch {
 public:
  StartWatch(const Job& job, double warn_sec, double timeout_sec);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void watch() noexcept;
  bool over_after(double sec);  // waits until `sec` after the start; true where all have joined

  const Job& job_;
  const double warn_sec_, timeout_sec_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

// A line for each rank of this node that the same launcher started (as the environments say) and
// that has neither thread: "\n  process 3 (pid 1234) has not used a device yet".
// "" where none is missing, or this cannot be determined.
std::string missing_on_this_node();

// The ranks of this node that have ended, with a verb: "process 1 has", or "2 of the 4 processes of
// this node have" where other nodes have ranks too. "" where none has, or this cannot be
// determined, as where a process that the launcher started does not let this one read its
// environment.
std::string ended_on_this_node(const Job& job);

}  // namespace shmap
