// Communicator: how blocks get from device to device. A call is handed the blocks of all local
// devices of a mesh, so every local rank of every clique, at once: one group call of a library such
// as NCCL, one loop over MPI, or plain copies in process. There is no rendezvous and no order of
// ranks to keep.
#pragma once
#include <cstdint>
#include <span>

#include "collectives/clique_table.h"
#include "core/ir/node.h"
#include "core/runtime/device_ops.h"

namespace shmap {

struct GroupBlocks {
  const detail::MeshImpl& mesh;
  const CliqueTable& cliques;
  std::span<const Block> in;         // by local position
  std::span<Block> out;              // to be filled; entries that hold one value may share a block
  std::int64_t in_bytes, out_bytes;  // of a block
  const Primitive& primitive;
  SourceLine source;
  std::uint64_t number;  // of the step
};

// A block of `ranks` pieces interleaved along a dim, [outer][rank][piece], beside one rank's
// [outer][piece]. `piece` is in bytes, of elements of `itemsize`.
struct Interleaved {
  std::int64_t outer, piece;
  int itemsize;
};

// all_to_all: the piece from rank q for rank r is the box (without src and dst) at in_q + r ×
// src_step, and goes to out_r + q × dst_step; steps in bytes.
struct Exchange {
  BoxCopy box;
  std::int64_t src_step, dst_step;
};

// Calls fill in `out`, enqueue, and never wait. They wait only for what they read: tasks go to the
// devices' communication streams. The caller does not hold the submit mutex. Cliques have at least
// two ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;
  // out = the ranks' blocks combined elementwise. In process by one balanced tree whose shape and
  // order depend on the clique alone; a library's sums of floats have the order that it takes, the
  // same on all ranks.
  virtual void all_reduce(const GroupBlocks& blocks, Reduction op, DType dtype) = 0;
  // out = the ranks' blocks, interleaved in order of rank.
  virtual void all_gather(const GroupBlocks& blocks, const Interleaved& parts) = 0;
  // out of rank r = piece r of the combined block.
  virtual void reduce_scatter(const GroupBlocks& blocks, const Interleaved& parts, Reduction op,
                              DType dtype) = 0;
  virtual void all_to_all(const GroupBlocks& blocks, const Exchange& exchange) = 0;
  // out of rank r = the block of rank source[r]; zeros where that is -1.
  virtual void permute(const GroupBlocks& blocks, std::span<const int> source) = 0;
  // out = the block of one rank.
  virtual void broadcast(const GroupBlocks& blocks, std::uint32_t rank) = 0;
};

// Which of the calls above.
enum class CollectiveKind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  permute,
  broadcast
};

// The one for this call: by the devices of its cliques, its kind and its bytes, never by a timing,
// so that every run of a program takes the same (collectives/choose.h). CollectiveError where there
// is none that reaches all of them, or where SHMAP_COMMUNICATOR asks for one that cannot.
Communicator& communicator(const GroupBlocks& blocks, CollectiveKind kind);

}  // namespace shmap
