// Orthogonal matrices: the Q of a QR factorisation of normals whose R has a positive diagonal,
// which is unique and distributed uniformly (Mezzadri, 2007).
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/counted.h"
#include "core/ir/node.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/random/samplers.h"
#include "shmap/control_flow.h"
#include "shmap/ops.h"
#include "shmap/random.h"

namespace shmap {

namespace draw {

namespace {

// The number of columns that are made orthonormal at a time. Each reflection works on all columns
// of a block, which favours small blocks; the products that make a block orthogonal to earlier ones
// need some tens of columns to be efficient.
constexpr std::int64_t kBlock = 32;

class Factorisation {
 public:
  explicit Factorisation(SourceLine source) : source_(source) {}

  // Orthonormalises the columns of z[..., rows, columns], which has at least as many rows as
  // columns.
  Array orthonormal(const Array& z) const {
    const Shape dims = node_of(z)->type.dims();
    const std::int64_t columns = dims[-1];
    Array done;
    for (std::int64_t at = 0; at < columns; at += kBlock) {
      Array block = slice_in_dim(of(z), at, std::min(columns, at + kBlock), 1, -1);
      // Two passes (classical Gram-Schmidt, repeated): after the first, the rounding error is
      // relative to the part that was subtracted; after the second, relative to the block that is
      // left.
      for (int pass = 0; at > 0 && pass < 2; ++pass) {
        const Array along = matmul(of(swapaxes(of(done), -1, -2)), of(block));
        block = block - matmul(of(done), of(along));
      }
      block = reflected(block);
      done = at == 0 ? block : concatenate({done, block}, -1, source_);
    }
    return done;
  }

 private:
  Operand of(const Array& x) const { return Operand(x, source_.file, source_.line); }
  Operand of(double x) const { return Operand(x, source_.file, source_.line); }
  // Column k of x. `here` is the mask of that column.
  Array column(const Array& x, const Array& here) const {
    return sum(of(where(of(here), of(x), of(0))), -1);
  }
  // (1 - t u u^T) x
  Array reflect(const Array& x, const Array& u, const Array& t) const {
    const Array along = matmul(of(expand_dims(of(u), -2)), of(x));
    const Array scaled_u = u * expand_dims(of(t), -1);
    return x - expand_dims(of(scaled_u), -1) * along;
  }

  // Applies Householder's reflections, as LAPACK's geqrf and orgqr do.
  Array reflected(const Array& z) const {
    const Shape dims = node_of(z)->type.dims();
    const std::int64_t rows = dims[-2], columns = dims[-1];
    const Array row = iota(i32, rows, source_), col = iota(i32, columns, source_);
    Shape flat;  // the shape without the rows' dim
    for (std::size_t d = 0; d < dims.size(); ++d)
      if (d + 2 != dims.size()) flat.push_back(dims[d]);
    const DType dtype = node_of(z)->type.dtype();
    const Array none_yet = zeros(flat, dtype, source_);
    using State = std::tuple<Array, Array, Array, Array>;
    const auto [r, vectors, scales, signs] = fori_loop(
        Operand(0, source_.file, source_.line), columns,
        [&](Array k, State state) {
          const auto& [a, us, ts, ss] = state;
          const Array here = col == k, at = row == k;
          const Array whole = column(a, here);
          const Array x = where(of(row >= k), of(whole), of(0));
          const Array head = sum(of(where(of(at), of(x), of(0))), -1);
          const Array norm = sqrt(of(sum(of(square(of(x))), -1)));
          // The norm with the sign opposite to head's: the difference `below` loses no digits.
          const Array diagonal = where(of(head < 0.f), of(norm), of(-norm));
          const Array is_zero = norm == 0.f;
          const Array divisor = where(of(is_zero), of(1), of(diagonal));
          const Array t = where(of(is_zero), of(0), of((diagonal - head) / divisor));
          const Array below = where(of(is_zero), of(1), of(head - diagonal));
          const Array u = where(of(at), of(1), of(x / expand_dims(of(below), -1)));
          return State{reflect(a, u, t), where(of(here), of(expand_dims(of(u), -1)), of(us)),
                       where(of(here), of(expand_dims(of(t), -1)), of(ts)),
                       where(of(here), of(expand_dims(of(sign(of(diagonal))), -1)), of(ss))};
        },
        State{z, zeros_like(of(z)), none_yet, none_yet});
    const Array& us = vectors;
    const Array& ts = scales;
    const Array unit = astype(of(reshape(of(row), {rows, 1}) == col), dtype);
    const Array q = fori_loop(
        Operand(0, source_.file, source_.line), columns,
        [&](Array i, Array x) {
          const Array here = col == static_cast<int>(columns) - 1 - i;
          return reflect(x, column(us, here), column(ts, here));
        },
        broadcast_to(of(unit), dims));
    return q * expand_dims(of(signs), -2);
  }

  SourceLine source_;
};

}  // namespace
}  // namespace draw

Array random::orthogonal(Key key, std::int64_t n, Shape shape, DType dtype,
                         std::optional<std::int64_t> m) {
  const draw::BitSource from(std::move(key), "orthogonal");
  const SourceLine s = from.source();
  const std::int64_t columns = m.value_or(n);
  if (dtype != f32 && dtype != f64) {
    throw TypeError("orthogonal: dtype " + to_string(dtype) + ": wanted f32 or f64" + at_line(s));
  }
  if (n < 0 || columns < 0) {
    throw ValueError("orthogonal: " + counted(n, "row") + " and " + counted(columns, "column") +
                     ": wanted 0 or more" + at_line(s));
  }
  return at_source("orthogonal", s, [&] {
    Shape dims = shape;
    dims.push_back(std::max(n, columns));
    dims.push_back(std::min(n, columns));
    Array q = draw::normal(from, dims, dtype);
    if (dims.num_elements() != 0) q = draw::Factorisation(s).orthonormal(q);
    return n < columns ? swapaxes(Operand(q, s.file, s.line), -1, -2) : q;
  });
}

}  // namespace shmap
