// What users hand to derivatives: the values that are differentiated, their tangents and the
// results' cotangents, checked, and brought to the types that are wanted.
#pragma once
#include <string>
#include <vector>

#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "shmap/flat_call.h"

namespace shmap {

// Tangents or cotangents of values: what they are called in errors, and what they belong to.
struct DerivativeSite {
  std::string what;    // "jvp: tangents"; a leaf of theirs is "jvp: tangents[0]"
  const char* of;      // "the primal", "the result"
  const char* remedy;  // where one varies more than its value
  SourceLine source;
  // Whether a value that varies over less is refused too, and not cast: what a rule of the user's
  // returns is what the user means.
  bool exact = false;
};

// One leaf: of the dtype, shape and variance of `type`; a literal is converted, a value that varies
// less is cast. TypeErrors.
Array fit_derivative(const DerivativeSite& site, const std::string& path, Array given,
                     const ShapedArray& type);
// The leaves of a tree of the structure `wanted`, whose leaves have these types. An absent subtree
// and a leaf without derivatives (integers, bools) give empty arrays: zeros.
std::vector<Array> fit_derivatives(const DerivativeSite& site, const detail::FlatTree& given,
                                   const detail::TreeNode& wanted,
                                   std::span<const ShapedArray> types);

// The types of arguments; errors where one is empty or belongs to a trace that has ended.
std::vector<ShapedArray> argument_types(const char* what, const detail::FlatTree& arguments,
                                        SourceLine source);
// Zeros in place of what is empty.
void fill_zeros(std::vector<Array>& values, std::span<const ShapedArray> types, SourceLine source);

inline constexpr const char* kCotangentRemedy =
    "sum it over the devices with psum(x, axes) before it is handed back";
inline constexpr const char* kTangentRemedy =
    "let the primal vary too, with pbroadcast(x, axes), or sum the tangent with psum(x, axes)";

}  // namespace shmap
