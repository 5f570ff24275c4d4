// vmap against a loop over the batch: what batching rules are tested with.
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
  // Of floats: how far from the loop's values, relative to them or to 1. Other dtypes are equal.
  double tolerance = 1e-6;
};

// Elements like those of random data, the same for the same seed: floats in (0.1, 0.9), integers
// 0 … 4, bools.
Array test_values(const ShapedArray& type, unsigned seed);
// Item k of x along a dim, without the dim.
Array item_along(const Array& x, int dim, std::int64_t k);

// What is wrong with vmap(f, in_axes) over `size` calls, eagerly and under jit; "" where nothing
// is. in_axes: an axis of each argument (from the end where it is negative), or kUnmapped.
inline constexpr int kUnmapped = 1000;
std::string check_vmap(const VmapCase& c, const std::vector<int>& in_axes, std::int64_t size);
// All of: every argument mapped along 0, 1 and -1, each of them alone, and mixtures; of 0, 1 and 3.
std::string check_vmap(const VmapCase& c);

// What differs between two arrays, or "".
std::string array_diff(const Array& want, const Array& got, double tolerance);

}  // namespace shmap::testing
