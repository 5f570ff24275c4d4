// with_word: calls a function template with the unsigned integer type of a size.
#pragma once
#include <cstdint>
#include <utility>

namespace shmap {

// Returns f.template operator()<T>() for the unsigned integer T of so many bytes, 1, 2, 4 or 8. For
// another size it does not call f and returns a value-initialised result, as with_number does
// (core/base/element_type.h).
template <class F>
constexpr auto with_word(int bytes, F&& f)
    -> decltype(std::declval<F&>().template operator()<std::uint8_t>()) {
  switch (bytes) {
    case 1:
      return f.template operator()<std::uint8_t>();
    case 2:
      return f.template operator()<std::uint16_t>();
    case 4:
      return f.template operator()<std::uint32_t>();
    case 8:
      return f.template operator()<std::uint64_t>();
    default:
      return {};
  }
}

}  // namespace shmap
