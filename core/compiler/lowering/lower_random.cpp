// Random numbers and constants of which each device needs only a part: each device computes its
// part. A random number depends only on the key and its index (core/ops/random.h), so that this
// needs no communication, and no device computes the numbers of another.
//
// A program of global arrays does not say how such a value will be split when the value is made.
// Therefore it is lowered as a value that is the same on every device, and its equation is
// recorded, together with elementwise equations on it. Where the value is then brought to a
// sharding that splits it, it is computed again as parts. The whole value is dead code unless
// another equation uses it.
#include <utility>

#include "collectives/block_collectives.h"
#include "core/compiler/lowering/lower.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/random.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

// The number of the device's block along a dim, a scalar.
Array block_number(const Sharding* sharding, std::size_t dim, DType dtype, SourceLine source) {
  Array place = scatter_block(bind_iota(dtype, {sharding->parts(dim)}, 0, source),
                              sharding->dims()[dim], 0, source);
  return bind_reshape(std::move(place), Shape(), source);
}

// A block of an iota. Numbers too large for a float to count exactly are computed as integers and
// rounded once, as in the whole iota.
Array iota_part(const IotaParams& params, const Sharding* sharding, const Shape& block,
                SourceLine source) {
  const auto dim = static_cast<std::size_t>(params.dimension);
  const int at = static_cast<int>(params.dimension);
  if (sharding->parts(dim) == 1) return bind_iota(params.dtype, block, at, source);
  const bool counts = is_integer(params.dtype);
  const DType dtype = counts ? params.dtype : DType::i64;
  const Array extent = convert(Array(block[dim]), dtype, source);
  const Array first =
      bind(mul_p, block_number(sharding, dim, dtype, source), extent, no_params, source);
  const Array line = bind(add_p, bind_iota(dtype, {block[dim]}, 0, source),
                          bind_broadcast(first, {block[dim]}, {}, source), no_params, source);
  return bind_broadcast(convert(line, params.dtype, source), block, {at}, source);
}

// The flat index, in an array of this shape, of the first element of the device's block.
Array first_index(const Sharding* sharding, const Shape& shape, const Shape& block,
                  SourceLine source) {
  const auto number = [&](std::int64_t n) { return convert(Array(n), DType::i64, source); };
  Array first = number(0);
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
    const std::int64_t parts = sharding->parts(d);
    if (parts == 1) continue;
    const Array place = block_number(sharding, d, DType::i64, source);
    const Array offset = bind(mul_p, place, number(stride * block[d]), no_params, source);
    first = bind(add_p, offset, first, no_params, source);
  }
  return first;
}

// Whether an operand of a recorded equation is split as the equation's result is, and so was
// recorded itself. The others are scalars, which every device has whole.
bool is_split_alike(const LowerValue& x) { return x.sharding && x.type.rank() != 0; }

}  // namespace

void Lowering::note_random(const Primitive& primitive, std::span<const LowerValue> in,
                           const Params& params, const LowerValue& out, SourceLine source) {
  if (out.type.rank() == 0 || !out.sharding || !out.sharding->is_replicated()) return;
  bool random = false;
  if (&primitive == &random_bits_p) {
    random = in.size() == 1 && in[0].type.rank() == 0;
    if (!random) return;
  } else if (&primitive == &broadcast_in_dim_p) {
    if (in[0].type.rank() != 0) return;
  } else if (&primitive != &iota_p) {
    if (in.empty() || !is_elementwise(primitive, in[0].type.dtype(), out.type.dtype())) return;
    for (const LowerValue& x : in) {
      if (!is_split_alike(x)) continue;
      const auto it = remade_.find(x.block.node());
      if (it == remade_.end()) return;
      random |= it->second.random;
    }
  }
  remade_[out.block.node()] = {out.block, &primitive, params.clone(), {in.begin(), in.end()},
                               out.type,  source,     random,         {}};
}

Array Lowering::make_part(Remade& x, const Sharding* target) {
  const Shape shape = target->block_shape(x.type.dims(), x.primitive->name);
  if (x.primitive == &random_bits_p) {
    RandomBitsParams params = params_as<RandomBitsParams>(*x.params);
    params.of = params.shape;
    params.shape = shape;
    std::vector<Array> in = {x.in[0].block, first_index(target, x.type.dims(), shape, x.source)};
    return shmap::bind(random_bits_p, in, params, x.source);
  }
  if (x.primitive == &iota_p)
    return iota_part(params_as<IotaParams>(*x.params), target, shape, x.source);
  if (x.primitive == &broadcast_in_dim_p) return bind_broadcast(x.in[0].block, shape, {}, x.source);
  std::vector<Array> in;
  for (const LowerValue& each : x.in)
    in.push_back(is_split_alike(each) ? remade_.at(each.block.node()).parts.at(target)
                                      : each.block);
  return shmap::bind(*x.primitive, in, *x.params, x.source);
}

const Array* Lowering::random_part(const Array& block, const Sharding* target) {
  const auto it = remade_.find(block.node());
  if (it == remade_.end()) return nullptr;
  // The values on the way to operands whose parts are not made yet. A list, as chains of
  // elementwise equations may be longer than the stack of calls is deep.
  std::vector<Remade*> open = {&it->second};
  while (!open.empty()) {
    Remade& x = *open.back();
    Remade* missing = nullptr;
    for (const LowerValue& each : x.in) {
      if (!is_split_alike(each)) continue;
      Remade& operand = remade_.at(each.block.node());
      if (operand.parts.contains(target)) continue;
      missing = &operand;
      break;
    }
    if (missing) {
      open.push_back(missing);
      continue;
    }
    if (!x.parts.contains(target)) x.parts[target] = make_part(x, target);
    open.pop_back();
  }
  return &it->second.parts.at(target);
}

}  // namespace shmap
