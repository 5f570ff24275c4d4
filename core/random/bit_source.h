// BitSource: the source of a sampler's random bits, from one key of any form and generator.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/ops/rule_ops.h"
#include "shmap/extend/random.h"

namespace shmap::draw {

// Returns the generator of that name. ValueError, which names `what` and the known generators, if
// there is none.
std::shared_ptr<const extend::Generator> find_generator(const std::string& name, const char* what,
                                                        SourceLine source);

// x as an array of keys; u32[..., 2] is wrapped. TypeError for other types.
Array as_keys(Array x, const char* what, SourceLine source);

class BitSource {
 public:
  // The source for sampler `what`. ValueError where `key` is not a single key, or, under
  // SHMAP_CHECK_KEYS, where it was used before.
  BitSource(random::Key key, const char* what);

  // Returns random bits of dtype u8, u16, u32 or u64; `width`: bits of an element.
  Array bits(int width, const Shape& shape) const;
  // split: n sources with new keys. split_keys: new keys in the form in which random::split returns
  // them.
  std::vector<BitSource> split(std::int64_t n) const;
  Array split_keys(const Shape& shape) const;
  Array fold_in(const Array& data) const;  // data: u32

  // key: the plain key, to be the carry of a loop. with: a source with such a key. keys: n new
  // plain keys.
  const Array& key() const { return key_; }
  BitSource with(Array key) const { return BitSource(std::move(key), *this); }
  Array keys(std::int64_t n) const;
  // For samplers that draw for each of n elements, with an array keys[n] of plain keys. split_each:
  // `count` new keys for each element, [n, count]. bits_each: one word of that width for each
  // element, [n]. part: key j of each element, from such an array [n, count].
  Array split_each(const Array& keys, std::int64_t count) const;
  Array bits_each(const Array& keys, int width) const;
  Array part(const Array& keys, std::int64_t j) const;
  const char* what() const { return what_; }
  SourceLine source() const { return source_; }
  RuleOps ops() const { return RuleOps(source_); }

 private:
  BitSource(Array key, const BitSource& like) : BitSource(like) { key_ = std::move(key); }

  // a plain key: a prng_key, or the words of a generator
  Array key_;
  std::shared_ptr<const extend::Generator> generator_;  // null: the built-in generator
  std::string name_;
  const char* what_;
  SourceLine source_;
  bool raw_ = false;  // the key was given as u32[2]
};

// Splits an array of threefry keys: the result has shape (..., shape...).
Array bind_split(const Array& keys, const Shape& shape, SourceLine source);
// Item `index` along dim 0.
Array item(const Array& x, std::int64_t index, SourceLine source);

// ValueError where the key was used before: SHMAP_CHECK_KEYS (core/random/key_check.cpp).
void check_unused(const Array& key, const char* what, SourceLine source);

}  // namespace shmap::draw
