// Diagonals and triangles of matrices.
#include <algorithm>

#include "core/ir/node.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

ShapedArray matrix_type(const Operand& x, const char* what) {
  const ShapedArray type = type_of(x, what);
  if (type.rank() >= 2) return type;
  throw ValueError(std::string(what) + ": an array of type " + to_string(type) +
                   ": two dims or more are wanted" + at_line(x.source));
}

// x with zeros where column - row of the last two dims is greater than k (`lower`), or less than k.
Array triangle(Operand x, std::int64_t k, bool lower, const char* what) {
  const FunctionScope scope(what, {&x.value}, x.source);
  const ShapedArray type = matrix_type(x, what);
  const Shape& dims = type.dims();
  const std::size_t rank = dims.size();
  const Shape matrix{dims[rank - 2], dims[rank - 1]};
  k = std::clamp(k, -matrix[0],
                 matrix[1]);  // no element lies farther out; row + k does not overflow
  const Array row = bind_iota(DType::i64, matrix, 0, x.source);
  const Array column = bind_iota(DType::i64, matrix, 1, x.source);
  const Array kept = lower ? column <= row + k : column >= row + k;
  const Array zero = convert(Array(0), type.dtype(), x.source);
  return where(broadcast_exactly(kept, dims, what, x.source), std::move(x.value), zero);
}

}  // namespace

Array tril(Operand x, std::int64_t k) { return triangle(std::move(x), k, true, "tril"); }
Array triu(Operand x, std::int64_t k) { return triangle(std::move(x), k, false, "triu"); }

Array diagonal(Operand x, std::int64_t k, int axis1, int axis2) {
  const FunctionScope scope("diagonal", {&x.value}, x.source);
  const ShapedArray type = matrix_type(x, "diagonal");
  const SourceLine source = x.source;
  const int row = at_source(source, [&] { return normalize_dim(axis1, type.rank(), "diagonal"); });
  const int column =
      at_source(source, [&] { return normalize_dim(axis2, type.rank(), "diagonal"); });
  if (row == column) {
    throw ValueError("diagonal: axis1 and axis2 both name dim " + std::to_string(row) +
                     " of an array of type " + to_string(type) + ": two dims are wanted" +
                     at_line(source));
  }
  Dims order;
  for (int d = 0; d < type.rank(); ++d)
    if (d != row && d != column) order.push_back(d);
  order.push_back(row);
  order.push_back(column);
  const Array last = bind_transpose(std::move(x.value), order, source);
  const Shape shape = last.shape();
  const std::int64_t rows = shape[-2], columns = shape[-1];
  k = std::clamp(k, -rows, columns);  // farther diagonals are empty as well
  const std::int64_t down = std::max<std::int64_t>(0, -k), right = std::max<std::int64_t>(0, k);
  const std::int64_t n = std::max<std::int64_t>(0, std::min(rows - down, columns - right));
  const Array at = bind_iota(DType::i64, {n}, 0, source);
  return last[{ellipsis, at + down, at + right}];
}

Array trace(Operand x, std::int64_t k, int axis1, int axis2) {
  return sum(diagonal(std::move(x), k, axis1, axis2), -1);
}

Array diag(Operand x, std::int64_t k) {
  const FunctionScope scope("diag", {&x.value}, x.source);
  const ShapedArray type = type_of(x, "diag");
  if (type.rank() == 2) return diagonal(std::move(x), k);
  if (type.rank() != 1) {
    throw ValueError("diag: an array of type " + to_string(type) +
                     ": one dim is wanted, or two; of more, diagonal(x, k, axis1, axis2) gives "
                     "diagonals" +
                     at_line(x.source));
  }
  constexpr std::int64_t kFarthest = std::int64_t{1} << 32;
  if (k < -kFarthest || k > kFarthest) {
    throw ValueError("diag: a matrix with k=" + std::to_string(k) +
                     " has more than 2^63 - 1 elements" + at_line(x.source));
  }
  const std::int64_t down = std::max<std::int64_t>(0, -k), right = std::max<std::int64_t>(0, k);
  const std::int64_t n = type.size() + down + right;
  const Array at = bind_iota(DType::i64, type.dims(), 0, x.source);
  return zeros({n, n}, type.dtype(), x.source).at({at + down, at + right}).set(std::move(x));
}

}  // namespace shmap
