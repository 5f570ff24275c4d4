// Declarations that the kernels of sort and of top_k share.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/cpu/kernels/sort/sort.h"
#include "shmap/error.h"

namespace shmap::cpu {

// Sorts lines [begin, end), or only the items in range `part` of `parts` of each line. The ranges
// divide the keys of a line so that each has about as many items; every thread computes the same
// ranges.
using SortLinesFn = void (*)(const SortPass& s, std::int64_t begin, std::int64_t end, int part,
                             int parts);
// Finds the k largest elements of rows [begin, end).
using TopKFn = void (*)(const TopK& t, std::int64_t begin, std::int64_t end);

inline constexpr std::int64_t kSortPart = 16 << 10;  // fewer elements are not worth another thread

template <class T>  // bools are sorted as bytes
using Sorted = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

inline void check_sort(const char* what, DType dtype, bool has_kernel, std::int64_t len) {
  if (len > INT32_MAX) {
    throw ValueError(std::string(what) + ": a dim of " + std::to_string(len) +
                     " items passes 2^31 - 1, the most that i32 indices can tell apart");
  }
  if (!has_kernel) throw TypeError(std::string(what) + ": " + short_name(dtype) + " has no order");
}

}  // namespace shmap::cpu
