// From a dtype to the type of its elements on the device, by the table of dtypes. For the .cu
// files.
#pragma once
#include <cstdint>

#include "core/base/dtype_table.h"
#include "cuda/kernels/embedded/scalar.h"
#include "cuda/kernels/launch/launch.h"

namespace shmap::cuda {

// The storage type (cuda/kernels/embedded/scalar.h) of an element whose C++ type on the host is T.
template <class T>
struct StorageOf {
  using type = T;
};
template <>
struct StorageOf<bool> {
  using type = Boolean;
};
template <>
struct StorageOf<float16> {
  using type = F16;
};
template <>
struct StorageOf<bfloat16> {
  using type = Bf16;
};

#define SHMAP_CASE(name, element, ...) \
  case DType::name:                    \
    return f.template operator()<typename StorageOf<element>::type>(), true;

// Each function below calls f.template operator()<T>() for T, the storage type of `dtype`, if
// `dtype` is one of its dtypes. Returns false, without a call, for any other dtype; a launch that
// depends on such a call is passed to check_launched().
template <class F>
[[nodiscard]] bool with_unsigned(DType dtype, F&& f) {
  switch (dtype) {
    SHMAP_UNSIGNED_DTYPES(SHMAP_CASE)
    default:
      return false;
  }
}
template <class F>
[[nodiscard]] bool with_integer(DType dtype, F&& f) {
  switch (dtype) {
    SHMAP_INTEGER_DTYPES(SHMAP_CASE)
    default:
      return false;
  }
}
template <class F>
[[nodiscard]] bool with_float(DType dtype, F&& f) {
  switch (dtype) {
    SHMAP_FLOAT_DTYPES(SHMAP_CASE)
    default:
      return false;
  }
}
#undef SHMAP_CASE
template <class F>
[[nodiscard]] bool with_number(DType dtype, F&& f) {  // integers and floats
  return with_integer(dtype, f) || with_float(dtype, f);
}
template <class F>
[[nodiscard]] bool with_type(DType dtype, F&& f) {  // all but prng_key
  if (dtype == DType::bool_) return f.template operator()<Boolean>(), true;
  return with_number(dtype, f);
}

// Calls f with the unsigned integer of 1, 2, 4 or 8 bytes, for kernels that only move elements.
template <class F>
[[nodiscard]] bool with_bits(int itemsize, F&& f) {
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

// Throws Error, which names the kernel, where `launched` is false: no kernel takes the dtype.
inline void check_launched(const char* kernel, bool launched) {
  if (!launched) throw_no_kernel(kernel);
}

}  // namespace shmap::cuda
