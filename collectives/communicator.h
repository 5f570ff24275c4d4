// Communicator: moves blocks between devices. One call gets the blocks of all local devices of a
// mesh, and so all local ranks of all cliques, at once: it is one group call of a library such as
// NCCL, one exchange between processes, or copies inside the process. No thread waits for another
// to make its call.
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
  std::span<Block> out;              // to be set, by local position; equal values may share a block
  std::int64_t in_bytes, out_bytes;  // of one block
  const Primitive& primitive;
  SourceLine source;
  std::uint64_t number;  // the step's number, as in OpSite
};

// The layout of a block that contains `ranks` pieces interleaved along a dim, [outer][rank][piece];
// a single piece is [outer][piece]. `piece` is in bytes; elements have `itemsize` bytes.
struct Interleaved {
  std::int64_t outer, piece;
  int itemsize;
};

// all_to_all: the piece that rank q sends to rank r is the box (without src and dst) at in_q + r ×
// src_step, and goes to out_r + q × dst_step; steps in bytes.
struct Exchange {
  BoxCopy box;
  std::int64_t src_step, dst_step;
};

// Each call sets `out`, enqueues tasks, and never waits. The tasks go to the devices' communication
// streams, and wait only for what they read. The caller does not hold the submit mutex. Cliques
// have at least two ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;
  // out = the blocks of all ranks, combined elementwise. In process: by one balanced tree, whose
  // shape and order depend only on the clique. A library adds floats in an order of its own, which
  // is the same on all ranks.
  virtual void all_reduce(const GroupBlocks& blocks, Reduction op, DType dtype) = 0;
  // out = the blocks of all ranks, interleaved in rank order.
  virtual void all_gather(const GroupBlocks& blocks, const Interleaved& parts) = 0;
  // out of rank r = piece r of the combined blocks.
  virtual void reduce_scatter(const GroupBlocks& blocks, const Interleaved& parts, Reduction op,
                              DType dtype) = 0;
  virtual void all_to_all(const GroupBlocks& blocks, const Exchange& exchange) = 0;
  // out of rank r = the block of rank source[r]; zeros where source[r] is -1.
  virtual void permute(const GroupBlocks& blocks, std::span<const int> source) = 0;
  // out = the block of rank `rank`.
  virtual void broadcast(const GroupBlocks& blocks, std::uint32_t rank) = 0;
};

// The kinds of calls of a Communicator.
enum class CollectiveKind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  permute,
  broadcast
};

// The communicator for a call, chosen by the devices of its cliques, its kind and its bytes, and
// never by a timing, so that every run of a program uses the same one (collectives/choose.h).
// CollectiveError where no communicator reaches all devices, or where SHMAP_COMMUNICATOR names one
// that cannot.
Communicator& communicator(const GroupBlocks& blocks, CollectiveKind kind);

}  // namespace shmap
