// Makes keys from seeds and from other keys, and converts keys to words and back.
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/counted.h"
#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/random.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/random/bit_source.h"
#include "core/runtime/host_transfer.h"
#include "shmap/random.h"

namespace shmap {

Array detail::key_of_seed(std::uint64_t seed, SourceLine source) {
  const std::uint32_t words[] = {static_cast<std::uint32_t>(seed >> 32),
                                 static_cast<std::uint32_t>(seed)};
  return at_source("key", source, [&] { return array_from_host(words, DType::prng_key, {}); });
}

Array random::key(const Array& seed, SourceLine source) {
  const Operand x(seed, source.file, source.line);
  const ShapedArray type = type_of(x, "key");
  if (!is_integer(type.dtype())) {
    throw TypeError("key: a seed of type " + to_string(type) + ": wanted an integer" +
                    at_line(source));
  }
  if (type.rank() != 0) {
    throw ValueError("key: seeds of type " + to_string(type) +
                     ": wanted a scalar; make a key of each under vmap" + at_line(source));
  }
  const RuleOps op(source);
  const bool wide = itemsize(type.dtype()) == 8;
  const Array low = convert(seed, DType::u32, source);
  Array high = convert(Array(0), DType::u32, source);
  if (wide) {
    const Array all = convert(seed, DType::u64, source);
    high = convert(op(shift_right_logical_p, all, op.number(32, all)), DType::u32, source);
  }
  Array words[] = {bind_broadcast(high, {1}, {}, source), bind_broadcast(low, {1}, {}, source)};
  return bind(random_wrap_p, bind_concatenate(words, 0, source), no_params, source);
}

Array random::PRNGKey(std::int64_t seed, SourceLine source) {
  return bind(random_unwrap_p, key(seed, source), no_params, source);
}

Array random::split(Key key, std::int64_t n) {
  if (n < 0) {
    throw ValueError("split: " + std::to_string(n) + " new keys: wanted 0 or more" +
                     at_line(key.source));
  }
  return split(std::move(key), Shape({n}));
}

Array random::split(Key key, Shape shape) {
  const SourceLine source = key.source;
  return at_source("split", source,
                   [&] { return draw::BitSource(std::move(key), "split").split_keys(shape); });
}

void detail::split_each(random::Key key, Array* keys, std::size_t n) {
  const SourceLine source = key.source;
  const Array all = random::split(std::move(key), static_cast<std::int64_t>(n));
  for (std::size_t i = 0; i < n; ++i)
    keys[i] = draw::item(all, static_cast<std::int64_t>(i), source);
}

// fold_in does not count as a use: the key may be folded with other numbers.
Array random::fold_in(Key key, Operand data) {
  const SourceLine source = key.source;
  const ShapedArray type = type_of(data, "fold_in");
  if (!is_integer(type.dtype())) {
    throw TypeError("fold_in: data of type " + to_string(type) + ": wanted an integer" +
                    at_line(source));
  }
  const FunctionScope scope("fold_in", {&key.data, &data.value}, source);
  if (!key.generator.empty()) {
    throw TypeError("fold_in: a key of the generator \"" + key.generator +
                    "\": pass the GeneratorKey itself" + at_line(source));
  }
  const bool raw = checked_node(key.data, "fold_in", source).type.dtype() == DType::u32;
  const Array keys = draw::as_keys(std::move(key.data), "fold_in", source);
  const ShapedArray of = node_of(keys)->type;
  if (of.rank() != 0 || type.rank() != 0) {
    throw ValueError(
        "fold_in: keys of type " + to_string(of) + " and data of type " + to_string(type) +
        ": wanted one key and a scalar; fold in for each under vmap" + at_line(source));
  }
  Array in[] = {keys, convert(std::move(data.value), DType::u32, source)};
  Array folded = bind(random_fold_in_p, in, no_params, source);
  return raw ? bind(random_unwrap_p, std::move(folded), no_params, source) : folded;
}

Array extend::random_wrap(Operand words) {
  type_of(words, "random_wrap");
  return bind(random_wrap_p, std::move(words.value), no_params, words.source);
}

Array extend::random_unwrap(Operand keys) {
  type_of(keys, "random_unwrap");
  return bind(random_unwrap_p, std::move(keys.value), no_params, keys.source);
}

Array extend::threefry_2x32(Operand key, Operand counts) {
  const SourceLine source = key.source;
  const FunctionScope scope("threefry_2x32", {&key.value, &counts.value}, source);
  if (type_of(key, "threefry_2x32").dtype() == DType::prng_key)
    key.value = bind(random_unwrap_p, std::move(key.value), no_params, source);
  const ShapedArray words = type_of(key, "threefry_2x32"), type = type_of(counts, "threefry_2x32");
  if (words.dtype() != DType::u32 || type.dtype() != DType::u32) {
    throw TypeError("threefry_2x32: a key of type " + to_string(words) + " and counts of type " +
                    to_string(type) + ": wanted u32, both" + at_line(source));
  }
  if (!(words.dims() == Shape({2}))) {
    throw ValueError("threefry_2x32: a key of type " + to_string(words) +
                     ": wanted its two words, u32[2]" + at_line(source));
  }
  const std::int64_t n = type.size(), half = (n + 1) / 2;
  if (n == 0) return std::move(counts.value);
  Array flat = bind_reshape(std::move(counts.value), {n}, source);
  if (n % 2 != 0) {
    Array padded[] = {std::move(flat),
                      bind_broadcast(convert(Array(0), DType::u32, source), {1}, {}, source)};
    flat = bind_concatenate(padded, 0, source);
  }
  Array in[] = {draw::item(key.value, 0, source), draw::item(key.value, 1, source),
                slice_dim(flat, 0, 0, half, source), slice_dim(flat, 0, half, 2 * half, source)};
  std::vector<Array> halves = bind_all(threefry2x32_p, in, no_params, source);
  Array out = bind_concatenate(halves, 0, source);
  if (n % 2 != 0) out = slice_dim(std::move(out), 0, 0, n, source);
  return bind_reshape(std::move(out), type.dims(), source);
}

Array extend::random_bits_block(Operand key, Shape of, std::vector<Operand> starts, Shape shape,
                                DType dtype) {
  const SourceLine source = key.source;
  std::vector<const Array*> all = {&key.value};
  for (const Operand& s : starts) all.push_back(&s.value);
  const FunctionScope scope("random_bits_block", all, source);
  if (!is_unsigned_int(dtype)) {
    throw TypeError("random_bits_block: dtype " + to_string(dtype) +
                    ": wanted u8, u16, u32 or u64" + at_line(source));
  }
  bool fits = of.size() == shape.size() && starts.size() == of.size();
  for (std::size_t d = 0; fits && d < of.size(); ++d) fits = shape[d] <= of[d];
  if (!fits) {
    throw ValueError("random_bits_block: a block of shape " + to_string(shape) + " at " +
                     counted(starts.size(), "start") + " of an array of shape " + to_string(of) +
                     ": wanted one rank, and a block that fits" + at_line(source));
  }
  const RuleOps op(source);
  Array first = convert(Array(0), DType::i64, source);
  std::int64_t stride = 1;
  for (std::size_t d = of.size(); d-- > 0; stride *= of[d]) {
    const ShapedArray type = type_of(starts[d], "random_bits_block");
    if (!is_integer(type.dtype()) || type.rank() != 0) {
      throw TypeError("random_bits_block: start " + std::to_string(d) + " has type " +
                      to_string(type) + ": wanted an integer scalar" + at_line(source));
    }
    const Array start = convert(std::move(starts[d].value), DType::i64, source);
    const Array step = convert(Array(stride), DType::i64, source);
    first = op(add_p, first, op(mul_p, start, step));
  }
  RandomBitsParams params;
  params.bit_width = 8 * itemsize(dtype);
  params.of = of;
  params.shape = shape;
  Array in[] = {draw::BitSource(random::Key(std::move(key.value), source.file, source.line),
                                "random_bits_block")
                    .key(),
                std::move(first)};
  return at_source("random_bits_block", source,
                   [&] { return bind(random_bits_p, in, params, source); });
}

}  // namespace shmap
