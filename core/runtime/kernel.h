// KernelCall: the arguments of a kernel. GroupCall: the arguments of a collective.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/ir/node.h"
#include "core/ir/primitive.h"

namespace shmap {

// One call of a kernel on one device. Operands and results are contiguous row-major blocks. For
// elementwise primitives, an operand of rank 0 stands for an array of the result's shape. A result
// may have the memory of an operand only where may_overwrite() says so, and two results never have
// the memory of one operand. A kernel allocates no buffers and does not use arrays.
struct KernelCall {
  std::span<const void* const> in;
  std::span<void* const> out;
  Types in_types;  // the types of the blocks
  Types out_types;
  const Params& params;
  // This call computes part `part` of `parts` (Kernel::parts); 0 of 1 where the kernel is not
  // split.
  int part = 0;
  int parts = 1;
  void* native = nullptr;  // the backend's stream; null on the CPU
  // Bit i: operand i is a literal, whose address is in host memory and valid only during the call.
  std::uint32_t literals = 0;
  void* scratch = nullptr;  // Kernel::scratch bytes, shared by all parts and by finish; or null
  // The local position of the device; for a cohort, the position of its leader.
  std::uint32_t position = 0;

  // This part's share [begin, end) of n items, in multiples of `grain`.
  struct Share {
    std::int64_t begin, end;
  };
  Share share(std::int64_t n, std::int64_t grain = 1) const {
    if (parts == 1) return {0, n};  // most calls, which need no division
    const std::int64_t units = (n + grain - 1) / grain;
    const std::int64_t begin = units * part / parts * grain,
                       end = units * (part + 1) / parts * grain;
    return {begin < n ? begin : n, end < n ? end : n};
  }
};

// The addresses of one device's operands and result in a call of Kernel::each.
struct DeviceAddresses {
  static constexpr std::size_t kIn = 3;
  const void* in[kIn];
  void* out;
};

// Whether result o, of dtype `made`, may have the memory of operand i, of dtype `read`, if the
// caller gives the operand up and both have as many bytes.
inline bool may_overwrite(const Primitive& primitive, const Kernel& kernel, const Params& params,
                          std::size_t o, DType made, std::size_t i, DType read) {
  if (!primitive.in_place || i >= 32 || itemsize(made) != itemsize(read)) return false;
  if (kernel.overwrites != nullptr) return kernel.overwrites(params, o) >> i & 1u;
  const int only = primitive.in_place_operand;
  return o == 0 && (only < 0 || only == static_cast<int>(i));
}

// A collective over all local devices at once. `in`: stored nodes of the mesh. The types of `out`
// are set and its tables are empty: the group function fills the tables, and lets devices of one
// memory space that have the same value share a block.
struct GroupCall {
  const Primitive& primitive;
  const Params& params;
  const detail::MeshImpl& mesh;
  std::span<StoredNode* const> in;
  std::span<StoredNode* const> out;
  SourceLine source;
  std::uint64_t number = 0;  // the step's number, as in OpSite
};

}  // namespace shmap
