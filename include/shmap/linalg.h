// Linear algebra under jax.numpy.linalg's names.
#pragma once
#include <optional>

#include "shmap/array.h"
#include "shmap/shape.h"

namespace shmap::linalg {

struct NormOptions {
  std::optional<double> ord = {};  // infinity and -infinity too
  std::optional<Dims> axis = {};   // one dim: of vectors; two: of matrices
  bool keepdims = false;
};

// The norm of vectors along one dim: (sum |x|^ord)^(1/ord), by default 2; infinity: the greatest
// |x|, -infinity: the least, 0: how many are not zero. Of matrices over two dims: by default the
// Frobenius norm; 1: the greatest sum of a column's |x|, infinity: of a row's; -1 and -infinity the
// least. Without an axis the default is that of all elements, and with an ord x has one dim or two.
// Integers are converted to floats. ValueErrors: more dims, another ord for matrices (2, -2 and
// the nuclear norm want singular values, which are not there).
Array norm(Operand x, NormOptions options = {});
Array norm(Operand x, double ord);

}  // namespace shmap::linalg
