#include "bench/support/data.h"

#include <bit>
#include <cmath>

namespace shmap::bench {
namespace {

std::string off(std::size_t at, double got, double want) {
  return "element " + std::to_string(at) + " is " + std::to_string(got) + ", wanted " +
         std::to_string(want);
}

}  // namespace

std::vector<float> random_floats(std::size_t n, std::uint64_t seed) {
  std::vector<float> values(n);
  std::uint64_t state = seed;
  for (float& value : values) {  // splitmix64
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    value = static_cast<float>(z >> 40) * 0x1p-23f - 1.0f;
  }
  return values;
}

std::string difference(std::span<const float> got, std::span<const double> want, double tolerance) {
  if (got.size() != want.size())
    return std::to_string(got.size()) + " elements, wanted " + std::to_string(want.size());
  for (std::size_t k = 0; k < got.size(); ++k)
    if (!(std::fabs(got[k] - want[k]) <= tolerance)) return off(k, got[k], want[k]);
  return {};
}

std::string difference(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size())
    return std::to_string(got.size()) + " elements, wanted " + std::to_string(want.size());
  for (std::size_t k = 0; k < got.size(); ++k)
    if (got[k] != want[k]) return off(k, got[k], want[k]);
  return {};
}

std::string product_difference(std::span<const float> a, std::span<const float> b,
                               std::span<const float> c, std::size_t m, std::size_t k,
                               std::size_t n, double tolerance) {
  if (c.size() != m * n) return std::to_string(c.size()) + " elements in the product";
  std::vector<double> want(n);
  for (std::size_t sample = 0; sample < 16; ++sample) {
    std::size_t i = sample * (m - 1) / 15;
    want.assign(n, 0.0);
    for (std::size_t l = 0; l < k; ++l) {
      double factor = a[i * k + l];
      const float* row = &b[l * n];
      for (std::size_t j = 0; j < n; ++j) want[j] += factor * row[j];
    }
    std::string fault = difference(c.subspan(i * n, n), want, tolerance);
    if (!fault.empty()) return "row " + std::to_string(i) + " of the product: " + fault;
  }
  return {};
}

std::vector<float> rounded_to_bf16(std::vector<float> values) {
  for (float& value : values) {
    std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    bits += 0x7fffu + ((bits >> 16) & 1u);
    value = std::bit_cast<float>(bits & 0xffff0000u);
  }
  return values;
}

}  // namespace shmap::bench
