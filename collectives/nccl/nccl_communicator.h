// The communicator of distinct GPUs: NCCL.
//
// Each clique is one task in the communication streams of all its local devices: the calls of all
// local ranks form one group, so that no two ranks of a process wait for each other, and a capture
// records them together. All communication of a device is in its one communication stream, in
// program order.
//
// NCCL adds and multiplies floats in an order, and with roundings, of its own: the same on all
// ranks and in every run on the same GPUs, but not with the bits of the in-process tree. Reductions
// whose results in NCCL differ from this library's (maxima and minima of floats, where NCCL does
// not propagate NaN) and those that NCCL does not have (16-bit integers) are done by gathering with
// NCCL and combining by the in-process tree on every rank.
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
