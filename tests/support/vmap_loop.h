// Compares vmap with a loop over the batch, to test batching rules.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "shmap/vmap.h"

namespace shmap::testing {

// A function of arrays, and the types of one call's arguments.
struct VmapCase {
  std::string name;
  std::function<std::vector<Array>(const std::vector<Array>&)> f;
  std::vector<ShapedArray> in;
  // The tolerance of floats, relative to the loop's values or to 1. Other dtypes must be equal.
  double tolerance = 1e-6;
};

// Elements like those of random data, the same for the same seed: floats in (0.1, 0.9), integers
// 0 … 4, bools.
Array test_values(const ShapedArray& type, unsigned seed);
// Item k of x along a dim, without the dim.
Array item_along(const Array& x, int dim, std::int64_t k);

// Returns what is wrong with vmap(f, in_axes) over `size` calls, eagerly and under jit; "" if
// nothing is. in_axes: an axis of each argument (negative: from the end), or kUnmapped.
inline constexpr int kUnmapped = 1000;
std::string check_vmap(const VmapCase& c, const std::vector<int>& in_axes, std::int64_t size);
// Checks with every argument mapped along 0, 1 and -1, with each argument alone, and with mixtures,
// over 0, 1 and 3 calls.
std::string check_vmap(const VmapCase& c);

// Returns how two arrays differ, or "".
std::string array_diff(const Array& want, const Array& got, double tolerance);

}  // namespace shmap::testing
