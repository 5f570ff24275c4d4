// Below random numbers: the hash itself, the words of keys, and generators of one's own
// (jax.extend.random).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shmap/array.h"

namespace shmap {
namespace extend {

// The hash threefry2x32 of counts under a key, u32[2] (or a key): the counts, flattened, are cut in
// two halves, of which an item each makes two words of the result; one of an odd number has a 0
// more, whose word is left out. The result has the counts' shape. TypeError where one is not u32.
Array threefry_2x32(Operand key, Operand counts);

// u32[…, 2] as keys, and back. No data moves. TypeError for other types.
Array random_wrap(Operand words);
Array random_unwrap(Operand keys);

// A block of the random bits of an array of shape `of`: those of random::bits(key, of, dtype) from
// `starts` on (a start for each dim: ints or integer scalars, axis_index(…) * n in a body), without
// the rest of them. ValueError where ranks differ or the block is larger than the array.
Array random_bits_block(Operand key, Shape of, std::vector<Operand> starts, Shape shape,
                        DType dtype = u32);

// A generator of one's own, of keys that are u32 words. The functions are written in ops, as any
// others: they are traced and batched as such.
struct Generator {
  Shape key_shape = {};  // of the words of a key
  // Of a seed, an i64 scalar: the words.
  std::function<Array(Array seed)> seed = {};
  // New keys: words of shape (shape..., key_shape...).
  std::function<Array(Array words, Shape shape)> split = {};
  // Bits of u8, u16, u32 or u64, by their width, of that shape.
  std::function<Array(Array words, int bit_width, Shape shape)> random_bits = {};
  // Of the words and a u32 scalar: words.
  std::function<Array(Array words, Array data)> fold_in = {};
};
// Makes a generator known under a name, for good. ValueError where the name is taken, TypeError
// where a function is missing. "threefry2x32" is the built-in one, "threefry2x32_original" the same
// hash as JAX used it until 0.5 (jax_threefry_partitionable=False). Thread-safe.
void define_generator(const std::string& name, Generator generator,
                      SourceLine source = SourceLine::current());

// A key of a generator by its name: a struct, and so an argument of jit, vmap, shard_map and the
// rest, where the name is part of what they trace for. All of random:: takes it as a key.
struct GeneratorKey {
  Array words;  // u32 of the generator's key_shape
  std::string generator;
};
// TypeError where words do not end in the dims of the generator's keys, ValueError where there is
// no generator of that name.
GeneratorKey random_wrap(Operand words, const std::string& generator);

}  // namespace extend

namespace random {

// An argument that is a key. Made implicitly, never named by a user.
struct Key {
  Key(const Array& x, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : data(x), source{file, line} {}
  Key(Array&& x, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : data(std::move(x)), source{file, line} {}
  Key(const extend::GeneratorKey& x, const char* file = __builtin_FILE(),
      int line = __builtin_LINE())
      : data(x.words), generator(x.generator), source{file, line} {}
  Array data;
  std::string generator;  // empty: the built-in one
  SourceLine source;
};

}  // namespace random

namespace detail {
Array key_of_seed(std::uint64_t seed, SourceLine source);
void split_each(random::Key key, Array* keys, std::size_t n);
}  // namespace detail

}  // namespace shmap
