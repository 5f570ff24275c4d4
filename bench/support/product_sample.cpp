#include "bench/support/product_sample.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "bench/support/data.h"

namespace shmap::bench {

std::vector<bfloat16> random_bf16(std::size_t n, std::uint64_t seed) {
  std::vector<bfloat16> values(n);
  std::uint64_t state = seed;
  for (std::size_t at = 0; at < n; at += 4) {  // splitmix64, four values from each number
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    for (std::size_t k = at; k < std::min(at + 4, n); ++k, z >>= 16)
      values[k].bits = float_to_bfloat_bits(
          static_cast<float>(static_cast<std::int16_t>(static_cast<std::uint16_t>(z))) * 0x1p-15f);
  }
  return values;
}

ProductSample::ProductSample(std::span<const bfloat16> a, std::span<const bfloat16> b,
                             std::int64_t m, std::int64_t k, std::int64_t n)
    // The values have a standard deviation of sqrt(k) / 3 and are rounded to 8 bits.
    : tolerance_(std::sqrt(static_cast<double>(k)) / 64) {
  for (std::int64_t part = 0; part < 4; ++part)
    if (const std::int64_t row = part * (m - 1) / 3; rows_.empty() || rows_.back() != row)
      rows_.push_back(row);
  want_.assign(rows_.size(), std::vector<double>(static_cast<std::size_t>(n), 0.0));
  const auto columns = [&](std::int64_t from, std::int64_t to) {
    std::vector<float> values(static_cast<std::size_t>(to - from));
    for (std::int64_t l = 0; l < k; ++l) {
      for (std::int64_t j = from; j < to; ++j)
        values[static_cast<std::size_t>(j - from)] =
            bfloat_bits_to_float(b[static_cast<std::size_t>(l * n + j)].bits);
      for (std::size_t r = 0; r < rows_.size(); ++r) {
        const double factor =
            bfloat_bits_to_float(a[static_cast<std::size_t>(rows_[r] * k + l)].bits);
        double* const want = want_[r].data() + from;
        for (std::size_t j = 0; j < values.size(); ++j) want[j] += factor * values[j];
      }
    }
  };
  const std::int64_t threads = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  const std::int64_t width = std::max<std::int64_t>(256, (n + threads - 1) / threads);
  std::vector<std::thread> team;
  for (std::int64_t from = 0; from < n; from += width)
    team.emplace_back(columns, from, std::min(from + width, n));
  for (std::thread& thread : team) thread.join();
}

std::string ProductSample::difference(
    const std::function<std::vector<bfloat16>(std::int64_t)>& row) const {
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::vector<float> got;
    for (const bfloat16 value : row(rows_[r])) got.push_back(bfloat_bits_to_float(value.bits));
    const std::string fault = bench::difference(got, want_[r], tolerance_);
    if (!fault.empty()) return "row " + std::to_string(rows_[r]) + " of the product: " + fault;
  }
  return {};
}

}  // namespace shmap::bench
