// Products of random bfloat16 matrices, with a few rows computed in double. Row-major.
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

// Some rows of C = A B, computed by the constructor on all cores; A is m × k, B is k × n.
class ProductSample {
 public:
  ProductSample(std::span<const bfloat16> a, std::span<const bfloat16> b, std::int64_t m,
                std::int64_t k, std::int64_t n);

  // Returns "", or how C differs; `row` returns a row of C.
  std::string difference(const std::function<std::vector<bfloat16>(std::int64_t)>& row) const;

 private:
  std::vector<std::int64_t> rows_;
  std::vector<std::vector<double>> want_;
  double tolerance_;
};

}  // namespace shmap::bench
