// Derivatives at ties, zeros, ends of domains and infinities, and of composites, against JAX's.
#include <gtest/gtest.h>

#include <map>

#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/scan.h"
#include "shmap/shmap.h"
#include "tests/support/golden_array.h"
#include "tests/support/numeric_rules.h"

namespace shmap {
namespace {

using testing::ArrayFn;
using testing::Arrays;
using testing::expect_golden;
using testing::GoldenCase;

const std::map<std::string, const Primitive*>& elementwise() {
  static const std::map<std::string, const Primitive*> ops = [] {
    std::map<std::string, const Primitive*> all;
    for (const Primitive* p :
         {&neg_p,   &abs_p,      &sign_p,  &square_p,  &floor_p, &round_p, &exp_p,
          &expm1_p, &log_p,      &log1p_p, &sin_p,     &cos_p,   &tan_p,   &tanh_p,
          &asin_p,  &acos_p,     &atan_p,  &sinh_p,    &cosh_p,  &sqrt_p,  &rsqrt_p,
          &cbrt_p,  &logistic_p, &erf_p,   &erf_inv_p, &add_p,   &sub_p,   &mul_p,
          &div_p,   &max_p,      &min_p,   &atan2_p,   &rem_p,   &pow_p,   &clamp_p})
      all[p->name] = p;
    return all;
  }();
  return ops;
}

const std::map<std::string, Array (*)(const Array&)>& composites() {
  static const std::map<std::string, Array (*)(const Array&)> ops = {
      {"clip", [](const Array& x) { return clip(x, -1, 1); }},
      {"relu", [](const Array& x) { return relu(x); }},
      {"softmax", [](const Array& x) { return softmax(x); }},
      {"log_softmax", [](const Array& x) { return log_softmax(x); }},
      {"logsumexp", [](const Array& x) { return logsumexp(x, -1); }},
      {"mean", [](const Array& x) { return mean(x, -1); }},
      {"var", [](const Array& x) { return var(x, -1); }},
      {"gelu", [](const Array& x) { return gelu(x); }},
      {"gelu_erf", [](const Array& x) { return gelu(x, false); }},
      {"silu", [](const Array& x) { return silu(x); }},
  };
  return ops;
}

Array call(const GoldenCase& c, const Arrays& in) {
  const std::string op = c.params.text("op");
  if (const auto it = elementwise().find(op); it != elementwise().end()) {
    Arrays operands = in;
    return bind_all(*it->second, operands, no_params, {})[0];
  }
  if (const auto it = composites().find(op); it != composites().end()) return it->second(in[0]);
  if (op == "integer_pow") return pow(in[0], c.params.integer("n"));
  if (op == "sort") return sort(in[0], static_cast<int>(c.params.integer("axis")));
  if (op == "top_k") return top_k(in[0], static_cast<int>(c.params.integer("k"))).first;
  for (const Primitive* p : {&reduce_max_p, &reduce_min_p, &reduce_prod_p})
    if (op == p->name) return bind(*p, in[0], ReduceParams(Dims(c.params.ints("axes"))), {});
  for (const Primitive* p : {&cumsum_p, &cumprod_p, &cummax_p, &cummin_p, &cumlogsumexp_p})
    if (op == p->name) {
      const ScanParams params(c.params.integer("axis"), c.params.flag("reverse"));
      return bind(*p, in[0], params, {});
    }
  throw ValueError("no function is called " + op);
}

// Inputs: the operands, a tangent of each, the result's cotangent.
Arrays derivatives(const GoldenCase& c, const Arrays& in) {
  const auto n = static_cast<std::ptrdiff_t>(c.params.integer("operands"));
  const ArrayFn f = [&c](const Arrays& operands) { return Arrays{call(c, operands)}; };
  const Arrays at(in.begin(), in.begin() + n), v(in.begin() + n, in.begin() + 2 * n);
  Arrays out = testing::jvp_values(f, at, v);
  for (Array& x : testing::vjp_values(f, at, {in.back()})) out.push_back(std::move(x));
  return out;
}

TEST(GoldenDerivatives, PlainArrays) { expect_golden("derivatives", derivatives); }

TEST(GoldenDerivatives, SplitOverAMesh) {
  expect_golden("derivatives", derivatives, testing::split_over_mesh, test::Communication::no_more);
}

}  // namespace
}  // namespace shmap
