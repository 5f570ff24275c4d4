// The arguments of derivatives: primals, tangents and cotangents from users, checked and brought to
// the types that are needed.
#pragma once
#include <string>
#include <vector>

#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "shmap/flat_call.h"

namespace shmap {

// Where tangents or cotangents come from, for errors.
struct DerivativeSite {
  std::string what;    // "jvp: tangents"; a leaf is called "jvp: tangents[0]"
  std::string of;      // the values that have them: "primals"; that of a leaf is "primals[0]"
  const char* remedy;  // for a tangent that varies over more axes than its value
  SourceLine source;
  // Whether a value that varies over fewer axes is an error too, instead of being cast. True for
  // results of a user's rule.
  bool exact = false;
};

// One leaf, brought to the dtype, shape and variance of `type`: a literal is converted, a value
// that varies over fewer axes is cast. TypeErrors.
Array fit_derivative(const DerivativeSite& site, const std::string& path, Array given,
                     const ShapedArray& type);
// The leaves of `given`, a tree of the structure `wanted` whose leaves have these types. An absent
// subtree, and a leaf without derivatives (integers, bools), give empty arrays, which stand for
// zeros.
std::vector<Array> fit_derivatives(const DerivativeSite& site, const detail::FlatTree& given,
                                   const detail::TreeNode& wanted,
                                   std::span<const ShapedArray> types);

// The types of the arguments. Errors where an argument is empty, or belongs to a trace that has
// ended.
std::vector<ShapedArray> argument_types(const char* what, const detail::FlatTree& arguments,
                                        SourceLine source);
// Replaces empty arrays by zeros of these types.
void fill_zeros(std::vector<Array>& values, std::span<const ShapedArray> types, SourceLine source);

inline constexpr const char* kCotangentRemedy =
    "sum it over the devices with psum(x, axes) before it is handed back";
inline constexpr const char* kTangentRemedy =
    "let the primal vary too, with pbroadcast(x, axes), or sum the tangent with psum(x, axes)";

}  // namespace shmap
