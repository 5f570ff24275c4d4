// Gradients of scalar functions of several f64 arrays: all ways to compute them must agree.
#pragma once
#include <functional>
#include <vector>

#include "shmap/array.h"

namespace shmap::test {

using Values = std::vector<Array>;
using Loss = std::function<Array(const Values&)>;

// Fails if an element differs by more than relative * (1 + the greatest of `want`).
void expect_near(const char* what, const Values& got, const Values& want, double relative);

// `typed` and `legacy` are one function with and without checked variance. At `at`: their values
// and gradients are the same, eagerly and under jit, and agree with jvp and with central
// differences along `v`. legacy_jit: checks the gradient of `legacy` under jit too. second_order:
// also checks the derivative of the gradient along `v`.
void check_gradient(const Loss& typed, const Loss& legacy, const Values& at, const Values& v,
                    bool legacy_jit, bool second_order);

}  // namespace shmap::test
