// Peers: the processes of the job as this one knows them, and the watch over those on its node.
#pragma once
#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shmap {

// What a process says of itself at start, as bytes.
struct PeerCard {
  char host[64] = {};
  std::uint64_t boot = 0;       // of the machine's running system
  std::uint64_t pid_space = 0;  // processes of one see each other by their numbers
  std::int32_t pid = 0;
  cpu_set_t cores = {};  // that it may run on; none where it could not be told

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
  // The first process of the node that it is on: the node's number.
  int node_of(int process) const noexcept;
  // Its rank among the processes of this node, and how many these are.
  int node_rank() const noexcept { return node_rank_; }
  int node_size() const noexcept { return node_size_; }
  // Whether the processes that share cores with this one are more than the cores that they have
  // together: then one that waits keeps another from running. Two processes that are bound to a
  // core each are not.
  bool crowded() const noexcept { return crowded_; }
  // "process 3 (pid 1234 on host a)"
  std::string text(int process) const;
  // ", which is stopped" of one on this node that a signal stopped; else "".
  std::string state_text(int process) const;

  // Waits up to that long until one of the two descriptors (-1: none) can be read or a process of
  // this node has died; true for the latter.
  bool wait(int wake, int other, int timeout_us) noexcept;
  // The next process of this node that has died and was not returned before, or -1.
  int next_dead() noexcept;

 private:
  bool is_crowded() const noexcept;

  struct Watched {
    int process;
    int fd;  // -1: by its number, where the kernel has no descriptors of processes
    bool dead;
  };
  const int self_;
  int node_rank_ = 0, node_size_ = 1;
  bool crowded_ = false;
  std::vector<PeerCard> cards_;
  std::vector<Watched> watched_;
};

}  // namespace shmap
