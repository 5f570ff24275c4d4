// The user functions that change the shape or order of elements.
#include <algorithm>

#include "core/base/contains.h"
#include "core/base/counted.h"
#include "core/ir/node.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

int checked_dim(const Operand& x, std::int64_t dim, const char* what) {
  const int rank = type_of(x, what).rank();
  return at_source(x.source, [&] { return normalize_dim(dim, rank, what); });
}
Dims checked_dims(const Operand& x, const Dims& dims, int rank, const char* what) {
  type_of(x, what);
  return at_source(x.source, [&] { return normalize_dims(dims, rank, what); });
}

Dims all_dims(int rank) {
  Dims dims;
  for (int d = 0; d < rank; ++d) dims.push_back(d);
  return dims;
}

Array squeeze_dims(Operand&& x, const Dims& gone) {
  const Shape shape = x.value.shape();
  Shape rest;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (!contains(gone, static_cast<std::int64_t>(d))) rest.push_back(shape[d]);
  return bind_reshape(std::move(x.value), rest, x.source);
}

// Converts arrays to their joint dtype. ValueError where there are no arrays.
std::vector<Array> joint(const std::vector<Array>& arrays, const char* what, SourceLine source) {
  if (arrays.empty()) {
    throw ValueError(std::string(what) + ": no arrays are given, and one or more are wanted" +
                     at_line(source));
  }
  const ShapedArray& first = checked_node(arrays[0], what, source).type;
  Promoted to{first.dtype(), first.weak()};
  for (const Array& x : arrays) {
    const ShapedArray& t = checked_node(x, what, source).type;
    if (t.dtype() == to.dtype && t.weak() == to.weak) continue;
    to = at_source(source, [&] { return promote_types(to.dtype, to.weak, t.dtype(), t.weak()); });
  }
  std::vector<Array> out;
  for (const Array& x : arrays) out.push_back(convert_operand(x, to.dtype, what, source, to.weak));
  return out;
}

// x with every dim d repeated reps[d] times: each item after itself if `each` (repeat), otherwise
// the whole sequence (tile).
Array repeat_dims(Array x, const IntList& reps, bool each, SourceLine source) {
  const Shape shape = x.shape();
  Shape wide, result;
  Dims to;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    result.push_back(checked_product(shape[d], reps[d], each ? "repeat" : "tile"));
    if (reps[d] != 1 && !each) wide.push_back(reps[d]);
    to.push_back(static_cast<std::int64_t>(wide.size()));
    wide.push_back(shape[d]);
    if (reps[d] != 1 && each) wide.push_back(reps[d]);
  }
  if (wide == shape) return x;
  return bind_reshape(bind_broadcast(std::move(x), wide, to, source), result, source);
}

// The shift in [0, n) that has the same effect on n elements, as Python's shift % n.
std::int64_t positive_shift(std::int64_t shift, std::int64_t n) {
  const std::int64_t rest = shift % n;
  return rest < 0 ? rest + n : rest;
}

Array roll_dim(Array x, int dim, std::int64_t shift, SourceLine source) {
  const std::int64_t n = x.shape()[dim];
  const std::int64_t by = n == 0 ? 0 : positive_shift(shift, n);
  if (by == 0) return x;
  Array pieces[] = {slice_dim(x, dim, n - by, n, source), slice_dim(x, dim, 0, n - by, source)};
  return bind_concatenate(pieces, dim, source);
}

}  // namespace

Array reshape(Operand x, Shape shape) {
  const ShapedArray& type = type_of(x, "reshape");
  int inferred = -1;
  std::int64_t known = 1;
  for (int d = 0; d < shape.rank(); ++d) {
    std::int64_t& extent = shape[static_cast<std::size_t>(d)];
    if (extent != -1) {
      if (extent >= 0) known = checked_product(known, extent, "reshape");
      continue;
    }
    if (inferred >= 0) {
      throw ValueError("reshape: to the shape " + to_string(shape) + ": only one extent may be -1" +
                       at_line(x.source));
    }
    inferred = d;
  }
  if (inferred >= 0) {
    if (known == 0 || type.size() % known != 0) {
      throw ValueError("reshape: an array of type " + to_string(type) + " has " +
                       std::to_string(type.size()) +
                       " elements, and no extent in place of -1 gives the shape " +
                       to_string(shape) + " as many" + at_line(x.source));
    }
    shape[static_cast<std::size_t>(inferred)] = type.size() / known;
  }
  return bind_reshape(std::move(x.value), shape, x.source);
}

Array transpose(Operand x) {
  Dims perm;
  for (int d = type_of(x, "transpose").rank(); d-- > 0;) perm.push_back(d);
  return bind_transpose(std::move(x.value), perm, x.source);
}
Array transpose(Operand x, Dims perm) {
  const int rank = type_of(x, "transpose").rank();
  const Dims dims = checked_dims(x, perm, rank, "transpose");
  return bind_transpose(std::move(x.value), dims, x.source);
}
Array swapaxes(Operand x, int a, int b) {
  const int first = checked_dim(x, a, "swapaxes"), second = checked_dim(x, b, "swapaxes");
  Dims perm = all_dims(x.value.ndim());
  std::swap(perm[static_cast<std::size_t>(first)], perm[static_cast<std::size_t>(second)]);
  return bind_transpose(std::move(x.value), perm, x.source);
}

Array broadcast_to(Operand x, Shape shape) {
  return broadcast_exactly(std::move(x.value), shape, "broadcast_to", x.source);
}
Array broadcast_in_dim(Operand x, Shape shape, Dims broadcast_dimensions) {
  type_of(x, "broadcast_in_dim");
  return bind_broadcast(std::move(x.value), shape, broadcast_dimensions, x.source);
}

Array expand_dims(Operand x, Dims axis) {
  const Shape shape = type_of(x, "expand_dims").dims();
  const int rank = shape.rank() + static_cast<int>(axis.size());
  const Dims added = checked_dims(x, axis, rank, "expand_dims");
  Shape wide;
  std::size_t from = 0;
  for (int d = 0; d < rank; ++d) wide.push_back(contains(added, d) ? 1 : shape[from++]);
  return bind_reshape(std::move(x.value), wide, x.source);
}
Array squeeze(Operand x) {
  const Shape shape = type_of(x, "squeeze").dims();
  Dims gone;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 1) gone.push_back(static_cast<std::int64_t>(d));
  return squeeze_dims(std::move(x), gone);
}
Array squeeze(Operand x, Dims axis) {
  const ShapedArray type = type_of(x, "squeeze");
  const Dims gone = checked_dims(x, axis, type.rank(), "squeeze");
  for (std::int64_t d : gone) {
    const std::int64_t extent = type.dims()[static_cast<std::size_t>(d)];
    if (extent == 1) continue;
    throw ValueError("squeeze: dim " + std::to_string(d) + " of an array of type " +
                     to_string(type) + " has extent " + std::to_string(extent) +
                     ": only dims of extent 1 can be taken away" + at_line(x.source));
  }
  return squeeze_dims(std::move(x), gone);
}

Array concatenate(const std::vector<Array>& arrays, int axis, SourceLine source) {
  const FunctionScope scope("concatenate", arrays, source);
  std::vector<Array> in = joint(arrays, "concatenate", source);
  const int rank = in[0].ndim();
  const int dim = at_source(source, [&] { return normalize_dim(axis, rank, "concatenate"); });
  return bind_concatenate(in, dim, source);
}

Array stack(const std::vector<Array>& arrays, int axis, SourceLine source) {
  const FunctionScope scope("stack", arrays, source);
  std::vector<Array> in = joint(arrays, "stack", source);
  const Shape shape = in[0].shape();
  const int dim = at_source(source, [&] { return normalize_dim(axis, shape.rank() + 1, "stack"); });
  Shape wide;
  for (int d = 0; d <= shape.rank(); ++d) {
    if (d == dim) wide.push_back(1);
    if (d < shape.rank()) wide.push_back(shape[static_cast<std::size_t>(d)]);
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!(in[i].shape() == shape)) {
      throw ValueError("stack: array 0 has shape " + to_string(shape) + " and array " +
                       std::to_string(i) + " has shape " + to_string(in[i].shape()) +
                       ": all must have one shape" + at_line(source));
    }
    in[i] = bind_reshape(std::move(in[i]), wide, source);
  }
  return bind_concatenate(in, dim, source);
}

Array tile(Operand x, Dims reps) {
  const Shape shape = type_of(x, "tile").dims();
  for (std::int64_t r : reps) {
    if (r < 0) {
      throw ValueError("tile: reps has " + std::to_string(r) + ": 0 or more are wanted" +
                       at_line(x.source));
    }
  }
  // The shorter of shape and reps gets ones in front.
  const std::size_t rank = std::max(shape.size(), reps.size());
  Shape wide;
  IntList all;
  for (std::size_t d = 0; d < rank; ++d) {
    wide.push_back(d + shape.size() < rank ? 1 : shape[d + shape.size() - rank]);
    all.push_back(d + reps.size() < rank ? 1 : reps[d + reps.size() - rank]);
  }
  Array same_rank = bind_reshape(std::move(x.value), wide, x.source);
  return at_source(x.source,
                   [&] { return repeat_dims(std::move(same_rank), all, false, x.source); });
}

Array repeat(Operand x, std::int64_t repeats, int axis) {
  const int dim = checked_dim(x, axis, "repeat");
  if (repeats < 0) {
    throw ValueError("repeat: repeats is " + std::to_string(repeats) + ": 0 or more is wanted" +
                     at_line(x.source));
  }
  IntList all;
  for (int d = 0; d < x.value.ndim(); ++d) all.push_back(d == dim ? repeats : 1);
  const SourceLine source = x.source;
  return at_source(source, [&] { return repeat_dims(std::move(x.value), all, true, source); });
}

Array pad(Operand x, std::vector<std::pair<std::int64_t, std::int64_t>> widths, Operand value) {
  const ShapedArray type = type_of(x, "pad");
  type_of(value, "pad");
  const auto rank = static_cast<std::size_t>(type.rank());
  if (widths.size() == 1 && rank > 1) widths.resize(rank, widths[0]);
  if (widths.size() != rank) {
    throw ValueError("pad: " + std::to_string(widths.size()) +
                     " pairs of widths for an array of type " + to_string(type) +
                     ": one for each dim is wanted, or one for all" + at_line(x.source));
  }
  PadParams params;
  for (const auto& [before, after] : widths) {
    if (before < 0 || after < 0) {
      throw ValueError("pad: widths " + std::to_string(before) + " and " + std::to_string(after) +
                       ": 0 or more are wanted; a slice takes items away" + at_line(x.source));
    }
    params.low.push_back(before);
    params.high.push_back(after);
    params.interior.push_back(0);
  }
  const bool weak = type.weak() && value.value.type().weak();
  Array item = convert_operand(std::move(value.value), type.dtype(), "pad", x.source, weak);
  return bind(pad_p, std::move(x.value), std::move(item), params, x.source);
}

Array flip(Operand x) {
  const Dims dims = all_dims(type_of(x, "flip").rank());
  return flip(std::move(x), dims);
}
Array flip(Operand x, Dims axis) {
  RevParams params;
  const int rank = type_of(x, "flip").rank();
  params.dimensions = checked_dims(x, axis, rank, "flip");
  if (params.dimensions.empty()) return std::move(x.value);
  return bind(rev_p, std::move(x.value), params, x.source);
}

Array roll(Operand x, Dims shift) {
  const Shape shape = type_of(x, "roll").dims();
  const std::int64_t n = shape.num_elements();
  // The sum of the shifts modulo n, no part of which overflows.
  std::int64_t all = 0;
  for (const std::int64_t s : shift) {
    if (n == 0) break;
    const std::int64_t by = positive_shift(s, n);
    all = all < n - by ? all + by : all - (n - by);
  }
  Array flat = bind_reshape(std::move(x.value), {n}, x.source);
  return bind_reshape(roll_dim(std::move(flat), 0, all, x.source), shape, x.source);
}
Array roll(Operand x, Dims shift, Dims axis) {
  type_of(x, "roll");
  const std::size_t n = std::max(shift.size(), axis.size());
  if ((shift.size() != n && shift.size() != 1) || (axis.size() != n && axis.size() != 1)) {
    throw ValueError("roll: " + counted(shift.size(), "shift") + " for " +
                     counted(axis.size(), "dim") +
                     ": as many are wanted, or one shift for all dims" + at_line(x.source));
  }
  for (std::size_t i = 0; i < n; ++i) {
    const int dim = checked_dim(x, axis[axis.size() == 1 ? 0 : i], "roll");
    x.value = roll_dim(std::move(x.value), dim, shift[shift.size() == 1 ? 0 : i], x.source);
  }
  return std::move(x.value);
}

}  // namespace shmap
