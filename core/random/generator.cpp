// Generators by name, and threefry2x32_original, JAX's generator without partitionable bits.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/random.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/random/bit_source.h"
#include "shmap/random.h"

namespace shmap {

namespace {

using extend::Generator;

DType unsigned_of(int width) {
  return width == 8 ? DType::u8 : width == 16 ? DType::u16 : width == 32 ? DType::u32 : DType::u64;
}

Array counts(std::int64_t n) { return bind_iota(DType::u32, {n}, 0, {}); }

// One hash gives word i and word i + n / 2, so that no element can be computed alone. Therefore the
// words are stored, unlike those of the built-in generator, which fused programs compute
// (core/compiler/fusion/fuse.h). Words narrower than 32 bits are the pieces of wider ones, low
// bits first.
Array original_bits(const Array& words, int width, const Shape& shape) {
  const RuleOps op{SourceLine{}};
  const std::int64_t size = shape.num_elements(), total = (size * width + 31) / 32;
  Array bits = extend::threefry_2x32(words, counts(total));
  if (width == 64) {
    const Array high = convert(slice_dim(bits, 0, 0, size, {}), DType::u64, {});
    const Array low = convert(slice_dim(bits, 0, size, 2 * size, {}), DType::u64, {});
    bits = op(bit_or_p, op(shift_left_p, high, op.number(32, high)), low);
  } else if (width < 32) {
    const std::int64_t per_word = 32 / width;
    const Array wide = bind_broadcast(bits, {total, per_word}, Dims(0), {});
    Array shift = bind_iota(DType::u32, {total, per_word}, 1, {});
    shift = op(mul_p, shift, op.number(width, shift));
    bits = convert(op(shift_right_logical_p, wide, shift), unsigned_of(width), {});
    bits = slice_dim(bind_reshape(bits, {total * per_word}, {}), 0, 0, size, {});
  }
  return bind_reshape(std::move(bits), shape, {});
}

Array seed_words(const Array& seed) { return extend::random_unwrap(random::key(seed)); }

std::shared_ptr<const Generator> original() {
  auto g = std::make_shared<Generator>();
  g->key_shape = Shape({2});
  g->seed = seed_words;
  g->split = [](Array words, Shape shape) {
    Shape pairs = shape;
    pairs.push_back(2);
    return bind_reshape(extend::threefry_2x32(words, counts(pairs.num_elements())), pairs, {});
  };
  g->random_bits = original_bits;
  g->fold_in = [](Array words, Array data) {
    return extend::random_unwrap(random::fold_in(extend::random_wrap(words), data));
  };
  return g;
}

// The built-in generator as a Generator, for keys that name it.
std::shared_ptr<const Generator> built_in() {
  auto g = std::make_shared<Generator>();
  g->key_shape = Shape({2});
  g->seed = seed_words;
  g->split = [](Array words, Shape shape) {
    return extend::random_unwrap(random::split(extend::random_wrap(words), shape));
  };
  g->random_bits = [](Array words, int width, Shape shape) {
    return random::bits(extend::random_wrap(words), shape, unsigned_of(width));
  };
  g->fold_in = [](Array words, Array data) {
    return extend::random_unwrap(random::fold_in(extend::random_wrap(words), data));
  };
  return g;
}

struct Generators {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Generator>> by_name = {
      {"threefry2x32", built_in()}, {"threefry2x32_original", original()}};
};
Generators& generators() {
  // never destroyed: other threads may still draw while the process ends
  static Generators* const all = new Generators;
  return *all;
}

}  // namespace

namespace draw {
std::shared_ptr<const extend::Generator> find_generator(const std::string& name, const char* what,
                                                        SourceLine source) {
  const std::lock_guard lock(generators().mutex);
  const auto it = generators().by_name.find(name);
  if (it != generators().by_name.end()) return it->second;
  std::string known;
  for (const auto& [each, g] : generators().by_name) known += (known.empty() ? "" : ", ") + each;
  throw ValueError(std::string(what) + ": there is no generator \"" + name + "\": there are " +
                   known + "; extend::define_generator makes others" + at_line(source));
}
}  // namespace draw

void extend::define_generator(const std::string& name, Generator generator, SourceLine source) {
  const char* missing = !generator.seed          ? "seed"
                        : !generator.split       ? "split"
                        : !generator.random_bits ? "random_bits"
                        : !generator.fold_in     ? "fold_in"
                                                 : nullptr;
  if (missing) {
    throw TypeError("define_generator: the generator \"" + name + "\" has no function " + missing +
                    at_line(source));
  }
  auto made = std::make_shared<const Generator>(std::move(generator));
  const std::lock_guard lock(generators().mutex);
  if (!name.empty() && generators().by_name.emplace(name, std::move(made)).second) return;
  throw ValueError("define_generator: the name \"" + name + "\" " +
                   (name.empty() ? "is empty" : "is taken") + ": choose another" + at_line(source));
}

extend::GeneratorKey extend::random_wrap(Operand words, const std::string& generator) {
  const auto g = draw::find_generator(generator, "random_wrap", words.source);
  const ShapedArray type = type_of(words, "random_wrap");
  const std::size_t rank = g->key_shape.size();
  bool fits = type.dtype() == DType::u32 && type.dims().size() >= rank;
  for (std::size_t d = 0; fits && d < rank; ++d)
    fits = type.dims()[type.dims().size() - rank + d] == g->key_shape[d];
  if (!fits) {
    throw TypeError("random_wrap: words of type " + to_string(type) + " for the generator \"" +
                    generator + "\": wanted u32, the last dims " + to_string(g->key_shape) +
                    at_line(words.source));
  }
  return {std::move(words.value), generator};
}

extend::GeneratorKey random::key(std::int64_t seed, const std::string& generator,
                                 SourceLine source) {
  const auto g = draw::find_generator(generator, "key", source);
  return extend::random_wrap(
      Operand(g->seed(convert(Array(seed), DType::i64, source)), source.file, source.line),
      generator);
}

std::vector<extend::GeneratorKey> random::split(const extend::GeneratorKey& key, std::int64_t n,
                                                SourceLine source) {
  const draw::BitSource from(Key(key, source.file, source.line), "split");
  if (n < 0) {
    throw ValueError("split: " + std::to_string(n) + " new keys: wanted 0 or more" +
                     at_line(source));
  }
  const Array keys = from.split_keys({n});
  std::vector<extend::GeneratorKey> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back({draw::item(keys, i, source), key.generator});
  return out;
}

extend::GeneratorKey random::fold_in(const extend::GeneratorKey& key, Operand data) {
  const auto g = draw::find_generator(key.generator, "fold_in", data.source);
  if (!is_integer(type_of(data, "fold_in").dtype()) || type_of(data, "fold_in").rank() != 0) {
    throw TypeError("fold_in: data of type " + to_string(type_of(data, "fold_in")) +
                    ": wanted an integer scalar" + at_line(data.source));
  }
  return {g->fold_in(key.words, convert(std::move(data.value), DType::u32, data.source)),
          key.generator};
}

}  // namespace shmap
