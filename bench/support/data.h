// Random data for benchmarks, and comparison of results with expected values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shmap::bench {

// n floats in [-1, 1), the same for the same seed. Never zeros, which would run faster.
std::vector<float> random_floats(std::size_t n, std::uint64_t seed);

// Returns "", or how the values differ: in size, or the largest absolute difference above
// `tolerance` with its position. NaN is a difference.
std::string difference(std::span<const float> got, std::span<const double> want, double tolerance);
std::string difference(std::span<const float> got, std::span<const float> want);  // exact

// Compares 16 rows of C = A B, A of m × k, B of k × n, row-major, with products in double.
std::string product_difference(std::span<const float> a, std::span<const float> b,
                               std::span<const float> c, std::size_t m, std::size_t k,
                               std::size_t n, double tolerance);

// Rounds every value to the nearest bfloat16 (ties to even): the values of a bf16 operand, as
// floats.
std::vector<float> rounded_to_bf16(std::vector<float> values);

}  // namespace shmap::bench
