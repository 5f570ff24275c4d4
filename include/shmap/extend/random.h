// The lower level of random numbers: the hash function, the words of keys, and generators that a
// user defines (jax.extend.random).
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

// The hash threefry2x32 of u32 counts under a key (a key, or its words u32[2]). The counts are
// flattened and cut into two halves; one item of each half together gives two words of the result.
// An odd number of counts is padded with a 0, whose word is dropped. The result has the shape of
// the counts. TypeError where the words of the key or the counts are not u32.
Array threefry_2x32(Operand key, Operand counts);

// Converts words u32[…, 2] to keys, and keys to words. No data moves. TypeError for other types.
Array random_wrap(Operand words);
Array random_unwrap(Operand keys);

// A block of the random bits of an array of shape `of`: the block of random::bits(key, of, dtype)
// of shape `shape` that begins at `starts`, without computing the other bits. starts: one per dim,
// ints or integer scalars (in a body, axis_index(…) * n). ValueError where ranks differ or the
// block is larger than the array.
Array random_bits_block(Operand key, Shape of, std::vector<Operand> starts, Shape shape,
                        DType dtype = u32);

// A generator that a user defines, whose keys are u32 words. Its functions are written with
// operations of the library, which are traced and batched like any others.
struct Generator {
  Shape key_shape = {};  // the shape of the words of one key
  // From a seed, an i64 scalar, to the words of a key.
  std::function<Array(Array seed)> seed = {};
  // From the words of a key to those of new keys, of shape (shape..., key_shape...).
  std::function<Array(Array words, Shape shape)> split = {};
  // Random bits of that shape, with the dtype u8, u16, u32 or u64 of that width.
  std::function<Array(Array words, int bit_width, Shape shape)> random_bits = {};
  // From the words of a key and a u32 scalar to the words of a new key.
  std::function<Array(Array words, Array data)> fold_in = {};
};
// Registers a generator under a name until the process ends. ValueError where the name is taken,
// TypeError where a function is missing. "threefry2x32" is the built-in generator,
// "threefry2x32_original" the form of it that JAX used by default until 0.5
// (jax_threefry_partitionable=False). Thread-safe.
void define_generator(const std::string& name, Generator generator,
                      SourceLine source = SourceLine::current());

// A key of a named generator. It is a struct, and so a tree: jit, vmap, shard_map and the other
// transforms take it as an argument, with the name as a static member. All functions of random::
// take it as a key.
struct GeneratorKey {
  Array words;  // u32 of the generator's key_shape
  std::string generator;
};
// TypeError where the shape of `words` does not end in the generator's key_shape, ValueError where
// there is no generator of that name.
GeneratorKey random_wrap(Operand words, const std::string& generator);

}  // namespace extend

namespace random {

// An argument that is a key. Conversions make Keys; user code never names the type.
struct Key {
  Key(const Array& x, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : data(x), source{file, line} {}
  Key(Array&& x, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : data(std::move(x)), source{file, line} {}
  Key(const extend::GeneratorKey& x, const char* file = __builtin_FILE(),
      int line = __builtin_LINE())
      : data(x.words), generator(x.generator), source{file, line} {}
  Array data;
  std::string generator;  // empty for the built-in generator
  SourceLine source;
};

}  // namespace random

namespace detail {
Array key_of_seed(std::uint64_t seed, SourceLine source);
void split_each(random::Key key, Array* keys, std::size_t n);
}  // namespace detail

}  // namespace shmap
