// The blocks that a collective should give on each device, whichever process drives it: every
// layout of processes has to give the bits that plain host code gives; sums of floats on GPUs are
// NCCL's, within the bound of any order of additions.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/device_grids.h"

namespace shmap {

template <class T>
using Blocks = std::vector<std::vector<T>>;  // by mesh position, row-major

// Values whose sums depend on the order of additions.
template <class T>
Blocks<T> some_blocks(std::int64_t n) {
  Blocks<T> blocks(static_cast<std::size_t>(device_count()));
  std::uint32_t state = 12345;
  for (auto& block : blocks) {
    for (std::int64_t i = 0; i < n; ++i) {
      state = state * 1664525u + 1013904223u;
      const auto small = static_cast<int>(state >> 8 & 0xffff) - 0x8000;
      if constexpr (std::is_integral_v<T>) {
        block.push_back(static_cast<T>(small));
      } else {
        block.push_back(T(static_cast<float>(small) * 1.0001e-3f));
      }
    }
  }
  return blocks;
}

// Sums floats in the tree of the library: over the ranks in mesh order.
template <class T>
T tree(std::vector<T> v, const std::function<T(T, T)>& op) {
  const std::size_t p = std::bit_floor(v.size());
  for (std::size_t i = p; i < v.size(); ++i) v[i - p] = op(v[i - p], v[i]);
  for (std::size_t d = 1; d < p; d *= 2)
    for (std::size_t i = 0; i + d < p; i += 2 * d) v[i] = op(v[i], v[i + d]);
  return v[0];
}

// The largest error of a sum of floats over all devices on GPUs: each addition of magnitudes
// rounds.
template <class T>
double sum_bound(const Blocks<T>& in) {
  double sum = 0;
  for (const auto& block : in) {
    double most = 0;
    for (const T v : block) most = std::max(most, std::abs(static_cast<double>(v)));
    sum += most;
  }
  // (bfloat16 has 7 bits behind the point, and no numeric_limits.)
  const double epsilon =
      sizeof(T) == 2 ? 0x1p-7 : static_cast<double>(std::numeric_limits<T>::epsilon());
  return sum * static_cast<double>(in.size()) * epsilon;
}

// Compares the results of f on blocks of `shape`, for the devices of this process, with `wanted`:
// eagerly, and under jit until it is replayed. `bound`: the largest error on GPUs.
template <class T, class F>
void expect_blocks(const Grid& grid, const Blocks<T>& in, Shape shape, F f,
                   const std::function<std::vector<T>(std::size_t)>& wanted, double bound = 0) {
  std::vector<T> flat;
  for (const auto& block : in) flat.insert(flat.end(), block.begin(), block.end());
  Shape whole = shape;
  whole[0] *= device_count();
  Shape global;
  for (std::size_t d = 0; d < shape.size(); ++d) global.push_back(d == 0 ? whole[0] : shape[d]);
  const Array x = device_put(array<T>(flat, global), NamedSharding(grid.mesh, P(grid.all)));
  const auto body = [&](Array b) {
    Array y = f(b);
    std::vector<std::string> missing;
    for (const std::string& name : grid.all) {
      const std::vector<std::string> has = y.vma();
      if (std::find(has.begin(), has.end(), name) == has.end()) missing.push_back(name);
    }
    return missing.empty() ? y : pbroadcast(y, Axes(missing));
  };
  const auto mapped = shard_map(body, grid.mesh, {P(grid.all)}, P(grid.all));
  const auto fast = jit(mapped);
  for (int round = 0; round < 5; ++round) {
    const Array y = round == 0 ? mapped(x) : fast(x);
    for (const Shard& shard : y.addressable_shards()) {
      const auto& placed = grid.mesh.devices().values();
      const auto position = static_cast<std::size_t>(
          std::find(placed.begin(), placed.end(), shard.device) - placed.begin());
      const std::vector<T> got = shard.data.template to_vector<T>(), want = wanted(position);
      ASSERT_EQ(got.size(), want.size());
      if (bound > 0 && on_gpus()) {
        for (std::size_t e = 0; e < got.size(); ++e)
          ASSERT_NEAR(static_cast<double>(got[e]), static_cast<double>(want[e]), bound)
              << "round " << round << ", position " << position;
        continue;
      }
      ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(T)), 0)
          << "round " << round << ", position " << position;
    }
  }
}

template <class T>
std::vector<T> combined(const Blocks<T>& in, std::vector<std::size_t> members,
                        const std::function<T(T, T)>& op) {
  std::sort(members.begin(), members.end());  // mesh order
  std::vector<T> out(in[0].size());
  for (std::size_t e = 0; e < out.size(); ++e) {
    std::vector<T> v;
    for (std::size_t m : members) v.push_back(in[m][e]);
    out[e] = tree<T>(v, op);
  }
  return out;
}

}  // namespace shmap
