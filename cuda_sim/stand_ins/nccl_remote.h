// RemoteRank: a rank of a communicator of the simulator's NCCL that has ranks in other processes.
//
// Messages between ranks are files in shared memory, named by the communicator's id. The sender
// writes a file under another name and renames it when it is complete; the receiver removes it. No
// process waits with a lock, so that a dead process blocks no other; a process that waits for a
// dead one detects the death.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "nccl.h"

namespace shmap_sim {

class RemoteRank {
 public:
  // The id of a new communicator; also removes files that dead processes left behind.
  static std::string new_id(int number);

  RemoteRank(std::string id, int ranks, int rank, int device);

  // Returns ncclSuccess once all ranks have come, ncclInProgress until then, and ncclInvalidUsage
  // if two ranks use one GPU and may not.
  ncclResult_t form(bool gpus_may_be_shared);

  struct Message {
    std::int32_t kind, type, op, root;
    std::uint64_t count;
    bool operator==(const Message&) const = default;
  };
  void send(int to, const Message& message, const void* data, std::size_t bytes);
  // True if that many messages of each of these ranks have come and were not taken; also true if
  // the communicator was aborted. Notes if a process that should send one is dead.
  bool has(const std::map<int, int>& wanted);
  // Takes the next message; false if it is a different message or has another size.
  bool take(int from, const Message& message, std::vector<char>& data, std::size_t bytes);

  void abort() { aborted_.store(true); }
  bool aborted() const { return aborted_.load(); }
  void fail(ncclResult_t error) {
    int none = ncclSuccess;
    error_.compare_exchange_strong(none, error);
  }
  ncclResult_t error() const { return static_cast<ncclResult_t>(error_.load()); }

 private:
  std::string path(int from, int to, std::uint64_t number) const;
  std::string path_of_rank(int rank) const;
  bool is_gone(int rank) const;

  const std::string id_;
  const int ranks_, rank_;
  std::vector<int> pids_;                    // by rank; set once all ranks have come
  std::mutex mutex_;                         // guards the members below
  std::vector<std::uint64_t> sent_, taken_;  // by peer
  std::atomic<int> error_{ncclSuccess};
  std::atomic<bool> aborted_{false};
};

}  // namespace shmap_sim
