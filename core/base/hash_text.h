// HashText: a hash of the items added to it, the same in every process that adds the same items in
// the same order. Not secure against deliberate collisions.
#pragma once
#include <cstdint>
#include <string_view>

namespace shmap {

class HashText {
 public:
  HashText& add(std::uint64_t word) noexcept {
    value_ = (value_ ^ word) * 0x9E3779B97F4A7C15u;
    value_ ^= value_ >> 29;
    return *this;
  }
  HashText& add(std::string_view text) noexcept {
    add(text.size());
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    return add(value_ >> 32);
  }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325u;
};

}  // namespace shmap
