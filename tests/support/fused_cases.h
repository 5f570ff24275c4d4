// Random fused programs, each with the results of its operations one by one, to test the fused
// kernels of backends.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/runtime/fused_program.h"
#include "shmap/array.h"

namespace shmap::testing {

using Bytes = std::vector<std::byte>;
Bytes bytes_of(const Array& x);

// Returns "", or how two arrays differ; all NaNs are equal.
std::string difference(DType dtype, const Bytes& got, const Bytes& want);

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  int below(std::size_t n) { return static_cast<int>(engine_() % n); }
  bool chance(double p) { return std::uniform_real_distribution<>()(engine_) < p; }
  template <class List>
  auto one_of(const List& list) {
    return *(std::begin(list) + below(std::size(list)));
  }
  // n values of a dtype: small numbers, for floats now and then a special one.
  Array values(DType dtype, const Shape& shape);

 private:
  std::mt19937_64 engine_;
};

// A program, and beside it the value that each of its results has where its operations run one by
// one, on the default devices.
struct FusedCase {
  std::shared_ptr<FusedProgram> program;
  std::vector<Array> operands;  // of the program's call
  std::vector<Array> results;   // what is wanted
};

struct FusedCaseOptions {
  std::int64_t rows = 1, cols = 1;
  std::vector<DType> dtypes;  // of operands and literals; repeated ones are likelier
  int ops = 4;
  // Whether programs have sums and products of floats, whose bits depend on the order of elements.
  bool sums_of_floats = true;
};
FusedCase random_fused_case(std::uint64_t seed, const FusedCaseOptions& options);

// Runs the program as the library does, with each operand in memory that nobody else holds, so that
// results may take it. Returns "", or which result differs from the wanted one.
std::string run_fused_case(const FusedCase& c);

}  // namespace shmap::testing
