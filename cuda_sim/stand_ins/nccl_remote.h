// RemoteRank: a rank of a communicator of the simulator's NCCL that has ranks in other processes.
//
// What ranks send each other are files in shared memory, named by the communicator's id: one writes
// them under another name and renames them when they are whole, the other takes them away. Nobody
// waits with a lock, so a process that dies keeps nobody; who waits for it finds that it is gone.
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
  // The id of a communicator, and all that processes left behind which are no more, taken away.
  static std::string new_id(int number);

  RemoteRank(std::string id, int ranks, int rank, int device);

  // Whether all ranks are there: ncclInProgress until they are; ncclInvalidUsage where two are on
  // one GPU and may not be.
  ncclResult_t form(bool gpus_may_be_shared);

  struct Message {
    std::int32_t kind, type, op, root;
    std::uint64_t count;
    bool operator==(const Message&) const = default;
  };
  void send(int to, const Message& message, const void* data, std::size_t bytes);
  // Whether so many messages of each of these ranks are there, beyond those that were taken; true
  // too where the communicator was aborted. Notes where a process is gone that owes one.
  bool has(const std::map<int, int>& wanted);
  // The next one; false where it is another message than that, or of another size.
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
  std::vector<int> pids_;                    // by rank, once it has formed
  std::mutex mutex_;                         // guards what follows
  std::vector<std::uint64_t> sent_, taken_;  // by peer
  std::atomic<int> error_{ncclSuccess};
  std::atomic<bool> aborted_{false};
};

}  // namespace shmap_sim
