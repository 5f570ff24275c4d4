// Indices of any integer type as i64, on the device and on the host.
#pragma once
#include <cstdint>

#include "core/base/dtype_table.h"
#include "cuda/kernels/embedded/scalar.h"

namespace shmap::cuda {

// A value beyond i64 is out of bounds of every array.
template <class T>
SHMAP_FN std::int64_t as_index(T value) {
  if constexpr (sizeof(T) == 8 && static_cast<T>(-1) > 0) {
    constexpr T most = 0x7fffffffffffffffu;
    return static_cast<std::int64_t>(value < most ? value : most);
  } else {
    return value;
  }
}

// indices[at] of dtype t, an integer type.
SHMAP_FN std::int64_t read_index(const void* indices, DType t, std::int64_t at) {
#define SHMAP_READ(name, type, ...) \
  case DType::name:                 \
    return as_index(static_cast<const type*>(indices)[at]);
  switch (t) {
    SHMAP_INTEGER_DTYPES(SHMAP_READ)
    default:
      return -1;
  }
#undef SHMAP_READ
}

}  // namespace shmap::cuda
