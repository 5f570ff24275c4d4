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
  SHMAP_COLLECTIVE_VERBS(SHMAP_VERB_OVERRIDE)
};

}  // namespace shmap::nccl
