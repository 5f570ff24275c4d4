// What a kernel is called with, and what a collective is called with.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/ir/node.h"
#include "core/ir/primitive.h"

namespace shmap {

// One call on one device. Operands and results are contiguous row-major blocks; an operand of rank
// 0 of an elementwise primitive stands for a whole array of the result's shape. A result
// may be the same memory as an operand where the primitive said in_place. A kernel allocates no
// buffers and knows no arrays.
struct KernelCall {
  std::span<const void* const> in;
  std::span<void* const> out;
  Types in_types;  // of the blocks
  Types out_types;
  const Params& params;
  // Independent parts [0, parts) of the work, where Kernel::parts said so; otherwise 0 of 1.
  int part = 0;
  int parts = 1;
  void* native = nullptr;  // the backend's stream; null on the CPU
  // Bit i: operand i is a literal. Its address is one of host memory, good during the call alone.
  std::uint32_t literals = 0;
  void* scratch = nullptr;  // where Kernel::scratch asked for it; shared by parts and finish
  // Of the device among the mesh's local ones; of several that share the result, the first's.
  std::uint32_t position = 0;

  // This part's share [begin, end) of n items, in multiples of `grain`.
  struct Share {
    std::int64_t begin, end;
  };
  Share share(std::int64_t n, std::int64_t grain = 1) const {
    const std::int64_t units = (n + grain - 1) / grain;
    const std::int64_t begin = units * part / parts * grain,
                       end = units * (part + 1) / parts * grain;
    return {begin < n ? begin : n, end < n ? end : n};
  }
};

// A collective over all local devices at once. `in` are stored nodes of the mesh; out[i] has its
// type set, and its table empty: the group function fills it, sharing blocks where devices of one
// memory space hold the same value.
struct GroupCall {
  const Primitive& primitive;
  const Params& params;
  const detail::MeshImpl& mesh;
  std::span<StoredNode* const> in;
  std::span<StoredNode* const> out;
  SourceLine source;
  std::uint64_t number = 0;  // of the step, as OpSite's
};

}  // namespace shmap
