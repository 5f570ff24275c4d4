#include "core/random/bit_source.h"

#include <array>
#include <utility>

#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ops/promote.h"
#include "core/ops/random.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "shmap/vmap.h"

namespace shmap::draw {

Array item(const Array& x, std::int64_t index, SourceLine source) {
  const Shape dims = node_of(x)->type.dims();
  Shape rest;
  for (std::size_t d = 1; d < dims.size(); ++d) rest.push_back(dims[d]);
  return bind_reshape(slice_dim(x, 0, index, index + 1, source), rest, source);
}

Array bind_split(const Array& keys, const Shape& shape, SourceLine source) {
  RandomSplitParams params;
  params.shape = shape;
  return bind(random_split_p, keys, params, source);
}

Array as_keys(Array x, const char* what, SourceLine source) {
  const ShapedArray type = checked_node(x, what, source).type;
  if (type.dtype() == DType::prng_key) return x;
  const int rank = type.rank();
  if (type.dtype() != DType::u32 || rank == 0 ||
      type.dims()[static_cast<std::size_t>(rank) - 1] != 2) {
    throw TypeError(std::string(what) + ": a key is wanted, and a value of type " +
                    to_string(type) + " was given: make one with random::key(seed)" +
                    at_line(source));
  }
  return bind(random_wrap_p, std::move(x), no_params, source);
}

BitSource::BitSource(random::Key key, const char* what)
    : key_(std::move(key.data)), name_(std::move(key.generator)), what_(what), source_(key.source) {
  const ShapedArray type = checked_node(key_, what, source_).type;
  Shape one;
  check_unused(key_, what, source_);
  if (name_.empty()) {
    raw_ = type.dtype() == DType::u32;
    key_ = as_keys(std::move(key_), what, source_);
  } else {
    generator_ = find_generator(name_, what, source_);
    one = generator_->key_shape;
  }
  const Shape given = node_of(key_)->type.dims();
  if (given == one) return;
  throw ValueError(std::string(what) + ": one key is wanted, and keys of type " + to_string(type) +
                   " were given: draw for each of them under vmap" + at_line(source_));
}

Array BitSource::bits(int width, const Shape& shape) const {
  if (!generator_) return bind_random_bits(key_, width, shape, source_);
  const Array out = generator_->random_bits(key_, width, shape);
  const ShapedArray type = checked_node(out, what_, source_).type;
  constexpr std::array<DType, 9> kByBytes = {DType::u8, DType::u8,  DType::u16,
                                             DType::u8, DType::u32, DType::u8,
                                             DType::u8, DType::u8,  DType::u64};
  if (type.dtype() == kByBytes[static_cast<std::size_t>(width) / 8] && type.dims() == shape)
    return out;
  throw TypeError(std::string(what_) + ": random_bits of the generator \"" + name_ +
                  "\" was asked for " + std::to_string(width) + " bits of shape " +
                  to_string(shape) + ", and gave " + to_string(type) + at_line(source_));
}

Array BitSource::split_keys(const Shape& shape) const {
  if (!generator_) {
    Array keys = bind_split(key_, shape, source_);
    return raw_ ? bind(random_unwrap_p, std::move(keys), no_params, source_) : keys;
  }
  Array keys = generator_->split(key_, shape);
  Shape wanted = shape;
  for (std::int64_t e : generator_->key_shape) wanted.push_back(e);
  const ShapedArray type = checked_node(keys, what_, source_).type;
  if (type.dtype() == DType::u32 && type.dims() == wanted) return keys;
  throw TypeError(std::string(what_) + ": split of the generator \"" + name_ + "\" gave " +
                  to_string(type) + ", and words of shape " + to_string(wanted) + " are wanted" +
                  at_line(source_));
}

Array BitSource::keys(std::int64_t n) const {
  return generator_ ? split_keys({n}) : bind_split(key_, {n}, source_);
}

std::vector<BitSource> BitSource::split(std::int64_t n) const {
  const Array all = keys(n);
  std::vector<BitSource> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(with(item(all, i, source_)));
  return out;
}

// A user's generator works on one key at a time.
Array BitSource::split_each(const Array& keys, std::int64_t count) const {
  if (!generator_) return bind_split(keys, {count}, source_);
  return vmap([&](Array key) { return with(std::move(key)).split_keys({count}); })(keys);
}

Array BitSource::bits_each(const Array& keys, int width) const {
  if (!generator_) return bind_random_bits(keys, width, {}, source_);
  return vmap([&](Array key) { return with(std::move(key)).bits(width, {}); })(keys);
}

Array BitSource::part(const Array& keys, std::int64_t j) const {
  Shape dims = node_of(keys)->type.dims(), rest;
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (d != 1) rest.push_back(dims[d]);
  return bind_reshape(slice_dim(keys, 1, j, j + 1, source_), rest, source_);
}

Array BitSource::fold_in(const Array& data) const {
  if (generator_) return generator_->fold_in(key_, data);
  Array in[] = {key_, data};
  Array folded = bind(random_fold_in_p, in, no_params, source_);
  return raw_ ? bind(random_unwrap_p, std::move(folded), no_params, source_) : folded;
}

}  // namespace shmap::draw
