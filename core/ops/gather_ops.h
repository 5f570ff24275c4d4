// lax.gather, and reading at index arrays by NumPy's rules.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

// Operands: the array, and indices, whose last dim holds the index vectors.
extern Primitive gather_p;

// The treatment of a slice that is partly out of range: clip moves the slice inside; fill replaces
// it by a fill value (NaN, the least signed integer, the greatest unsigned integer, true); zero
// replaces it by zeros, for tangents.
enum class GatherMode : std::uint8_t { clip, fill, zero };
std::string_view name_of(GatherMode mode);
// The bits of the fill value, in the lowest bytes.
std::uint64_t none_bits(DType dtype);

struct GatherParams : ParamsOf<GatherParams> {
  Dims offset_dims, collapsed_slice_dims, start_index_map;
  Dims operand_batching_dims, start_indices_batching_dims;
  Shape slice_sizes;
  GatherMode mode = GatherMode::clip;
  // Negative indices count from the end: the extent of the dim is added once, before anything else.
  // Only the pass fuse_gathers sets it (core/compiler/fusion/fuse_gathers.h), for the CPU.
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

// Indices with negative ones counted from the end: idx < 0 ? idx + extent : idx, in a dtype that
// holds the extent. TypeError naming `what` where they are not integers.
Array wrap_indices(Array indices, std::int64_t extent, const char* what, SourceLine source);
// One item of x for each index, along `dims`: indices[k] has the indices of dims[k]; all have one
// shape, whose dims are inserted in the result before dim `at` of the remaining dims of x.
Array gather_items(Array x, const std::vector<Array>& indices, const Dims& dims, int at,
                   GatherMode mode, SourceLine source);

// Whether each is a dim of an array of that rank; and whether they ascend, or occur once each.
bool ascending_dims(const IntList& dims, int rank);
bool distinct_dims(const IntList& dims, int rank);

}  // namespace shmap
