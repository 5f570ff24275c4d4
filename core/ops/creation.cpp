// Makes arrays from host data, from one value and from a rule.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/array/sharding.h"
#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/runtime/host_transfer.h"
#include "core/runtime/step.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

// Binds an elementwise primitive on two arrays of one dtype.
Array combine(const Primitive& p, Array a, Array b, SourceLine source) {
  Operand left(std::move(a), source.file, source.line);
  Operand right(std::move(b), source.file, source.line);
  broadcast(left, right, p.name);
  return bind(p, std::move(left.value), std::move(right.value), no_params, source);
}

Array constant(const Shape& shape, double value, DType dtype, const char* what, SourceLine source) {
  if (dtype == DType::prng_key) {
    throw TypeError(std::string(what) + ": dtype " + to_string(dtype) +
                    ": a random key is not a number, and no array is filled with one; name a "
                    "number type" +
                    at_line(source));
  }
  return broadcast_exactly(scalar_of(dtype, value, source), shape, what, source);
}

// A constant array with x's shape, dtype, variance and, where x was placed, placement. Each device
// fills its own block.
Array constant_like(const Operand& x, Array value, const char* what) {
  const SourceLine source = x.source;
  const Node& node = checked_node(x.value, what, source);
  if (node.type.dtype() == DType::prng_key) {
    throw TypeError(std::string(what) + ": the array has type " + to_string(node.type) +
                    ", and random keys are not numbers" + at_line(source));
  }
  value = convert_operand(std::move(value), node.type.dtype(), what, source, node.type.weak());
  const StoredNode* placed = stored_of(x.value);
  const bool outside = &current_trace() == &base_trace();
  if (!placed || placed->trace != 0 || !placed->committed || !outside ||
      node_of(value)->kind != NodeKind::literal) {
    Array out = broadcast_exactly(std::move(value), node.type.dims(), what, source);
    const AxisSet missing = node.type.axes() - node_of(out)->type.axes();
    return missing.empty() || !current_trace().checks_variance()
               ? out
               : cast_to_varying(out, missing, source);
  }
  const ShapedArray type(node.type.dims(), node.type.dtype(), node.type.weak(), AxisSet());
  StoredNode* result = StoredNode::make(type, placed->mesh, placed->count);
  Array out = Array::of(result);
  result->sharding = placed->sharding;
  result->committed = true;
  BroadcastParams params;
  params.shape = placed->sharding->block_shape(type.dims(), what);
  const ShapedArray block(params.shape, type.dtype(), type.weak(), AxisSet());
  const ShapedArray scalar = node_of(value)->type;
  run_step({broadcast_in_dim_p, params, *placed->mesh, std::span(&value, 1), Types(&scalar, 1),
            placed->sharding->mentioned(), source},
           Types(&block, 1), std::span(&result, 1));
  return out;
}

// A bound of arange, which decides about a shape and so must be known on the host.
struct HostNumber {
  bool integral;
  std::int64_t whole = 0;
  double real = 0;
};
HostNumber host_number(const Operand& x, const char* what) {
  const ShapedArray type = type_of(x, what);
  if (type.rank() != 0) {
    throw ValueError(std::string("arange: ") + what + " has type " + to_string(type) +
                     ", and a scalar is wanted" + at_line(x.source));
  }
  HostNumber n{!is_floating(type.dtype())};
  const Array wide = convert(x.value, n.integral ? DType::i64 : DType::f64, x.source);
  const std::vector<std::byte> bytes = copy_to_host(wide, what, x.source);
  if (n.integral) {
    std::memcpy(&n.whole, bytes.data(), sizeof n.whole);
    n.real = static_cast<double>(n.whole);
  } else {
    std::memcpy(&n.real, bytes.data(), sizeof n.real);
  }
  return n;
}

// ceil((stop - start) / step), and 0 where step leads away from stop.
std::int64_t arange_count(const HostNumber& start, const HostNumber& stop, const HostNumber& step,
                          SourceLine source) {
  if (step.real == 0) {
    throw ValueError("arange: step is 0: give one that leads from start to stop" + at_line(source));
  }
  if (start.integral && stop.integral && step.integral) {
    const auto distance = static_cast<__int128>(stop.whole) - start.whole;
    if (distance == 0 || (distance > 0) != (step.whole > 0)) return 0;
    const __int128 toward = step.whole > 0 ? 1 : -1;
    const __int128 count = (distance + step.whole - toward) / step.whole;
    if (count <= static_cast<__int128>(INT64_MAX)) return static_cast<std::int64_t>(count);
  }
  const double count = std::ceil((stop.real - start.real) / step.real);
  if (!(count < 9.2e18)) {
    throw ValueError("arange: from " + std::to_string(start.real) + " to " +
                     std::to_string(stop.real) + " in steps of " + std::to_string(step.real) +
                     " is not a finite number of elements" + at_line(source));
  }
  return static_cast<std::int64_t>(std::max(0.0, count));
}

}  // namespace

namespace detail {
Array from_host(DType dtype, const void* data, std::int64_t count, const Shape& shape,
                SourceLine source) {
  return at_source("array", source, [&] {
    if (shape.num_elements() != count) {
      throw ValueError("array: " + std::to_string(count) + " values do not fill the shape " +
                       to_string(shape) + ", which wants " + std::to_string(shape.num_elements()));
    }
    return array_from_host(data, dtype, shape);
  });
}
}  // namespace detail

Array zeros(Shape shape, DType dtype, SourceLine source) {
  return constant(shape, 0, dtype, "zeros", source);
}
Array ones(Shape shape, DType dtype, SourceLine source) {
  return constant(shape, 1, dtype, "ones", source);
}
Array empty(Shape shape, DType dtype, SourceLine source) {
  return constant(shape, 0, dtype, "empty", source);
}

Array full(Shape shape, Operand value) {
  return broadcast_exactly(std::move(value.value), shape, "full", value.source);
}
Array full(Shape shape, Operand value, DType dtype) {
  type_of(value, "full");
  return broadcast_exactly(convert_operand(std::move(value.value), dtype, "full", value.source),
                           shape, "full", value.source);
}

Array eye(std::int64_t n, DType dtype, SourceLine source) {
  const Array row = bind_iota(DType::i64, {n, n}, 0, source);
  const Array column = bind_iota(DType::i64, {n, n}, 1, source);
  return convert(combine(eq_p, row, column, source), dtype, source);
}

Array iota(DType dtype, std::int64_t n, SourceLine source) {
  return bind_iota(dtype, {n}, 0, source);
}
Array arange(std::int64_t n, DType dtype, SourceLine source) {
  return bind_iota(dtype, {std::max<std::int64_t>(n, 0)}, 0, source);
}

// start + step * iota, computed in the result's dtype, or in f32 for the half dtypes (as JAX does).
Array arange(Operand start, Operand stop, Operand step, DType dtype) {
  const SourceLine source = start.source;
  const HostNumber first = host_number(start, "start"), last = host_number(stop, "stop"),
                   by = host_number(step, "step");
  const std::int64_t count = arange_count(first, last, by, source);
  const bool half = is_floating(dtype) && itemsize(dtype) < 4;
  const DType working = half ? DType::f32 : dtype;
  Array x = bind_iota(working, {count}, 0, source);
  if (by.real != 1) {
    const Array factor = convert(std::move(step.value), working, source);
    x = combine(mul_p, factor, std::move(x), source);
  }
  if (first.real != 0) {
    const Array offset = convert(std::move(start.value), working, source);
    x = combine(add_p, offset, std::move(x), source);
  }
  return convert(std::move(x), dtype, source);
}

// (1 - t) * start + t * stop, with the last element exactly `stop` (jnp.linspace).
Array linspace(Operand start, Operand stop, std::int64_t num) {
  const FunctionScope scope("linspace", {&start.value, &stop.value}, start.source);
  const SourceLine source = start.source;
  if (num < 0) {
    throw ValueError("linspace: num is " + std::to_string(num) + ", and 0 or more is wanted" +
                     at_line(source));
  }
  promote_inexact(start, stop, "linspace");
  const DType dtype = start.value.dtype();
  const Shape shapes[] = {start.value.shape(), stop.value.shape()};
  const Shape bounds = broadcast_shapes(shapes, "linspace", source);
  Shape row({1}), column({1});
  for (std::int64_t e : bounds) {
    row.push_back(e);
    column.push_back(1);
  }
  const Array lo = bind_reshape(
      broadcast_exactly(std::move(start.value), bounds, "linspace", source), row, source);
  const Array hi = bind_reshape(
      broadcast_exactly(std::move(stop.value), bounds, "linspace", source), row, source);
  if (num == 0) {
    row[0] = 0;
    return constant(row, 0, dtype, "linspace", source);
  }
  if (num == 1) return convert(lo, dtype, source);
  column[0] = num - 1;
  const Array ticks = bind_reshape(bind_iota(dtype, {num - 1}, 0, source), column, source);
  const Array t =
      combine(div_p, ticks, scalar_of(dtype, static_cast<double>(num - 1), source), source);
  const Array rest = combine(sub_p, scalar_of(dtype, 1, source), t, source);
  const Array body =
      combine(add_p, combine(mul_p, lo, rest, source), combine(mul_p, hi, t, source), source);
  Array pieces[] = {body, convert(hi, dtype, source)};
  return bind_concatenate(pieces, 0, source);
}

Array zeros_like(Operand x) { return constant_like(x, Array(0), "zeros_like"); }
Array ones_like(Operand x) { return constant_like(x, Array(1), "ones_like"); }
Array empty_like(Operand x) { return constant_like(x, Array(0), "empty_like"); }
Array full_like(Operand x, Operand value) {
  type_of(value, "full_like");
  return constant_like(x, std::move(value.value), "full_like");
}

}  // namespace shmap
