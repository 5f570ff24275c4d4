#include "core/base/op_domain.h"

#include <gtest/gtest.h>

#include "shmap/error.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

TEST(CheckKernels, NamesTheOperandsWithoutAKernel) {
  check_kernels("op", Domain::floats, [](DType t) { return t != i32; });
  test::expect_error<Error>(
      [] { check_kernels("op", Domain::integers, [](DType t) { return t != i32; }); },
      {"op: ", "operands of i32"});
}

TEST(CheckKernels, NamesTheOperandsAndResultsWithoutAKernel) {
  const auto all_but_one = [](DType in, DType out) { return !(in == bf16 && out == u8); };
  check_kernels("op", Domain::integers, dtypes_of(Domain::plain), all_but_one);
  check_kernels("op", Domain::floats, {i32, i64}, all_but_one);
  test::expect_error<Error>(
      [&] { check_kernels("op", Domain::floats, dtypes_of(Domain::plain), all_but_one); },
      {"op: ", "operands of bf16", "results of u8"});
}

}  // namespace
}  // namespace shmap
