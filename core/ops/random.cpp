#include "core/ops/random.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/inline_vector.h"
#include "core/ops/batch_rules.h"
#include "core/ops/elementwise.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

DType dtype_of_width(std::int64_t bits) {
  switch (bits) {
    case 8:
      return DType::u8;
    case 16:
      return DType::u16;
    case 32:
      return DType::u32;
    case 64:
      return DType::u64;
    default:
      throw ValueError("random_bits: a width of " + std::to_string(bits) +
                       " bits: wanted 8, 16, 32 or 64");
  }
}

void check_keys(const ShapedArray& keys, const char* what) {
  if (keys.dtype() == DType::prng_key) return;
  throw TypeError(std::string(what) + ": an operand of type " + to_string(keys) +
                  ": wanted keys, as random::key(seed) makes them");
}

Shape joined(const Shape& keys, const Shape& shape) {
  Shape out = keys;
  for (std::int64_t e : shape) out.push_back(e);
  return out;
}

void eval_bits(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<RandomBitsParams>(params);
  const DType dtype = dtype_of_width(p.bit_width);
  check_keys(in[0], "random_bits");
  if (in.size() > 1 &&
      (in[1].dtype() != DType::i64 || !(in[1].rank() == 0 || in[1].dims() == in[0].dims()))) {
    throw TypeError("random_bits: keys of type " + to_string(in[0]) +
                    " and first indices of type " + to_string(in[1]) +
                    ": wanted i64, a scalar or one for each key");
  }
  if (!p.of.empty() && p.of.size() != p.shape.size()) {
    throw ValueError("random_bits: a block of shape " + to_string(p.shape) +
                     " of an array of shape " + to_string(p.of) + ": wanted one rank");
  }
  const Shape shape = joined(in[0].dims(), p.shape);
  checked_bytes(shape, itemsize(dtype));
  out[0] = ShapedArray(shape, dtype, false, AxisSet());
}

void eval_split(Types in, const Params& params, std::span<ShapedArray> out) {
  check_keys(in[0], "random_split");
  const Shape shape = joined(in[0].dims(), params_as<RandomSplitParams>(params).shape);
  checked_bytes(shape, itemsize(DType::prng_key));
  out[0] = ShapedArray(shape, DType::prng_key, false, AxisSet());
}

void eval_fold_in(Types in, const Params&, std::span<ShapedArray> out) {
  check_keys(in[0], "random_fold_in");
  if (in[1].dtype() != DType::u32) {
    throw TypeError("random_fold_in: data of type " + to_string(in[1]) + ": wanted u32");
  }
  out[0] = ShapedArray(elementwise_shape(in, "random_fold_in"), DType::prng_key, false, AxisSet());
}

void eval_wrap(Types in, const Params&, std::span<ShapedArray> out) {
  const Shape& dims = in[0].dims();
  if (in[0].dtype() != DType::u32 || dims.empty() || dims[dims.size() - 1] != 2) {
    throw TypeError("random_wrap: data of type " + to_string(in[0]) +
                    ": wanted u32 with a last dim of 2, the words of each key");
  }
  Shape shape;
  for (std::size_t d = 0; d + 1 < dims.size(); ++d) shape.push_back(dims[d]);
  out[0] = ShapedArray(shape, DType::prng_key, false, AxisSet());
}

void eval_unwrap(Types in, const Params&, std::span<ShapedArray> out) {
  check_keys(in[0], "random_unwrap");
  out[0] = ShapedArray(joined(in[0].dims(), {2}), DType::u32, false, AxisSet());
}

void eval_threefry(Types in, const Params&, std::span<ShapedArray> out) {
  for (const ShapedArray& t : in) {
    if (t.dtype() == DType::u32) continue;
    throw TypeError("threefry_2x32: an operand of type " + to_string(t) +
                    ": wanted u32, of keys and of counts");
  }
  out[0] = out[1] =
      ShapedArray(elementwise_shape(in, "threefry_2x32"), DType::u32, false, AxisSet());
}

// The dims of the keys are the first dims of the result and may be split; the other dims of the
// result are not split.
FactorRule shard_keys(Types in, const Params&, Types out) {
  FactorRule rule;
  std::vector<std::vector<int>> dims;
  for (int d = 0; d < in[0].rank(); ++d) {
    rule.factors.push_back({in[0].dims()[static_cast<std::size_t>(d)], FactorKind::pass});
    dims.push_back({d});
  }
  for (const ShapedArray& t : in)
    rule.operands.push_back(t.rank() == 0 ? std::vector<std::vector<int>>() : dims);
  dims.resize(static_cast<std::size_t>(out[0].rank()));
  rule.results.push_back(dims);
  return rule;
}
FactorRule shard_wrap(Types in, const Params& params, Types out) {
  FactorRule rule = shard_keys(out, params, in);
  std::swap(rule.operands, rule.results);
  return rule;
}
FactorRule shard_threefry(Types in, const Params& params, Types out) {
  FactorRule rule = elementwise_sharding(in, params, out);
  rule.results.push_back(rule.results[0]);
  return rule;
}

void batch_keys(BatchCall& call) {
  InlineVector<Array, 2> in(call.in.size());
  const bool one_first = call.in.size() > 1 && !call.is_batched(1) && element_rank(call, 1) == 0;
  for (std::size_t i = 0; i < call.in.size(); ++i)
    in[i] = i == 1 && one_first ? call.in[i] : with_batch_dim(call, i, 0);
  // One first index for each example, repeated for keys that are arrays themselves.
  if (call.in.size() > 1 && !one_first && element_rank(call, 1) < element_rank(call, 0)) {
    in[1] = bind_broadcast(in[1], node_of(in[0])->type.dims(), Dims(0), call.source);
  }
  give(call, in.span(), call.params, 0);
}
void batch_whole_keys(BatchCall& call) { give(call, with_batch_dim(call, 0, 0), call.params, 0); }

// Hashing a vector of counts takes some hundred instructions.
Cost hash_cost(Types, const Params&, Types out) {
  const auto n = static_cast<double>(out[0].size());
  return {12 * n, n * itemsize(out[0].dtype())};
}
double hash_flops(Types, const Params&, Types out) {
  return 75 * static_cast<double>(out[0].size());  // additions, rotations and xors
}

constexpr const char* kNoTangent = "keys and random bits have no tangents";

constexpr Primitive make(const char* name, AbstractEvalFn eval, ShardingRuleFn sharding,
                         BatchFn batching) {
  Primitive p;
  p.name = name;
  p.abstract_eval = eval;
  p.sharding = Rule<ShardingRuleFn>(sharding);
  p.jvp = Rule<JvpFn>::none(kNoTangent);
  p.transpose = Rule<TransposeFn>::none(kNoTangent);
  p.batching = Rule<BatchFn>(batching);
  return p;
}
constexpr Primitive hash(const char* name, AbstractEvalFn eval, ShardingRuleFn sharding,
                         BatchFn batching) {
  Primitive p = make(name, eval, sharding, batching);
  p.cost = hash_cost;
  p.flops = hash_flops;
  return p;
}
constexpr Primitive view(const char* name, AbstractEvalFn eval, ShardingRuleFn sharding) {
  Primitive p = make(name, eval, sharding, batch_whole_keys);
  p.view = view_whole;
  return p;
}

}  // namespace

constinit Primitive random_bits_p = hash("random_bits", eval_bits, shard_keys, batch_keys);
constinit Primitive random_split_p = hash("random_split", eval_split, shard_keys, batch_keys);
constinit Primitive random_fold_in_p = [] {
  Primitive p = hash("random_fold_in", eval_fold_in, elementwise_sharding, batch_elementwise);
  p.elementwise = true;
  return p;
}();
constinit Primitive random_wrap_p = view("random_wrap", eval_wrap, shard_wrap);
constinit Primitive random_unwrap_p = view("random_unwrap", eval_unwrap, shard_keys);
constinit Primitive threefry2x32_p = [] {
  Primitive p = hash("threefry2x32", eval_threefry, shard_threefry, batch_elementwise);
  p.result_count = [](Types, const Params&) { return 2; };
  return p;
}();

void register_random() {
  for (Primitive* p : {&random_bits_p, &random_split_p, &random_fold_in_p, &random_wrap_p,
                       &random_unwrap_p, &threefry2x32_p})
    register_primitive(*p);
}

RandomBlock::RandomBlock(const Shape& shape, const Shape& of) {
  const Shape& whole = of.empty() ? shape : of;
  // From the last dim to the first: a dim is merged with the dims after it where these are whole.
  std::int64_t extents[kMaxRank], strides[kMaxRank], step = 1;
  int n = 0;
  bool joins = false;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (joins && n > 0) {
      extents[n - 1] *= shape[d];
    } else {
      extents[n] = shape[d];
      strides[n++] = step;
    }
    joins = shape[d] == whole[d];
    step *= whole[d];
  }
  if (n == 0) return;
  rank = n;
  for (int d = 0; d < n; ++d) {
    extent[d] = extents[n - 1 - d];
    stride[d] = strides[n - 1 - d];
  }
}

Array bind_random_bits(Array keys, std::int64_t bit_width, const Shape& shape, SourceLine source) {
  RandomBitsParams params;
  params.bit_width = bit_width;
  params.shape = shape;
  return bind(random_bits_p, std::move(keys), params, source);
}

}  // namespace shmap
