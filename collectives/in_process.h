// The communicator among the devices of one process, for any number of memory spaces: tables and
// plain copies.
//
// Results that are equal in a memory space are stored once there. Sums, maxima and gathers are
// computed once per clique and memory space, directly from the blocks of all ranks; permutations
// and broadcasts inside a memory space change entries of the table and move no bytes.
#pragma once
#include "collectives/communicator.h"

namespace shmap {

class InProcessCommunicator final : public Communicator {
 public:
  void all_reduce(const GroupBlocks& blocks, Reduction op, DType dtype) override;
  void all_gather(const GroupBlocks& blocks, const Interleaved& parts) override;
  void reduce_scatter(const GroupBlocks& blocks, const Interleaved& parts, Reduction op,
                      DType dtype) override;
  void all_to_all(const GroupBlocks& blocks, const Exchange& exchange) override;
  void permute(const GroupBlocks& blocks, std::span<const int> source) override;
  void broadcast(const GroupBlocks& blocks, std::uint32_t rank) override;
};

}  // namespace shmap
