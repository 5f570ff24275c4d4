// Element types of arrays. `bool_` is one byte holding 0 or 1; `prng_key` is two u32 words (a
// threefry key).
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <type_traits>

#include "shmap/half.h"

namespace shmap {

enum class DType : std::uint8_t {
  bool_,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  f16,
  bf16,
  f32,
  f64,
  prng_key
};
using enum DType;

inline constexpr int kDTypeCount = 14;

namespace detail {
inline constexpr std::uint8_t itemsizes[kDTypeCount] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8};
}
constexpr int itemsize(DType t) { return detail::itemsizes[static_cast<int>(t)]; }  // bytes
constexpr bool is_signed_int(DType t) { return t >= i8 && t <= i64; }
constexpr bool is_unsigned_int(DType t) { return t >= u8 && t <= u64; }
constexpr bool is_integer(DType t) { return t >= i8 && t <= u64; }
constexpr bool is_floating(DType t) { return t >= f16 && t <= f64; }

const char* short_name(DType t);  // "f32", "bool", "key<fry>": as jaxprs print it
const char* numpy_name(DType t);  // "float32", "bool", "key<fry>"
std::string to_string(DType t);   // the short name
std::ostream& operator<<(std::ostream& out, DType t);

template <class T>
concept Scalar = std::is_arithmetic_v<T>;

// The dtype of a C++ type. Every arithmetic type except long double has one, and so do float16 and
// bfloat16.
template <class T>
struct dtype_of_impl;
template <>
struct dtype_of_impl<bool> {
  static constexpr DType value = DType::bool_;
};
template <>
struct dtype_of_impl<float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of_impl<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of_impl<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of_impl<double> {
  static constexpr DType value = DType::f64;
};
template <std::integral T>
requires(!std::same_as<T, bool>) struct dtype_of_impl<T> {
  static constexpr DType value = std::is_signed_v<T> ? (sizeof(T) == 1   ? DType::i8
                                                        : sizeof(T) == 2 ? DType::i16
                                                        : sizeof(T) == 4 ? DType::i32
                                                                         : DType::i64)
                                                     : (sizeof(T) == 1   ? DType::u8
                                                        : sizeof(T) == 2 ? DType::u16
                                                        : sizeof(T) == 4 ? DType::u32
                                                                         : DType::u64);
};
template <class T>
inline constexpr DType dtype_of = dtype_of_impl<std::remove_cv_t<T>>::value;

}  // namespace shmap
