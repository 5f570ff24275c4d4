// Random numbers, under jax.random's names and, key for key, with its numbers.
//
//   Array key = random::key(0);
//   auto [k1, k2] = random::split<2>(key);
//   Array w = random::normal(k1, {128, 64}) * 0.02f;
//   Array keep = random::bernoulli(k2, 0.9f, {32, 64});
//
// There is no hidden state: the same key gives the same numbers, so each key is used once, and new
// ones come from split and fold_in. A key is an Array of dtype prng_key and shape () (it prints
// key<fry>[]); several of them are an array like others, which is indexed, reshaped, stacked,
// placed on devices, passed to jit, to shard_map and, to draw for each key, to vmap. Keys have no
// arithmetic: random_unwrap (shmap/extend/random.h) gives their words.
//
// The generator is threefry2x32. What stands at an index depends on the key and on the index alone
// (JAX's partitionable mode, its default), so that under jit each device of a mesh makes its part
// of an array, the same numbers as on one device, without communication. In the body of a
// shard_map, a key that all devices share gives each of them the same numbers: fold in axis_index
// for others, or take a part of a whole array's with random_bits_block. Bits, integers and uniforms
// are those of jax.random to the bit; what comes of logarithms, roots and other functions is so
// within some units in the last place.
//
// Wherever a function takes a Key it takes a key as key() makes it, a legacy one (u32[2], as
// PRNGKey makes it), or one of another generator (shmap/extend/random.h). TypeError for another
// dtype, ValueError for several keys where one is wanted, both with the caller's line.
//
// Samplers work eagerly, in bodies, under jit and vmap; their derivatives with respect to
// parameters are those of the numbers drawn (reparametrised), where they are a smooth function of
// them. None of them waits for a value, but poisson and the gamma family outside of jit, whose
// loops ask whether all elements have been accepted.
//
// `shape` is that of the result, where parameters are arrays the one to which they are broadcast;
// without it, it is theirs. dtype: f16, bf16, f32 or f64 for floats; TypeError for another.
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shmap/array.h"
#include "shmap/extend/random.h"

namespace shmap {
namespace random {

// ---- keys

// The key of a seed: of its 64 bits, the high word and the low one. Seeds that are arrays are
// integer scalars; one of 32 bits or fewer gives the low word alone.
template <std::integral T>
Array key(T seed, SourceLine source = SourceLine::current()) {
  return shmap::detail::key_of_seed(static_cast<std::uint64_t>(static_cast<std::int64_t>(seed)),
                                    source);
}
Array key(const Array& seed, SourceLine source = SourceLine::current());
// A key of the generator of that name: extend::define_generator; ValueError where there is none.
extend::GeneratorKey key(std::int64_t seed, const std::string& generator,
                         SourceLine source = SourceLine::current());
// The legacy form of key(seed): its two words, u32[2].
Array PRNGKey(std::int64_t seed, SourceLine source = SourceLine::current());

// n, or an array of, new keys. Of a legacy key: u32[n, 2]. ValueError where n is negative.
Array split(Key key, std::int64_t n = 2);
Array split(Key key, Shape shape);
// The same, each for itself: auto [k1, k2] = random::split<2>(key).
template <std::size_t n>
std::array<Array, n> split(Key key) {
  std::array<Array, n> keys;
  shmap::detail::split_each(std::move(key), keys.data(), n);
  return keys;
}
// Of another generator.
std::vector<extend::GeneratorKey> split(const extend::GeneratorKey& key, std::int64_t n = 2,
                                        SourceLine source = SourceLine::current());
extend::GeneratorKey fold_in(const extend::GeneratorKey& key, Operand data);
// A new key of a key and a number, of which the low 32 bits count: a step, a layer, axis_index in a
// body. data: an integer scalar.
Array fold_in(Key key, Operand data);

// ---- bits, uniforms and what follows from them

// dtype: u8, u16, u32 or u64; TypeError for another.
Array bits(Key key, Shape shape = {}, DType dtype = u32);
// In [minval, maxval), which are scalars or broadcast to the shape.
Array uniform(Key key, Shape shape = {}, DType dtype = f32, Operand minval = 0, Operand maxval = 1);
// Integers in [minval, maxval), of any integer dtype; minval where the range is empty.
Array randint(Key key, Shape shape, Operand minval, Operand maxval, DType dtype = i32);
// true with probability p, a float.
Array bernoulli(Key key, Operand p = 0.5f);
Array bernoulli(Key key, Operand p, Shape shape);
// 1 or -1.
Array rademacher(Key key, Shape shape = {}, DType dtype = i32);

// ---- order and choice

// x's items along an axis in another order; each line of the axis in one of its own where
// `independent`. Of an integer n: the numbers 0 … n - 1 (i32).
Array permutation(Key key, Operand x, int axis = 0, bool independent = false);
struct ChoiceOptions {
  bool replace = true;
  Array p = {};  // the probability of each item; empty: all alike
  int axis = 0;
};
// Items of a along the axis, in its place the dims of `shape`; of an integer n, of 0 … n - 1.
// ValueError where a has none, or fewer than are asked for without replacing.
Array choice(Key key, Operand a, Shape shape = {}, ChoiceOptions options = {});
// Indices along `axis` (i32), each drawn with the probability softmax(logits). shape: that of
// logits without the axis, with dims before it.
Array categorical(Key key, Operand logits, int axis = -1);
Array categorical(Key key, Operand logits, int axis, Shape shape, bool replace = true);

// ---- continuous distributions

Array normal(Key key, Shape shape = {}, DType dtype = f32);
// Standard normal, within (lower, upper).
Array truncated_normal(Key key, Operand lower, Operand upper);
Array truncated_normal(Key key, Operand lower, Operand upper, Shape shape, DType dtype = f32);
Array exponential(Key key, Shape shape = {}, DType dtype = f32);
Array gumbel(Key key, Shape shape = {}, DType dtype = f32);
Array laplace(Key key, Shape shape = {}, DType dtype = f32);
Array logistic(Key key, Shape shape = {}, DType dtype = f32);
Array cauchy(Key key, Shape shape = {}, DType dtype = f32);

// ---- by rejection: a, b, alpha and lam are positive

// Derivatives with respect to a, b, alpha and p are jax.random's, by implicit reparametrisation;
// poisson's are zero.
//
// Of shape parameter a and scale 1. loggamma: its logarithm, without underflow where a is small.
Array gamma(Key key, Operand a);
Array gamma(Key key, Operand a, Shape shape, DType dtype = f32);
Array loggamma(Key key, Operand a);
Array loggamma(Key key, Operand a, Shape shape, DType dtype = f32);
Array beta(Key key, Operand a, Operand b);
Array beta(Key key, Operand a, Operand b, Shape shape, DType dtype = f32);
// alpha's last dim is the result's, over which it sums to 1. shape: without that dim.
Array dirichlet(Key key, Operand alpha);
Array dirichlet(Key key, Operand alpha, Shape shape, DType dtype = f32);
// Integers of the mean lam. dtype: an integer type.
Array poisson(Key key, Operand lam);
Array poisson(Key key, Operand lam, Shape shape, DType dtype = i32);
// The density of exp(-|x|^p).
Array generalized_normal(Key key, Operand p, Shape shape = {}, DType dtype = f32);
// Uniform in the unit ball of the Lp norm in d dimensions: shape (shape..., d).
Array ball(Key key, std::int64_t d, Operand p = 2, Shape shape = {}, DType dtype = f32);

}  // namespace random
}  // namespace shmap
