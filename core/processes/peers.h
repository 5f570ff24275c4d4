// Peers: what this process knows of the other processes of the job, and the watch over those on its
// node.
#pragma once
#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shmap {

// What a process tells the others about itself at the start, as plain bytes.
struct PeerCard {
  char host[64] = {};
  std::uint64_t boot = 0;       // identifies the running system of the machine
  std::uint64_t pid_space = 0;  // processes of one number space can address each other by their
                                // pids
  std::int32_t pid = 0;
  cpu_set_t cores = {};  // the cores that it may run on; empty where not known

  static PeerCard of_this_process();
};

class Peers {
 public:
  Peers(int self, std::vector<PeerCard> cards);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int self() const noexcept { return self_; }
  int size() const noexcept { return static_cast<int>(cards_.size()); }
  bool on_this_node(int process) const noexcept;
  // The first process of the node that the process is on, which identifies the node.
  int node_of(int process) const noexcept;
  // This process's rank among the processes of its node, and their number.
  int node_rank() const noexcept { return node_rank_; }
  int node_size() const noexcept { return node_size_; }
  // True if this process and those that share cores with it are more than the cores that they may
  // run on: a process that waits actively then keeps another one from running. False for processes
  // that are each bound to a core of their own.
  bool crowded() const noexcept { return crowded_; }
  // "process 3 (pid 1234 on host a)"
  std::string text(int process) const;
  // ", which a signal has stopped" if so, for a process of this node; else "".
  std::string state_text(int process) const;

  // Blocks for at most timeout_us until one of the two descriptors (-1: none) is readable or a
  // process of this node has died; true in the latter case.
  bool wait(int wake, int other, int timeout_us) noexcept;
  // The next process of this node that has died and was not returned before, or -1.
  int next_dead() noexcept;
  // True if a process of this node has ended or died, whatever next_dead() has returned.
  bool is_gone(int process) const noexcept;

 private:
  bool is_crowded() const noexcept;

  struct Watched {
    int process;
    int fd;  // -1: watched by pid, where the kernel has no pidfd
    bool dead;
  };
  bool has_ended(const Watched& watched) const noexcept;
  const int self_;
  int node_rank_ = 0, node_size_ = 1;
  bool crowded_ = false;
  std::vector<PeerCard> cards_;
  std::vector<Watched> watched_;
};

}  // namespace shmap
