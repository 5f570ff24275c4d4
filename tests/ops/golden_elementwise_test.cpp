// shmap-test: devices
// Elementwise functions and promotion against JAX's values: on plain arrays, and on arrays split
// over a mesh.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "shmap/ops.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using testing::expect_golden;
using testing::GoldenCase;
using testing::load_golden;

using Unary = Array (*)(Operand);
using Binary = Array (*)(Operand, Operand);

const std::map<std::string, Unary>& unary_ops() {
  static const std::map<std::string, Unary> ops = {
      {"abs", abs},
      {"negative", [](Operand x) { return -x.value; }},
      {"sign", sign},
      {"floor", floor},
      {"ceil", ceil},
      {"round", round},
      {"exp", exp},
      {"exp2", exp2},
      {"expm1", expm1},
      {"log", log},
      {"log1p", log1p},
      {"sin", sin},
      {"cos", cos},
      {"tan", tan},
      {"tanh", tanh},
      {"asin", asin},
      {"acos", acos},
      {"atan", atan},
      {"sinh", sinh},
      {"cosh", cosh},
      {"asinh", asinh},
      {"acosh", acosh},
      {"atanh", atanh},
      {"sqrt", sqrt},
      {"rsqrt", rsqrt},
      {"cbrt", cbrt},
      {"logistic", logistic},
      {"erf", erf},
      {"erfc", erfc},
      {"erf_inv", erf_inv},
      {"square", square},
      {"reciprocal", reciprocal},
      {"isnan", isnan},
      {"isinf", isinf},
      {"isfinite", isfinite},
      {"logical_not", logical_not},
      {"bitwise_not", bitwise_not},
      {"population_count", population_count},
      {"clz", clz},
  };
  return ops;
}

const std::map<std::string, Binary>& binary_ops() {
  static const std::map<std::string, Binary> ops = {
      {"add", [](Operand a, Operand b) { return a.value + b.value; }},
      {"subtract", [](Operand a, Operand b) { return a.value - b.value; }},
      {"multiply", [](Operand a, Operand b) { return a.value * b.value; }},
      {"divide", [](Operand a, Operand b) { return a.value / b.value; }},
      {"floor_divide", floor_divide},
      {"remainder", [](Operand a, Operand b) { return a.value % b.value; }},
      {"pow", pow},
      {"atan2", atan2},
      {"nextafter", nextafter},
      {"maximum", maximum},
      {"minimum", minimum},
      {"equal", [](Operand a, Operand b) { return a.value == b.value; }},
      {"not_equal", [](Operand a, Operand b) { return a.value != b.value; }},
      {"less", [](Operand a, Operand b) { return a.value < b.value; }},
      {"less_equal", [](Operand a, Operand b) { return a.value <= b.value; }},
      {"greater", [](Operand a, Operand b) { return a.value > b.value; }},
      {"greater_equal", [](Operand a, Operand b) { return a.value >= b.value; }},
      {"logical_and", logical_and},
      {"logical_or", logical_or},
      {"logical_xor", logical_xor},
      {"bitwise_and", bitwise_and},
      {"bitwise_or", bitwise_or},
      {"bitwise_xor", bitwise_xor},
      {"left_shift", left_shift},
      {"right_shift", right_shift},
  };
  return ops;
}

std::vector<Array> run(const GoldenCase& c, const std::vector<Array>& in) {
  const std::string op = c.params.text("op");
  if (op == "clip") return {clip(in.at(0), in.at(1), in.at(2))};
  if (in.size() == 1) return {unary_ops().at(op)(in[0])};
  return {binary_ops().at(op)(in.at(0), in.at(1))};
}

TEST(GoldenElementwise, PlainArrays) { expect_golden("ops_elementwise", run); }

TEST(GoldenElementwise, SplitOverAMesh) {
  expect_golden("ops_elementwise", run, testing::split_over_mesh);
}

// "i32": an array; "i32*": a C++ scalar of that type.
Array operand(const std::string& name) {
  if (name == "i32*") return Array(std::int32_t{1});
  if (name == "i64*") return Array(std::int64_t{1});
  if (name == "f32*") return Array(1.0f);
  if (name == "f64*") return Array(1.0);
  for (int t = 0; t < kDTypeCount; ++t)
    if (name == short_name(static_cast<DType>(t))) return ones({1}, static_cast<DType>(t));
  throw ValueError("no operand is called " + name);
}

using AnyUnary = Array (*)(const Array&);
const std::map<std::string, AnyUnary>& reductions() {
  static const std::map<std::string, AnyUnary> ops = {
      {"sum", [](const Array& x) { return sum(x); }},
      {"prod", [](const Array& x) { return prod(x); }},
      {"max", [](const Array& x) { return max(x); }},
      {"min", [](const Array& x) { return min(x); }},
      {"mean", [](const Array& x) { return mean(x); }},
      {"var", [](const Array& x) { return var(x); }},
      {"any", [](const Array& x) { return any(x); }},
      {"all", [](const Array& x) { return all(x); }},
      {"argmax", [](const Array& x) { return argmax(x); }},
      {"argmin", [](const Array& x) { return argmin(x); }},
      {"argsort", [](const Array& x) { return argsort(x); }},
      {"sort", [](const Array& x) { return sort(x); }},
      {"cumsum", [](const Array& x) { return cumsum(x, 0); }},
      {"cumprod", [](const Array& x) { return cumprod(x, 0); }},
      {"logsumexp", [](const Array& x) { return logsumexp(x); }},
      {"softmax", [](const Array& x) { return softmax(x); }},
  };
  return ops;
}

// "op operands -> dtype", with * where the result is weak.
void check_row(const std::string& row) {
  std::istringstream words(row);
  std::string op, word;
  words >> op;
  std::vector<Array> operands;
  while (words >> word && word != "->") operands.push_back(operand(word));
  words >> word;
  Array out;
  if (operands.size() == 2) {
    out = binary_ops().at(op)(operands[0], operands[1]);
  } else if (unary_ops().contains(op)) {
    out = unary_ops().at(op)(operands.at(0));
  } else {
    out = reductions().at(op)(operands.at(0));
  }
  EXPECT_EQ(std::string(short_name(out.dtype())) + (out.type().weak() ? "*" : ""), word) << row;
}

TEST(GoldenPromotion, ResultTypes) {
  for (const GoldenCase& c : load_golden("promotion")) {
    for (const std::string& row : c.params.texts("rows")) {
      SCOPED_TRACE(row);
      EXPECT_NO_THROW(check_row(row));
    }
  }
}

}  // namespace
}  // namespace shmap
