// Indices of any integer type as i64, on the device and on the host.
#pragma once
#include <cstdint>

#include "cuda/kernels/scalar.h"
#include "shmap/dtype.h"

namespace shmap::cuda {

// indices[at] of dtype t, an integer type. A value beyond i64 is out of bounds of every array.
SHMAP_FN std::int64_t read_index(const void* indices, DType t, std::int64_t at) {
  switch (t) {
    case DType::i8:
      return static_cast<const std::int8_t*>(indices)[at];
    case DType::i16:
      return static_cast<const std::int16_t*>(indices)[at];
    case DType::i32:
      return static_cast<const std::int32_t*>(indices)[at];
    case DType::i64:
      return static_cast<const std::int64_t*>(indices)[at];
    case DType::u8:
      return static_cast<const std::uint8_t*>(indices)[at];
    case DType::u16:
      return static_cast<const std::uint16_t*>(indices)[at];
    case DType::u32:
      return static_cast<const std::uint32_t*>(indices)[at];
    default: {
      const std::uint64_t v = static_cast<const std::uint64_t*>(indices)[at];
      constexpr std::uint64_t most = 0x7fffffffffffffffu;
      return static_cast<std::int64_t>(v < most ? v : most);
    }
  }
}

}  // namespace shmap::cuda
