// Random numbers under jax.random's names; equal keys give the numbers that jax.random gives.
//
//   Array key = random::key(0);
//   auto [k1, k2] = random::split<2>(key);
//   Array w = random::normal(k1, {128, 64}) * 0.02f;
//   Array keep = random::bernoulli(k2, 0.9f, {32, 64});
//
// There is no hidden state: equal keys give equal numbers, so use each key once, and make new keys
// with split and fold_in. A key is an Array of dtype prng_key and shape () (printed key<fry>[]). An
// array of keys is an array like any other: it can be indexed, reshaped, stacked, placed on
// devices, passed to jit and shard_map, and passed to vmap to draw once per key. Keys have no
// arithmetic; random_unwrap (shmap/extend/random.h) returns their words.
//
// The generator is threefry2x32. The value at an index depends on the key and on that index only
// (JAX's partitionable mode, its default), so under jit each device of a mesh computes its own part
// of an array without communication, with the same numbers as on one device. In the body of a
// shard_map, a key that all devices share gives every device the same numbers: for different
// numbers fold in axis_index, or draw a block of the whole array's bits with random_bits_block.
// Bits, integers and uniforms are bit for bit those of jax.random; for samples computed with
// logarithms, roots and other functions a table in docs/random.md states, by sampler and dtype, by
// how many units in the last place they differ at most.
//
// Every parameter of type Key takes a key as key() makes it, a legacy key (u32[2], as PRNGKey makes
// it), or a key of another generator (shmap/extend/random.h). TypeError for another dtype,
// ValueError for an array of several keys, both with the caller's line.
//
// Samplers work eagerly, in bodies of shard_map, and under jit and vmap. Where the samples are a
// smooth function of the parameters, samplers can be differentiated with respect to these
// (reparametrisation). Samplers do not wait for values, except poisson and the gamma family outside
// of jit, whose rejection loops wait for the value that says whether all elements have been
// accepted.
//
// `shape` is the shape of the result, to which parameters that are arrays are broadcast; without
// `shape` the result has the parameters' shape. The dtype of a sampler of floats is f16, bf16, f32
// or f64; TypeError for another dtype.
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shmap/array.h"
#include "shmap/extend/random.h"

namespace shmap {
namespace random {

// ---- keys

// Makes a key of a seed: the key's two words are the high and the low 32 bits of the seed. A seed
// that is an array must be an integer scalar; the high word of an array seed of 32 bits or fewer is
// 0.
template <std::integral T>
Array key(T seed, SourceLine source = SourceLine::current()) {
  return shmap::detail::key_of_seed(static_cast<std::uint64_t>(static_cast<std::int64_t>(seed)),
                                    source);
}
Array key(const Array& seed, SourceLine source = SourceLine::current());
// A key of the generator of that name (extend::define_generator). ValueError where there is no such
// generator.
extend::GeneratorKey key(std::int64_t seed, const std::string& generator,
                         SourceLine source = SourceLine::current());
// key(seed) in the legacy form: its two words, u32[2].
Array PRNGKey(std::int64_t seed, SourceLine source = SourceLine::current());

// n new keys, or an array of new keys of that shape. A legacy key gives u32[n, 2]. ValueError where
// n is negative.
Array split(Key key, std::int64_t n = 2);
Array split(Key key, Shape shape);
// n new keys as n separate Arrays: auto [k1, k2] = random::split<2>(key).
template <std::size_t n>
std::array<Array, n> split(Key key) {
  std::array<Array, n> keys;
  shmap::detail::split_each(std::move(key), keys.data(), n);
  return keys;
}
// split and fold_in of a key of another generator.
std::vector<extend::GeneratorKey> split(const extend::GeneratorKey& key, std::int64_t n = 2,
                                        SourceLine source = SourceLine::current());
extend::GeneratorKey fold_in(const extend::GeneratorKey& key, Operand data);
// A new key from a key and a number, for example a step, a layer, or axis_index in a body. data: an
// integer scalar, of which the low 32 bits are used.
Array fold_in(Key key, Operand data);

// ---- bits, uniforms and what follows from them

// Random bits. dtype: u8, u16, u32 or u64; TypeError for another.
Array bits(Key key, Shape shape = {}, DType dtype = u32);
// Uniform in [minval, maxval); the bounds are scalars, or are broadcast to the shape.
Array uniform(Key key, Shape shape = {}, DType dtype = f32, Operand minval = 0, Operand maxval = 1);
// Uniform integers in [minval, maxval), of any integer dtype; minval where the range is empty.
Array randint(Key key, Shape shape, Operand minval, Operand maxval, DType dtype = i32);
// true with probability p, a float or an array of floats.
Array bernoulli(Key key, Operand p = 0.5f);
Array bernoulli(Key key, Operand p, Shape shape);
// 1 or -1, each with probability 1/2.
Array rademacher(Key key, Shape shape = {}, DType dtype = i32);

// ---- order and choice

// The slices of x along `axis` in a random order; with `independent`, the elements of each line of
// x along the axis are put in a random order of their own. For an integer x, the numbers from 0 to
// x - 1 (i32) in a random order.
Array permutation(Key key, Operand x, int axis = 0, bool independent = false);
struct ChoiceOptions {
  bool replace = true;
  Array p = {};  // the probability of each item; empty: all items are equally likely
  int axis = 0;
};
// Random items of `a` along dim options.axis; in the result the dims of `shape` take the place of
// that dim. For an integer `a` the items are the numbers from 0 to a - 1. ValueError where `a` has
// no items or, without replacement, fewer items than are asked for.
Array choice(Key key, Operand a, Shape shape = {}, ChoiceOptions options = {});
// Random indices along `axis` (i32): index i is drawn with probability softmax(logits)[i]. `shape`
// is the shape of logits without `axis`, which may be preceded by further dims.
Array categorical(Key key, Operand logits, int axis = -1);
Array categorical(Key key, Operand logits, int axis, Shape shape, bool replace = true);

// ---- continuous distributions

Array normal(Key key, Shape shape = {}, DType dtype = f32);
// Standard normal, truncated to (lower, upper).
Array truncated_normal(Key key, Operand lower, Operand upper);
Array truncated_normal(Key key, Operand lower, Operand upper, Shape shape, DType dtype = f32);
Array exponential(Key key, Shape shape = {}, DType dtype = f32);
Array gumbel(Key key, Shape shape = {}, DType dtype = f32);
Array laplace(Key key, Shape shape = {}, DType dtype = f32);
Array logistic(Key key, Shape shape = {}, DType dtype = f32);
Array cauchy(Key key, Shape shape = {}, DType dtype = f32);

// ---- by rejection sampling: a, b, alpha and lam must be positive

// The derivatives of these samplers with respect to a, b, alpha and p are jax.random's, by implicit
// reparametrisation. poisson has the derivative zero.
//
// gamma has the shape parameter a and scale 1. loggamma is the logarithm of gamma, computed without
// underflow where a is small.
Array gamma(Key key, Operand a);
Array gamma(Key key, Operand a, Shape shape, DType dtype = f32);
Array loggamma(Key key, Operand a);
Array loggamma(Key key, Operand a, Shape shape, DType dtype = f32);
Array beta(Key key, Operand a, Operand b);
Array beta(Key key, Operand a, Operand b, Shape shape, DType dtype = f32);
// The last dim of alpha is the last dim of the result, along which the result sums to 1. `shape`
// does not include that dim.
Array dirichlet(Key key, Operand alpha);
Array dirichlet(Key key, Operand alpha, Shape shape, DType dtype = f32);
// Integers with mean lam. `dtype` is an integer type.
Array poisson(Key key, Operand lam);
Array poisson(Key key, Operand lam, Shape shape, DType dtype = i32);
// With a density proportional to exp(-|x|^p).
Array generalized_normal(Key key, Operand p, Shape shape = {}, DType dtype = f32);
// Uniform in the unit ball of the Lp norm in d dimensions; the result has shape (shape..., d).
Array ball(Key key, std::int64_t d, Operand p = 2, Shape shape = {}, DType dtype = f32);

// ---- matrices

// Random orthogonal matrices, uniformly distributed; the result has shape (shape..., n, n). With m,
// the result has shape (shape..., n, m), and its rows (n <= m) or columns (m <= n) are orthonormal.
// Each matrix is the Q of the QR decomposition, with a positive diagonal of R, of a matrix of
// normals. `dtype` is f32 or f64; TypeError for another. ValueError where n or m is negative.
Array orthogonal(Key key, std::int64_t n, Shape shape = {}, DType dtype = f32,
                 std::optional<std::int64_t> m = {});

}  // namespace random
}  // namespace shmap
