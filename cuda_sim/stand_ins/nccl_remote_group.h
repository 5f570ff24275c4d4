// RemoteGroup: what one rank's calls of a group are to the ranks in other processes.
#pragma once
#include <map>
#include <vector>

#include "nccl_call.h"
#include "nccl_remote.h"

namespace shmap_sim {

class RemoteGroup {
 public:
  // Of a communicator of so many ranks; calls in order.
  RemoteGroup(RemoteRank& remote, int ranks, std::vector<Call> calls);
  // Messages that it awaits, by rank.
  const std::map<int, int>& awaited() const { return awaited_; }
  // Sends the others their shares.
  void send();
  // The others' have come: fills the results. False where one is of another call. What was aborted
  // leaves the results as they are.
  bool take();

 private:
  bool take_one(int from, const Call& call, std::vector<char>& data, std::size_t bytes);

  RemoteRank& remote_;
  const int ranks_;
  const std::vector<Call> calls_;
  std::vector<std::vector<char>> own_;  // of collectives: the operand as it was sent
  std::map<int, int> awaited_;
};

}  // namespace shmap_sim
