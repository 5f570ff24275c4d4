// The communicator among devices of one process, whichever memory spaces they have: tables and
// plain copies.
//
// What is equal in a memory space is stored once there. Sums, maxima and gathers are computed once
// for each clique and memory space, straight from all ranks' blocks; permutations and broadcasts
// inside a memory space move entries of the table and no bytes.
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
