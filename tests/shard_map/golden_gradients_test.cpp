// shmap-test: devices
// Gradients through shard_map against JAX's, with and without checked variance, by reverse and by
// forward mode; eagerly and under jit.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "shmap/shmap.h"
#include "tests/support/golden_array.h"
#include "tests/support/golden_mesh.h"

namespace shmap {
namespace {

using testing::GoldenCase;
using Arrays = std::vector<Array>;
using Body = std::function<Arrays(Arrays)>;

// C = A @ B by a ring: each step multiplies the block at hand while a neighbour sends the next.
Array ring_matmul(Array lhs, const Array& rhs) {
  const int n = axis_size("i");
  const std::int64_t rows = lhs.shape()[0];
  const Array index = axis_index("i");
  std::vector<std::pair<int, int>> left;
  for (int k = 0; k < n; ++k) left.emplace_back(k, (k + n - 1) % n);
  Array out = pbroadcast(zeros({n * rows, rhs.shape()[1]}, lhs.dtype()), "i");
  for (int step = 0; step < n; ++step) {
    const Array row = (index + step) % n * static_cast<int>(rows);
    out = dynamic_update_slice(std::move(out), matmul(lhs, rhs), {row, 0});
    if (step + 1 < n) lhs = ppermute(lhs, "i", left);
  }
  return out;
}

Array mlp(const Array& x, const Array& w0, const Array& b0, const Array& w1, const Array& b1) {
  return matmul(tanh(matmul(x, w0) + b0), w1) + b1;
}
Array squares(const Array& y, const Array& t) { return mean(sum(square(y - t), 1)); }

const std::map<std::string, Body>& bodies() {
  static const std::map<std::string, Body> table = {
      {"example1", [](Arrays a) -> Arrays { return {psum(sum(sin(a[0])), "i")}; }},
      {"example2", [](Arrays a) -> Arrays { return {psum(sum(sin(a[0])), "i") * a[1]}; }},
      {"example3", [](Arrays a) -> Arrays { return a; }},
      {"example4",
       [](Arrays a) -> Arrays { return {all_gather_invariant(sin(a[0]), "i", {.tiled = true})}; }},
      {"example5",
       [](Arrays a) -> Arrays { return {all_gather(a[0], "i", {.tiled = true}) * a[1]}; }},
      {"fan_out",
       [](Arrays a) -> Arrays { return {exp(a[0]) * (1. + astype(axis_index("i"), f64))}; }},
      {"data_parallel_mlp",
       [](Arrays a) -> Arrays {
         return {pmean(squares(mlp(a[0], a[2], a[3], a[4], a[5]), a[1]), "i")};
       }},
      {"data_and_model_parallel_mlp",
       [](Arrays a) -> Arrays {
         const Array hidden = tanh(matmul(a[0], a[2]) + a[3]);
         return {pmean(squares(psum(matmul(hidden, a[4]), "model") + a[5], a[1]), "data")};
       }},
      {"fully_sharded_mlp",
       [](Arrays a) -> Arrays {
         const Array hidden = tanh(matmul(a[0], all_gather(a[2], "i", {.tiled = true})));
         const Array y = matmul(hidden, all_gather(a[3], "i", {.axis = 1, .tiled = true}));
         return {pmean(squares(y, a[1]), "i")};
       }},
      {"sharded_over_both_axes",
       [](Arrays a) -> Arrays {
         const Array w = all_gather(a[1], "data", {.axis = 1, .tiled = true});
         return {psum(sum(sin(matmul(a[0], w)), 0), {"model", "data"})};
       }},
      {"collective_matmul", [](Arrays a) -> Arrays { return {tanh(ring_matmul(a[0], a[1]))}; }},
      {"matmul_reduce_scatter",
       [](Arrays a) -> Arrays {
         return {sin(
             psum_scatter(matmul(a[0], a[1]), "model", {.scatter_dimension = 1, .tiled = true}))};
       }},
      {"all_to_all",
       [](Arrays a) -> Arrays { return {exp(all_to_all(sin(a[0]), "i", 1, 0, {.tiled = true}))}; }},
      {"all_to_all_untiled",
       [](Arrays a) -> Arrays { return {sin(all_to_all(square(a[0]), "i", 1, 1))}; }},
      {"open_ring",
       [](Arrays a) -> Arrays {
         std::vector<std::pair<int, int>> right;
         for (int k = 0; k < 7; ++k) right.emplace_back(k, k + 1);
         return {a[0] * ppermute(sin(a[0]), "i", right)};
       }},
      {"residuals_of_every_kind",
       [](Arrays a) -> Arrays {
         const Array &w = a[0], &x = a[1];
         return {psum(sum(cos(w) * square(x)) * sin(sum(x)) * exp(.01 * psum(sum(x), "i")), "i")};
       }},
      {"two_results",
       [](Arrays a) -> Arrays {
         return {psum(a[0] * a[1], "data"), sin(all_gather(a[0], "data"))};
       }},
      {"in_body",
       [](Arrays a) -> Arrays {
         return {grad([&a](Array v) { return sum(sin(v) * a[1]); })(a[0])};
       }},
  };
  return table;
}

void check(const GoldenCase& c) {
  const Body& body = bodies().at(c.name.substr(0, c.name.find('/')));
  const bool checked = c.params.flag("check_vma");
  Arrays args;
  for (const auto& x : c.inputs) args.push_back(testing::to_array(x));
  const Specs out = testing::case_out_specs(c);
  const bool several = c.params.texts("out_specs").size() > 1;
  const auto mapped =
      shard_map([&](Arrays blocks) { return body(std::move(blocks)); }, testing::case_mesh(c),
                {testing::case_in_specs(c)}, several ? out : Specs(std::vector<Specs>{out}),
                {.check_vma = checked});
  const double atol = c.params.number("atol");
  const auto expect_equal = [&](const Arrays& got, const char* how) {
    ASSERT_EQ(got.size(), c.outputs.size());
    for (std::size_t k = 0; k < got.size(); ++k)
      EXPECT_EQ(testing::golden_diff(c.outputs[k], got[k], 0, atol), "") << how << ": output " << k;
  };
  if (c.name.rfind("in_body", 0) == 0) {
    expect_equal(mapped(args), "eagerly");
    expect_equal(jit(mapped)(args), "under jit");
    return;
  }
  const auto loss = [&](const Arrays& at) {
    Array total = 0.;
    std::int64_t first = 0;
    for (const Array& y : mapped(at)) {
      total = total + sum(reshape(y, {-1}) * cos(arange(y.size(), f64) + double(first)));
      first += y.size();
    }
    return total;
  };
  Arrays tangents;
  for (const Array& x : args)
    tangents.push_back(reshape(sin(arange(x.size(), f64) + 1.), x.shape()));
  const auto all = [&](const Arrays& at) {
    auto [value, gradient] = value_and_grad(loss)(at);
    Arrays out = {value};
    out.insert(out.end(), gradient.begin(), gradient.end());
    out.push_back(jvp(loss, std::tuple{at}, std::tuple{tangents}).second);
    return out;
  };
  expect_equal(all(args), "eagerly");
  const auto jitted = jit(all);
  for (int call = 0; call < 3; ++call) expect_equal(jitted(args), "under jit");
}

TEST(GoldenGradients, InBothModes) {
  std::set<std::string> seen;
  for (const GoldenCase& c : testing::load_golden("gradients")) {
    SCOPED_TRACE(c.name);
    seen.insert(c.name.substr(0, c.name.find('/')));
    try {
      check(c);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "threw: " << e.what();
    }
  }
  EXPECT_EQ(seen.size(), bodies().size());
}

}  // namespace
}  // namespace shmap
