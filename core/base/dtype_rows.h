// DTypeRow: a constant for each dtype, in the order of the enumeration, such as a file format's or
// another library's name for it. `static_assert(has_each_dtype(rows))` beside such a table makes a
// missing row a compile error.
#pragma once
#include <cstddef>

#include "shmap/dtype.h"

namespace shmap {

template <class T>
struct DTypeRow {
  DType dtype;
  T value;
};

template <class T, std::size_t n>
constexpr bool has_each_dtype(const DTypeRow<T> (&rows)[n]) {
  for (std::size_t i = 0; i < n; ++i)
    if (rows[i].dtype != static_cast<DType>(i)) return false;
  return n == kDTypeCount;
}

// The value of the dtype's row, in a table with a row for each dtype.
template <class T, std::size_t n>
constexpr const T& row_of(const DTypeRow<T> (&rows)[n], DType dtype) {
  return rows[static_cast<std::size_t>(dtype)].value;
}

}  // namespace shmap
