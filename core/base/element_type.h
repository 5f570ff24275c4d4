// The C++ type of a dtype's elements on the host: the only place that lists both.
//
// with_number(dtype, f) is f.template operator()<T>() for the element type T of `dtype`. A dtype
// that the function does not list gives a result without a value: nullptr, false, an empty struct.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "shmap/dtype.h"
#include "shmap/half.h"

namespace shmap {

template <class F>
using ElementResult = decltype(std::declval<F&>().template operator()<std::int32_t>());

template <class F>
constexpr ElementResult<F> with_integer(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i8:
      return f.template operator()<std::int8_t>();
    case DType::i16:
      return f.template operator()<std::int16_t>();
    case DType::i32:
      return f.template operator()<std::int32_t>();
    case DType::i64:
      return f.template operator()<std::int64_t>();
    case DType::u8:
      return f.template operator()<std::uint8_t>();
    case DType::u16:
      return f.template operator()<std::uint16_t>();
    case DType::u32:
      return f.template operator()<std::uint32_t>();
    case DType::u64:
      return f.template operator()<std::uint64_t>();
    default:
      return ElementResult<F>();
  }
}

// The types that a processor computes with in their stored form: integers, f32 and f64, and bool as
// a byte of 0 or 1.
template <class F>
constexpr ElementResult<F> with_native(DType dtype, F&& f) {
  switch (dtype) {
    case DType::bool_:
      return f.template operator()<std::uint8_t>();
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
    default:
      return with_integer(dtype, f);
  }
}

// Integers and floats; float16 and bfloat16 for the half types.
template <class F>
constexpr ElementResult<F> with_number(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16:
      return f.template operator()<float16>();
    case DType::bf16:
      return f.template operator()<bfloat16>();
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
    default:
      return with_integer(dtype, f);
  }
}

// Numbers, and bool: every dtype but prng_key.
template <class F>
constexpr ElementResult<F> with_plain(DType dtype, F&& f) {
  return dtype == DType::bool_ ? f.template operator()<bool>() : with_number(dtype, f);
}

// The integer or bool at `bytes`, which need not be aligned; values of u64 beyond i64 become the
// largest i64.
inline std::int64_t integer_at(const void* bytes, DType dtype) {
  if (dtype == DType::bool_) dtype = DType::u8;
  return with_integer(dtype, [bytes]<class T>() {
    T value;
    __builtin_memcpy(&value, bytes, sizeof(T));
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if constexpr (std::is_same_v<T, std::uint64_t>) value = value < kMost ? value : kMost;
    return static_cast<std::int64_t>(value);
  });
}

}  // namespace shmap
