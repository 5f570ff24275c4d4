#include <cmath>
#include <limits>

#include "core/base/counted.h"
#include "core/ir/node.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "shmap/linalg.h"
#include "shmap/ops.h"

namespace shmap::linalg {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Array norm_of_vectors(const Array& x, double ord, const Dims& axis, bool keepdims) {
  if (ord == 2) return sqrt(sum(square(x), axis, keepdims));
  if (ord == kInfinity) return max(abs(x), axis, keepdims);
  if (ord == -kInfinity) return min(abs(x), axis, keepdims);
  if (ord == 0) return sum(astype(x != 0, x.dtype()), axis, keepdims);
  if (ord == 1) return sum(abs(x), axis, keepdims);
  return pow(sum(pow(abs(x), ord), axis, keepdims), 1 / ord);
}

// Norms of matrices whose rows are along dim `row` and columns along dim `column`.
Array norm_of_matrices(const Array& x, double ord, int row, int column, bool keepdims) {
  const bool of_columns = std::abs(ord) == 1;
  const Array sums = sum(abs(x), of_columns ? row : column, true);
  const Array out = ord > 0 ? max(sums, {row, column}, true) : min(sums, {row, column}, true);
  return keepdims ? out : squeeze(out, {row, column});
}

}  // namespace

Array norm(Operand given, NormOptions options) {
  const FunctionScope scope("norm", {&given.value}, given.source);
  const SourceLine source = given.source;
  promote_inexact(given, "norm");
  const Array& x = given.value;
  const ShapedArray type = x.type(source);
  Dims axis;
  if (options.axis) {
    for (std::int64_t d : *options.axis)
      axis.push_back(at_source(source, [&] { return normalize_dim(d, type.rank(), "norm"); }));
  } else {
    for (int d = 0; d < type.rank(); ++d) axis.push_back(d);
    if (!options.ord) return sqrt(sum(square(x), axis, options.keepdims));
  }
  if (axis.size() == 1) return norm_of_vectors(x, options.ord.value_or(2), axis, options.keepdims);
  if (axis.size() != 2 || axis[0] == axis[1]) {
    throw ValueError("norm: over " + counted(axis.size(), "dim") + " of an array of type " +
                     to_string(type) +
                     ": one dim is wanted, of vectors, or two different ones, of matrices; name "
                     "them with .axis" +
                     at_line(source));
  }
  if (!options.ord) return sqrt(sum(square(x), axis, options.keepdims));
  if (std::abs(*options.ord) != 1 && std::abs(*options.ord) != kInfinity) {
    throw ValueError("norm: ord " + std::to_string(*options.ord) +
                     " of matrices: wanted 1, -1, infinity or -infinity; without .ord it is "
                     "the Frobenius norm" +
                     at_line(source));
  }
  return norm_of_matrices(x, *options.ord, static_cast<int>(axis[0]), static_cast<int>(axis[1]),
                          options.keepdims);
}

Array norm(Operand x, double ord) {
  NormOptions options;
  options.ord = ord;
  return norm(std::move(x), options);
}

}  // namespace shmap::linalg
