// The types of carries and of branches' results: how they are joined, and the errors where they do
// not fit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/transforms/control_flow/flow_site.h"
#include "shmap/array.h"
#include "shmap/error.h"
#include "shmap/shaped_array.h"

namespace shmap {

// The type of a leaf of the carry at the start of a trip. A literal has no variance of its own.
struct CarryType {
  ShapedArray type;
  bool literal = false;
};
std::vector<CarryType> carry_types(std::span<const Array> carry);
// The type of a carry that starts a trip as `in` and ends it as `out`. It is `in`, except that a
// weak host scalar takes the body's dtype, and the variance is that of both. TypeError where the
// types do not fit, or where a cast is missing that the user has to write.
ShapedArray join_carry(const FlowSite& site, std::size_t leaf, const CarryType& in,
                       const Array& out);
// The joint type of leaf `leaf` in the results of two branches. TypeErrors as for join_carry.
ShapedArray join_branches(const FlowSite& site, std::size_t leaf, const ShapedArray& a,
                          const std::string& name_a, const ShapedArray& b,
                          const std::string& name_b);
// Checks the y of one more trip of an eager scan. `joint` is the type of the ys so far, and is
// widened to the type of all.
void check_y(const FlowSite& site, std::size_t leaf, ShapedArray& joint, const Array& y,
             std::int64_t trip);
// Where the user has to write casts: throws the TypeError for a value x that must vary over
// `wanted`. `why` continues the sentence "carry[1] has type f32[2] ".
void require_axes(const FlowSite& site, const std::string& path, const Array& x,
                  const AxisSet& wanted, const std::string& why);
// x with the dtype and weakness of `type`, and cast to vary over at least the axes of `type`. No
// cast where variance is not checked.
Array fit(Array x, const ShapedArray& type, SourceLine source);
// TypeErrors where the predicate or the index has the wrong type.
void check_predicate(const FlowSite& site, const char* noun, const ShapedArray& type);
void check_index(const FlowSite& site, const ShapedArray& type);

}  // namespace shmap
