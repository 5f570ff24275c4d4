// Bodies of products over a mesh axis "i": lhs is a device's rows, rhs a device's columns, and the
// result all rows of these columns.
#pragma once
#include <shmap/shmap.h>

#include <utility>
#include <vector>

namespace shmap::bench {

// All-gather collective matmul: each shard of lhs is multiplied while the next one travels.
inline Array gather_matmul(Array lhs, Array rhs) {
  const int n = axis_size("i");
  std::vector<std::pair<int, int>> left;
  for (int k = 0; k < n; ++k) left.push_back({k, (k + n - 1) % n});
  const Array index = axis_index("i");
  const std::int64_t rows = lhs.shape()[0];
  Array out = zeros({rows * n, rhs.shape()[1]}, lhs.dtype());
  for (int step = 0; step < n; ++step) {
    Array update = matmul(lhs, rhs);
    if (step + 1 < n) lhs = ppermute(lhs, "i", left);
    out = dynamic_update_slice(std::move(out), update, {((index + step) % n) * rows, 0});
  }
  return out;
}

// Gathers all of lhs first, then multiplies once.
inline Array gathered_then_multiplied(Array lhs, Array rhs) {
  return matmul(all_gather(lhs, "i", {.axis = 0, .tiled = true}), rhs);
}

// Gathers all of lhs on every device by the copies of gather_matmul.
inline Array ring_gather(Array lhs) {
  const int n = axis_size("i");
  std::vector<std::pair<int, int>> left;
  for (int k = 0; k < n; ++k) left.push_back({k, (k + n - 1) % n});
  const Array index = axis_index("i");
  const std::int64_t rows = lhs.shape()[0];
  Array all = zeros({rows * n, lhs.shape()[1]}, lhs.dtype());
  for (int step = 0; step < n; ++step) {
    all = dynamic_update_slice(std::move(all), lhs, {((index + step) % n) * rows, 0});
    if (step + 1 < n) lhs = ppermute(lhs, "i", left);
  }
  return all;
}

// The serial form of gather_matmul: the same copies, and then one product.
inline Array ring_gathered_then_multiplied(Array lhs, Array rhs) {
  return matmul(ring_gather(std::move(lhs)), rhs);
}

}  // namespace shmap::bench
