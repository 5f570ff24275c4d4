// Processes: the processes of the job, once this process has joined them.
//
// Every process runs the same program (multi-controller): each drives its own devices, and a mesh
// may span all of them.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/processes/job.h"
#include "core/processes/message_passing.h"
#include "core/processes/peers.h"

namespace shmap {

class Exchanges;
class NodeLink;

// What must be the same in all processes; each process sends it at start.
struct StartCard {
  PeerCard peer;
  char version[32] = {};        // of the library
  char devices[64] = {};        // the device string
  std::int32_t kind = 0;        // of devices
  std::int32_t count = 0;       // of devices
  char environment[1024] = {};  // variables that must be the same, as "NAME=value NAME=value"
};

class Processes {
 public:
  // The job that this process has joined; else null.
  static Processes* joined() noexcept { return the_processes.load(std::memory_order_acquire); }
  // Joins the job: blocks until all processes have joined. Throws DeviceError where that fails, or
  // where the cards differ (the text names the process); nothing is joined then. Called once.
  // finish: waits for all enqueued work of this process; called before this process tells the
  // others that it leaves.
  static Processes& join(const Job& job, StartCard card, void (*finish)() noexcept);
  ~Processes();

  int rank() const noexcept { return messages_->rank(); }
  int size() const noexcept { return messages_->size(); }
  const Peers& peers() const noexcept { return *peers_; }
  Exchanges& exchanges() noexcept { return *exchanges_; }

 private:
  explicit Processes(std::unique_ptr<MessagePassing> messages);
  void agree(const StartCard& card);
  // True in a child that was forked from the process of the job. It shares the parent's rings and
  // its place in MPI, which its end must not touch.
  bool is_of_a_child() const noexcept;
  static void leave(int exit_code, void*) noexcept;  // at exit
  // In the program's own MPI_Finalize, before that waits for the other processes.
  static void leave_with_mpi() noexcept;
  // Finishes this process's work at the first call, and waits until all processes part. True if all
  // of them do. how: what the process does, "has ended".
  bool part(const char* how) noexcept;
  static std::atomic<Processes*> the_processes;

  std::unique_ptr<MessagePassing> messages_;
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<NodeLink> link_;  // null: no other process can be reached through a link
  void (*finish_)() noexcept = nullptr;
  double warn_sec_ = 0, timeout_sec_ = 0;  // of waits for other processes; 0: never
  const int pid_;
  Exchanges* exchanges_ = nullptr;  // lives as long as the process
  bool parted_ = false, parted_well_ = false;
};

}  // namespace shmap
