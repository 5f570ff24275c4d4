// Products of random bfloat16 matrices, of which a few rows are known in double. Row-major.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shmap/half.h"

namespace shmap::bench {

// n values in [-1, 1), the same for the same seed.
std::vector<bfloat16> random_bf16(std::size_t n, std::uint64_t seed);

// Rows of C = A B, computed when it is made, by all cores: A of m × k, B of k × n.
class ProductSample {
 public:
  ProductSample(std::span<const bfloat16> a, std::span<const bfloat16> b, std::int64_t m,
                std::int64_t k, std::int64_t n);

  // Empty, or how C differs; `row` gives a row of it.
  std::string difference(const std::function<std::vector<bfloat16>(std::int64_t)>& row) const;

 private:
  std::vector<std::int64_t> rows_;
  std::vector<std::vector<double>> want_;
  double tolerance_;
};

}  // namespace shmap::bench
