// From a dtype to the type of its elements on the device. For the .cu files.
#pragma once
#include <cstdint>

#include "cuda/kernels/scalar.h"
#include "shmap/dtype.h"

namespace shmap::cuda {

// Each function below calls f.template operator()<T>() for T, the storage type
// (cuda/kernels/scalar.h) of `dtype`, if `dtype` is one of its dtypes. Returns false, without a
// call, for any other dtype.
template <class F>
bool with_integer(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i8:
      return f.template operator()<std::int8_t>(), true;
    case DType::i16:
      return f.template operator()<std::int16_t>(), true;
    case DType::i32:
      return f.template operator()<std::int32_t>(), true;
    case DType::i64:
      return f.template operator()<std::int64_t>(), true;
    case DType::u8:
      return f.template operator()<std::uint8_t>(), true;
    case DType::u16:
      return f.template operator()<std::uint16_t>(), true;
    case DType::u32:
      return f.template operator()<std::uint32_t>(), true;
    case DType::u64:
      return f.template operator()<std::uint64_t>(), true;
    default:
      return false;
  }
}
template <class F>
bool with_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16:
      return f.template operator()<F16>(), true;
    case DType::bf16:
      return f.template operator()<Bf16>(), true;
    case DType::f32:
      return f.template operator()<float>(), true;
    case DType::f64:
      return f.template operator()<double>(), true;
    default:
      return false;
  }
}
template <class F>
bool with_number(DType dtype, F&& f) {  // integers and floats
  return with_integer(dtype, f) || with_float(dtype, f);
}
template <class F>
bool with_type(DType dtype, F&& f) {  // all but prng_key
  if (dtype == DType::bool_) return f.template operator()<Boolean>(), true;
  return with_number(dtype, f);
}

// Calls f with the unsigned integer of 1, 2, 4 or 8 bytes, for kernels that only move elements.
template <class F>
bool with_bits(int itemsize, F&& f) {
  switch (itemsize) {
    case 1:
      return f.template operator()<std::uint8_t>(), true;
    case 2:
      return f.template operator()<std::uint16_t>(), true;
    case 4:
      return f.template operator()<std::uint32_t>(), true;
    case 8:
      return f.template operator()<std::uint64_t>(), true;
    default:
      return false;
  }
}

}  // namespace shmap::cuda
