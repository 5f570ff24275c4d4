// Communicator: moves blocks between devices. One call gets the blocks of all local devices of a
// mesh, and so all local ranks of all cliques, at once: it is one group call of a library such as
// NCCL, one exchange between processes, or copies inside the process. No thread waits for another
// to make its call.
#pragma once
#include <cstdint>
#include <span>

#include "collectives/clique_table.h"
#include "core/base/hash_text.h"
#include "core/ir/node.h"
#include "core/runtime/device_ops.h"

namespace shmap {

struct GroupBlocks {
  const detail::MeshImpl& mesh;
  const CliqueTable& cliques;
  std::span<const Block> in;         // by local position
  std::span<Block> out;              // to be set, by local position; equal values may share a block
  std::int64_t in_bytes, out_bytes;  // of one block
  DType dtype;                       // of the operand
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
  StridedCopy box;
  std::int64_t src_step, dst_step;
};

// X(name, reach, parameters after the blocks): the verbs of a Communicator, a row each.
// Communicator's functions, their overrides in each class that carries collectives, CollectiveKind
// and needs_access() are made from the rows. What each verb writes to the `out` of a rank:
//   all_reduce      the blocks of all ranks, combined elementwise. In process: by one balanced
//                   tree, whose shape and order depend only on the clique. A library adds floats
//                   in an order of its own, which is the same on all ranks.
//   all_gather      the blocks of all ranks, interleaved in rank order
//   reduce_scatter  rank r: piece r of the combined blocks
//   all_to_all      as Exchange says
//   permute         rank r: the block of rank source[r]; zeros where source[r] is -1
//   broadcast       the block of rank `rank`
// reach: what in_process.cpp moves the data with. `copies` are the driver's, of whole blocks, which
// go through the host between GPUs that do not reach each other's memory; `kernels` read the other
// GPUs' memory.
#define SHMAP_COLLECTIVE_VERBS(X)                                                 \
  X(all_reduce, kernels, Reduction op, DType dtype)                               \
  X(all_gather, kernels, const Interleaved& parts)                                \
  X(reduce_scatter, kernels, const Interleaved& parts, Reduction op, DType dtype) \
  X(all_to_all, kernels, const Exchange& exchange)                                \
  X(permute, copies, std::span<const int> source)                                 \
  X(broadcast, copies, std::uint32_t rank)

// Each call sets `out`, enqueues tasks, and never waits. The tasks go to the devices' communication
// streams, and wait only for what they read. The caller does not hold the submit mutex. Cliques
// have at least two ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;
#define SHMAP_VERB(name, reach, ...) virtual void name(const GroupBlocks& blocks, __VA_ARGS__) = 0;
  SHMAP_COLLECTIVE_VERBS(SHMAP_VERB)
#undef SHMAP_VERB
};

// SHMAP_COLLECTIVE_VERBS(SHMAP_VERB_OVERRIDE) declares the functions of a class that carries
// collectives.
#define SHMAP_VERB_OVERRIDE(name, reach, ...) \
  void name(const GroupBlocks& blocks, __VA_ARGS__) override;

// The kinds of calls of a Communicator.
#define SHMAP_VERB(name, ...) name,
enum class CollectiveKind : std::uint8_t { SHMAP_COLLECTIVE_VERBS(SHMAP_VERB) };
#undef SHMAP_VERB

// Whether in_process.cpp needs devices that reach each other's memory (column `reach`).
constexpr bool needs_access(CollectiveKind kind) {
  enum Reach { copies, kernels };
#define SHMAP_VERB(name, reach, ...) reach,
  constexpr Reach kReach[] = {SHMAP_COLLECTIVE_VERBS(SHMAP_VERB)};
#undef SHMAP_VERB
  return kReach[static_cast<int>(kind)] == kernels;
}

// The values that must be equal in all processes besides kind, dtype, bytes and ranks, as one
// number: a hash of each of them, since sums of them would be equal for different calls.
inline std::uint64_t code_of(Reduction op, DType dtype) {
  return HashText()
      .add(static_cast<std::uint64_t>(op))
      .add(static_cast<std::uint64_t>(dtype))
      .value();
}
inline std::uint64_t code_of(const Interleaved& parts) {
  return HashText().add(static_cast<std::uint64_t>(parts.piece)).value();
}
inline std::uint64_t code_of(const Interleaved& parts, Reduction op, DType dtype) {
  return HashText().add(code_of(parts)).add(code_of(op, dtype)).value();
}
inline std::uint64_t code_of(const Exchange& exchange) {
  return HashText()
      .add(static_cast<std::uint64_t>(exchange.src_step))
      .add(static_cast<std::uint64_t>(exchange.dst_step))
      .value();
}

// The communicator for a call, chosen by the devices of its cliques, its kind and its bytes, and
// never by a timing, so that every run of a program uses the same one (collectives/choose.h).
// CollectiveError if no communicator reaches all devices, or if the communicator that
// SHMAP_COMMUNICATOR names cannot carry the call.
Communicator& communicator(const GroupBlocks& blocks, CollectiveKind kind);

}  // namespace shmap
