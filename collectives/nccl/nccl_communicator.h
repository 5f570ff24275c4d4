// The communicator of distinct GPUs: NCCL.
//
// One task for each clique, in the communication streams of all its devices: the calls of all local
// ranks are one group, so no two ranks wait for each other inside a process, and a capture records
// them as one program. All of a device's communication is in its one communication stream, in
// program order.
//
// Sums and products of floats are reduced in the order, and with the roundings, that NCCL takes:
// the same on all ranks, and in every run on the same GPUs, but not the bits of the in-process
// tree. What NCCL reduces otherwise than this library (maxima and minima of floats: there a NaN is
// not the result) or not at all (16-bit integers) is gathered by NCCL and combined by that tree on
// every rank.
#pragma once
#include "collectives/communicator.h"

namespace shmap::nccl {

class NcclCommunicator final : public Communicator {
 public:
  void all_reduce(const GroupBlocks& blocks, Reduction op, DType dtype) override;
  void all_gather(const GroupBlocks& blocks, const Interleaved& parts) override;
  void reduce_scatter(const GroupBlocks& blocks, const Interleaved& parts, Reduction op,
                      DType dtype) override;
  void all_to_all(const GroupBlocks& blocks, const Exchange& exchange) override;
  void permute(const GroupBlocks& blocks, std::span<const int> source) override;
  void broadcast(const GroupBlocks& blocks, std::uint32_t rank) override;
};

}  // namespace shmap::nccl
