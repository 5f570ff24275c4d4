// Golden values as arrays of the library.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "shmap/array.h"
#include "tests/support/golden.h"
#include "tests/support/under_jit.h"

namespace shmap::testing {

Array to_array(const GoldenArray& x);

// golden_diff for an array's elements.
std::string golden_diff(const GoldenArray& want, const Array& got, int max_ulp, double atol = 0);

// Calls `run` with the inputs of every case of the topic, and compares the results with the case's
// outputs, with its tolerances (parameters ulp and atol). Reports a GoogleTest failure for each
// case that differs or throws, or that is not the same under jit. `place` is called on each input
// first. With the environment variable SHMAP_TEST_ULPS it prints how far each result is from its
// golden value.
using CaseRunner = std::function<std::vector<Array>(const GoldenCase&, const std::vector<Array>&)>;
using Placer = std::function<Array(const Array&)>;
void expect_golden(const std::string& topic, const CaseRunner& run, const Placer& place = {},
                   test::Communication communication = test::Communication::same);

// x split over the devices of a mesh of two axes, along its dims whose extents allow it.
Array split_over_mesh(const Array& x);

}  // namespace shmap::testing
