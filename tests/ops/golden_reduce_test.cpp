// shmap-test: devices
// Reductions, scans, sorts, products and layers against JAX's values: on plain arrays, and on
// arrays split over a mesh.
#include <gtest/gtest.h>

#include <map>

#include "shmap/ops.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using testing::expect_golden;
using testing::GoldenCase;
using Arrays = std::vector<Array>;

using Whole = Array (*)(Operand);
using Along = Array (*)(Operand, Dims, bool);
struct Reduction {
  Whole whole;
  Along along;
};

const std::map<std::string, Reduction>& reductions() {
  static const std::map<std::string, Reduction> ops = {
      {"sum", {sum, sum}},
      {"prod", {prod, prod}},
      {"max", {max, max}},
      {"min", {min, min}},
      {"mean", {mean, mean}},
      {"var", {var, var}},
      {"any", {any, any}},
      {"all", {all, all}},
      {"argmax", {argmax, argmax}},
      {"argmin", {argmin, argmin}},
      {"logsumexp", {logsumexp, logsumexp}},
  };
  return ops;
}

Dims all_dims(const Array& x) {
  std::vector<int> out;
  for (int d = 0; d < x.ndim(); ++d) out.push_back(d);
  return Dims(out);
}

// One axis is given as an int, several as a list; argmax of a whole array takes no list.
Array reduce(const std::string& op, const GoldenCase& c, const Array& x) {
  const Reduction& r = reductions().at(op);
  const bool keepdims = c.params.flag_or("keepdims", false);
  if (!c.params.has("axes")) {
    if (!keepdims) return r.whole(x);
    if (op.substr(0, 3) == "arg") {
      return reshape(r.whole(x), Shape(std::vector<int>(static_cast<std::size_t>(x.ndim()), 1)));
    }
    return r.along(x, all_dims(x), true);
  }
  const auto axes = c.params.ints("axes");
  return r.along(x, axes.size() == 1 ? Dims(static_cast<int>(axes[0])) : Dims(axes), keepdims);
}

Arrays run_reduce(const GoldenCase& c, const Arrays& in) {
  const std::string op = c.params.text("op");
  const auto axis = [&] { return static_cast<int>(c.params.integer("axis")); };
  if (reductions().contains(op)) return {reduce(op, c, in[0])};
  if (op == "softmax") return {softmax(in[0], Dims(c.params.ints("axes")))};
  if (op == "log_softmax") return {log_softmax(in[0], Dims(c.params.ints("axes")))};
  if (op == "cumsum") return {cumsum(in[0], axis())};
  if (op == "cumprod") return {cumprod(in[0], axis())};
  if (op == "cummax") return {cummax(in[0], axis())};
  if (op == "sort") return {sort(in[0], axis())};
  if (op == "argsort") return {argsort(in[0], axis())};
  if (op == "top_k") {
    auto [values, indices] = top_k(in[0], static_cast<int>(c.params.integer("k")));
    return {values, indices};
  }
  throw ValueError("no function is called " + op);
}

TEST(GoldenReduce, PlainArrays) { expect_golden("ops_reduce", run_reduce); }

TEST(GoldenReduce, SplitOverAMesh) {
  expect_golden("ops_reduce", run_reduce, testing::split_over_mesh);
}

std::vector<int> narrow(const std::vector<std::int64_t>& list) {
  return std::vector<int>(list.begin(), list.end());
}

Arrays run_linalg(const GoldenCase& c, const Arrays& in) {
  const std::string op = c.params.text("op");
  const auto eps = [&](float otherwise) {
    return c.params.has("eps") ? static_cast<float>(c.params.number("eps")) : otherwise;
  };
  if (op == "matmul") return {matmul(in[0], in[1])};
  if (op == "dot") return {dot(in[0], in[1])};
  if (op == "outer") return {outer(in[0], in[1])};
  if (op == "einsum") {
    const std::string spec = c.params.text("spec");
    if (in.size() == 1) return {einsum(spec, in[0])};
    if (in.size() == 2) return {einsum(spec, in[0], in[1])};
    return {einsum(spec, in.at(0), in.at(1), in.at(2))};
  }
  if (op == "dot_general") {
    DotDimensionNumbers numbers;
    numbers.contracting = {narrow(c.params.ints("lhs_contracting")),
                           narrow(c.params.ints("rhs_contracting"))};
    numbers.batch = {narrow(c.params.ints("lhs_batch")), narrow(c.params.ints("rhs_batch"))};
    return {dot_general(in[0], in[1], numbers)};
  }
  if (op == "relu") return {relu(in[0])};
  if (op == "silu") return {silu(in[0])};
  if (op == "gelu") return {gelu(in[0], c.params.flag("approximate"))};
  if (op == "layer_norm") return {layer_norm(in[0], in[1], in[2], eps(1e-5f))};
  if (op == "rms_norm") return {rms_norm(in[0], in[1], eps(1e-6f))};
  throw ValueError("no function is called " + op);
}

TEST(GoldenLinalg, PlainArrays) { expect_golden("ops_linalg", run_linalg); }

TEST(GoldenLinalg, SplitOverAMesh) {
  expect_golden("ops_linalg", run_linalg, testing::split_over_mesh);
}

}  // namespace
}  // namespace shmap
