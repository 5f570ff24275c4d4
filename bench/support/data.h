// Random data for benchmarks, and comparison with what was expected.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shmap::bench {

// n floats in [-1, 1), the same for the same seed. Never zeros: they run faster.
std::vector<float> random_floats(std::size_t n, std::uint64_t seed);

// Empty, or how the values differ: sizes, or the largest absolute difference above `tolerance`
// with its position. NaN is a difference.
std::string difference(std::span<const float> got, std::span<const double> want, double tolerance);
std::string difference(std::span<const float> got, std::span<const float> want);  // exact

// Compares 16 rows of C = A B, A of m × k, B of k × n, row-major, with products in double.
std::string product_difference(std::span<const float> a, std::span<const float> b,
                               std::span<const float> c, std::size_t m, std::size_t k,
                               std::size_t n, double tolerance);

// The nearest bfloat16 of every value (ties to even), as floats: what a bf16 operand holds.
std::vector<float> rounded_to_bf16(std::vector<float> values);

}  // namespace shmap::bench
