// Calls a function template with the C++ type that the elements of a dtype have on the host, by the
// table of dtypes.
//
// with_number(dtype, f) returns f.template operator()<T>() for the element type T of `dtype`; the
// other functions do the same for other sets of dtypes. For a dtype outside of its set a function
// does not call f and returns a value-initialised result: nullptr, false, an empty struct.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/base/dtype_table.h"

namespace shmap {

template <class F>
using ElementResult = decltype(std::declval<F&>().template operator()<std::int32_t>());

#define SHMAP_CASE(name, type, ...) \
  case DType::name:                 \
    return f.template operator()<type>();
#define SHMAP_NATIVE_CASE(name, type, ...)    \
  case DType::name:                           \
    if constexpr (std::is_arithmetic_v<type>) \
      return f.template operator()<type>();   \
    else                                      \
      return ElementResult<F>();

template <class F>
constexpr ElementResult<F> with_integer(DType dtype, F&& f) {
  switch (dtype) {
    SHMAP_INTEGER_DTYPES(SHMAP_CASE)
    default:
      return ElementResult<F>();
  }
}

// Floats; T is float16 for f16 and bfloat16 for bf16.
template <class F>
constexpr ElementResult<F> with_float(DType dtype, F&& f) {
  switch (dtype) {
    SHMAP_FLOAT_DTYPES(SHMAP_CASE)
    default:
      return ElementResult<F>();
  }
}

// The dtypes that a processor computes with in their stored form: integers, f32, f64, and bool, for
// which T is std::uint8_t (the values are 0 and 1).
template <class F>
constexpr ElementResult<F> with_native(DType dtype, F&& f) {
  switch (dtype) {
    case DType::bool_:
      return f.template operator()<std::uint8_t>();
      SHMAP_INTEGER_DTYPES(SHMAP_NATIVE_CASE)
      SHMAP_FLOAT_DTYPES(SHMAP_NATIVE_CASE)
    default:
      return ElementResult<F>();
  }
}

// Integers and floats.
template <class F>
constexpr ElementResult<F> with_number(DType dtype, F&& f) {
  switch (dtype) {
    SHMAP_INTEGER_DTYPES(SHMAP_CASE)
    SHMAP_FLOAT_DTYPES(SHMAP_CASE)
    default:
      return ElementResult<F>();
  }
}

#undef SHMAP_CASE
#undef SHMAP_NATIVE_CASE

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
