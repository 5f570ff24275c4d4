// lax.gather, and reading at indices by NumPy's rules.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

// Operands: the array, and the indices, whose last dim is the index vector.
extern Primitive gather_p;

// What becomes of a slice that leaves the operand: it is moved inside; or filled as a whole, with
// what stands for "none" (NaN, the least signed, the greatest unsigned integer, true) or, as
// tangents are, with zeros.
enum class GatherMode : std::uint8_t { clip, fill, zero };
std::string_view name_of(GatherMode mode);
// The bits of that "none", in the lowest bytes.
std::uint64_t none_bits(DType dtype);

struct GatherParams : ParamsOf<GatherParams> {
  Dims offset_dims, collapsed_slice_dims, start_index_map;
  Dims operand_batching_dims, start_indices_batching_dims;
  Shape slice_sizes;
  GatherMode mode = GatherMode::clip;
  // Of a negative index the extent of its dim is added, once, before anything else. Only programs
  // that are planned have it (core/transforms/fusion/fuse_gathers.h), on the CPU.
  bool from_end = false;
  void visit(ParamVisitor& v) const override {
    v.value("collapsed_slice_dims", collapsed_slice_dims);
    if (from_end) v.value("from_end", true);
    v.value("mode", name_of(mode));
    v.value("offset_dims", offset_dims);
    v.value("operand_batching_dims", operand_batching_dims);
    v.value("slice_sizes", slice_sizes);
    v.value("start_index_map", start_index_map);
    v.value("start_indices_batching_dims", start_indices_batching_dims);
  }
};

// Indices of a dim with negative ones counted from its end: idx < 0 ? idx + extent : idx, in a
// dtype that holds the extent. TypeError naming `what` where they are no integers.
Array wrap_indices(Array indices, std::int64_t extent, const char* what, SourceLine source);
// One item of `dims` at each index: indices[k] holds those of dims[k], and all have one shape,
// which in the result stands before dim `at` of what is left of x.
Array gather_items(Array x, const std::vector<Array>& indices, const Dims& dims, int at,
                   GatherMode mode, SourceLine source);

}  // namespace shmap
