// What samplers draw from: one key, whatever its form and generator.
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

// The generator of that name; ValueError naming `what` and those there are where there is none.
std::shared_ptr<const extend::Generator> find_generator(const std::string& name, const char* what,
                                                        SourceLine source);

// x as keys: those there are, or u32[..., 2] wrapped. TypeError where it is neither.
Array as_keys(Array x, const char* what, SourceLine source);

class BitSource {
 public:
  // The key of sampler `what`: one, or an error that says so. Where SHMAP_CHECK_KEYS is on, an
  // error if it was used before.
  BitSource(random::Key key, const char* what);

  // u8, u16, u32 or u64, by the width.
  Array bits(int width, const Shape& shape) const;
  // n sources of new keys; and new keys as split gives them to users.
  std::vector<BitSource> split(std::int64_t n) const;
  Array split_keys(const Shape& shape) const;
  Array fold_in(const Array& data) const;  // data: u32

  // The key by itself, for the carry of a loop; a source that draws from such a key instead; and n
  // new such keys.
  const Array& key() const { return key_; }
  BitSource with(Array key) const { return BitSource(std::move(key), *this); }
  Array keys(std::int64_t n) const;
  // Of an array keys[n] of such keys, for samplers that draw for each element: `count` new ones of
  // each, [n, count]; one word of that width of each, [n]; key j of those in [n, count].
  Array split_each(const Array& keys, std::int64_t count) const;
  Array bits_each(const Array& keys, int width) const;
  Array part(const Array& keys, std::int64_t j) const;
  bool is_raw() const { return raw_; }
  const std::string& generator_name() const { return name_; }
  const char* what() const { return what_; }
  SourceLine source() const { return source_; }
  RuleOps ops() const { return RuleOps(source_); }

 private:
  BitSource(Array key, const BitSource& like) : BitSource(like) { key_ = std::move(key); }

  Array key_;                                           // a key, or a generator's words
  std::shared_ptr<const extend::Generator> generator_;  // null: the built-in one
  std::string name_;
  const char* what_;
  SourceLine source_;
  bool raw_ = false;  // given as u32[2]
};

// Of an array of threefry's keys: keys of shape (..., shape...).
Array bind_split(const Array& keys, const Shape& shape, SourceLine source);
// The item at `index` of dim 0.
Array item(const Array& x, std::int64_t index, SourceLine source);

// Throws where the key was used before: SHMAP_CHECK_KEYS (core/random/key_check.cpp).
void check_unused(const Array& key, const char* what, SourceLine source);

}  // namespace shmap::draw
