// The collectives across processes: each is one exchange or two of its CrossCall, with local work
// around them. The arguments are those of Communicator's methods. No call waits.
#pragma once
#include <cstdint>
#include <span>

#include "collectives/communicator.h"
#include "collectives/exchange_task.h"

namespace shmap {

// Sums and extrema: one balanced tree over the ranks in mesh order (cross_sums.cpp).
void cross_all_reduce(const GroupBlocks& g, Reduction op, DType dtype, CrossCall& call);
void cross_reduce_scatter(const GroupBlocks& g, const Interleaved& parts, Reduction op, DType dtype,
                          CrossCall& call);
// Copies (cross_copies.cpp).
void cross_all_gather(const GroupBlocks& g, const Interleaved& parts, CrossCall& call);
void cross_all_to_all(const GroupBlocks& g, const Exchange& exchange, CrossCall& call);
// out of rank r = the block of rank source[r]; zeros where source[r] is -1.
void cross_permute(const GroupBlocks& g, std::span<const int> source, CrossCall& call);
void cross_broadcast(const GroupBlocks& g, std::uint32_t rank, CrossCall& call);

}  // namespace shmap
