// Call: one call of the simulator's NCCL, and its arithmetic.
#pragma once
#include <cstddef>

#include "nccl.h"

namespace shmap_sim {

struct Call {
  enum Kind { all_reduce, all_gather, reduce_scatter, broadcast, send, recv } kind;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  // the peer or the root
  int rank;
  cudaStream_t stream;
};

std::size_t size_of(ncclDataType_t type);
// into[i] = into[i] op from[i], rounded.
void reduce(void* into, const void* from, std::size_t n, ncclDataType_t type, ncclRedOp_t op);

}  // namespace shmap_sim
