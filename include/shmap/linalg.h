// Linear algebra under jax.numpy.linalg's names.
#pragma once
#include <optional>

#include "shmap/array.h"
#include "shmap/shape.h"

namespace shmap::linalg {

struct NormOptions {
  std::optional<double> ord = {};  // may be infinity or -infinity
  std::optional<Dims> axis = {};   // one dim: norms of vectors; two dims: norms of matrices
  bool keepdims = false;
};

// Norms of vectors along one dim: (sum |x|^ord)^(1/ord), with 2 as the default ord; infinity gives
// the greatest |x|, -infinity the least, 0 the number of elements that are not zero. Norms of
// matrices over two dims: the Frobenius norm by default; ord 1 gives the greatest column sum of
// |x|, infinity the greatest row sum, -1 and -infinity the least of these. Without axis and ord the
// result is the norm of all elements; with ord and without axis, x must have one or two dims.
// Integers are converted to floats. ValueError for another number of dims, and for another ord of
// matrices (2, -2 and the nuclear norm need singular values, which this library does not compute).
Array norm(Operand x, NormOptions options = {});
Array norm(Operand x, double ord);

}  // namespace shmap::linalg
