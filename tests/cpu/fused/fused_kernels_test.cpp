// Fused programs against the same operations one by one, to the last bit: random programs over all
// dtypes and kinds, in parts, in the memory of an operand, and past the caches.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/fused_check.h"

namespace shmap {
namespace {

using testing::check_fused_case;
using testing::random_fused_case;

TEST(FusedKernels, RandomProgramsGiveWhatTheirOperationsGive) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> spaces = {
      {0, 5},    {5, 0},    {1, 1},     {1, 7},    {7, 1},     {50, 2},   {60, 4},
      {33, 16},  {3, 5},    {13, 17},   {64, 64},  {97, 31},   {40, 96},  {9, 200},
      {300, 3},  {5, 1000}, {2, 2049},  {3, 4099}, {1, 10007}, {2, 8192}, {120, 20},
      {360, 47}, {96, 48},  {180, 130}, {48, 300}, {12, 3000}};
  const std::vector<std::vector<DType>> dtypes = {{f32, f32, bool_},
                                                  {f32, f64, i32},
                                                  {bf16, f32},
                                                  {f16, f32, bool_},
                                                  {bf16, bool_},
                                                  {bf16, f64, i32},
                                                  {bf16, f16, u8},
                                                  {i32, i64, bool_},
                                                  {u8, i16, f32},
                                                  {f64, i8, u64},
                                                  {f32}};
  std::uint64_t seed = 1;
  for (const auto& [rows, cols] : spaces) {
    for (const auto& types : dtypes) {
      for (const int ops : {2, 6, 14}) {
        check_fused_case(random_fused_case(seed++, {rows, cols, types, ops}));
        if (HasFailure()) return;
      }
    }
  }
}

TEST(FusedKernels, LargePrograms) {
  std::uint64_t seed = 5000;
  for (const auto& [rows, cols] :
       {std::pair{600, 1024}, std::pair{1, 700001}, std::pair{12, 65536}, std::pair{70001, 8}}) {
    for (const int ops : {5, 10}) {
      check_fused_case(random_fused_case(seed++, {rows, cols, {f32, f32, bool_}, ops}));
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace shmap
