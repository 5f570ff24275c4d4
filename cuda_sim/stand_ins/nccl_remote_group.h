// RemoteGroup: one rank's part of a group, in communication with ranks of other processes.
#pragma once
#include <map>
#include <vector>

#include "nccl_call.h"
#include "nccl_remote.h"

namespace shmap_sim {

class RemoteGroup {
 public:
  // For a communicator of `ranks` ranks. Calls must be in order.
  RemoteGroup(RemoteRank& remote, int ranks, std::vector<Call> calls);
  // The number of messages that the group needs from each rank.
  const std::map<int, int>& awaited() const { return awaited_; }
  // Sends this rank's data to the other ranks.
  void send();
  // Called when all messages have come: fills the results. False where a message belongs to another
  // call. If the communicator was aborted, the results stay unchanged.
  bool take();

 private:
  bool take_one(int from, const Call& call, std::vector<char>& data, std::size_t bytes);

  RemoteRank& remote_;
  const int ranks_;
  const std::vector<Call> calls_;
  std::vector<std::vector<char>> own_;  // of collectives: the operand as sent
  std::map<int, int> awaited_;
};

}  // namespace shmap_sim
