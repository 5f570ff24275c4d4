// Reads index vectors of any integer type, for gather and scatter.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/base/element_type.h"
#include "shmap/dtype.h"
#include "shmap/error.h"

namespace shmap::cpu {

using ReadIndex = std::int64_t (*)(const void* indices, std::int64_t at);

template <class T>
std::int64_t read_index(const void* indices, std::int64_t at) {
  const T v = static_cast<const T*>(indices)[at];
  // A u64 beyond i64 is out of bounds of every array.
  if constexpr (sizeof(T) == 8 && !std::is_signed_v<T>) {
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    return v > static_cast<T>(most) ? most : static_cast<std::int64_t>(v);
  } else {
    return static_cast<std::int64_t>(v);
  }
}

// Throws TypeError if t is not an integer type.
inline ReadIndex index_reader(DType t) {
  const ReadIndex reader = with_integer(t, []<class T>() -> ReadIndex { return read_index<T>; });
  if (reader == nullptr) {
    throw TypeError(std::string("gather, scatter: indices are ") + short_name(t) +
                    ": an integer type is wanted");
  }
  return reader;
}

}  // namespace shmap::cpu
