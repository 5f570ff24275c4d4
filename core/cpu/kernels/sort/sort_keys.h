// Every element type as an unsigned integer of its width in the order that sort promises: -0 with
// 0, NaNs equal and last.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "shmap/half.h"

namespace shmap::cpu {

template <int kBytes>
using UnsignedOf = std::conditional_t<
    kBytes == 1, std::uint8_t,
    std::conditional_t<kBytes == 2, std::uint16_t,
                       std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>>;

template <class T>
using SortKey = UnsignedOf<static_cast<int>(sizeof(T))>;

template <class T>
inline constexpr bool is_float_like =
    std::is_floating_point_v<T> || std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

template <class T>
inline constexpr SortKey<T> infinity_bits = std::is_same_v<T, float16>
                                                ? static_cast<SortKey<T>>(0x7c00u)
                                            : std::is_same_v<T, bfloat16>
                                                ? static_cast<SortKey<T>>(0x7f80u)
                                            : sizeof(T) == 4
                                                ? static_cast<SortKey<T>>(0x7f800000u)
                                                : static_cast<SortKey<T>>(0x7ff0000000000000u);

template <class T>
SortKey<T> sort_key(T value) {
  using Key = SortKey<T>;
  constexpr Key top = static_cast<Key>(Key{1} << (8 * sizeof(T) - 1));
  const Key bits = std::bit_cast<Key>(value);
  if constexpr (is_float_like<T>) {
    const Key magnitude = static_cast<Key>(bits & static_cast<Key>(top - 1));
    if (magnitude > infinity_bits<T>) return static_cast<Key>(~Key{0});
    if (magnitude == 0) return top;
    return (bits & top) != 0 ? static_cast<Key>(~bits) : static_cast<Key>(bits | top);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<Key>(bits ^ top);
  } else {
    return bits;
  }
}

// True if the element can be computed from its key. Not for zeros and NaNs of floats: 0 and -0 have
// one key, and so have all NaNs.
template <class T>
bool key_tells_element(SortKey<T> key) {
  using Key = SortKey<T>;
  constexpr Key top = static_cast<Key>(Key{1} << (8 * sizeof(T) - 1));
  return !is_float_like<T> || (key != top && key != static_cast<Key>(~Key{0}));
}
// The element whose sort_key is `key`; only where key_tells_element(key).
template <class T>
T element_of_key(SortKey<T> key) {
  using Key = SortKey<T>;
  constexpr Key top = static_cast<Key>(Key{1} << (8 * sizeof(T) - 1));
  if constexpr (is_float_like<T>)
    return std::bit_cast<T>(static_cast<Key>((key & top) != 0 ? key ^ top : ~key));
  else
    return std::bit_cast<T>(static_cast<Key>(std::is_signed_v<T> ? key ^ top : key));
}

}  // namespace shmap::cpu
