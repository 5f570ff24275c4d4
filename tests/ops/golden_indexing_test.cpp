// shmap-test: devices
// Indexed reading, functional updates, slices along one dim, diagonals and norms against JAX's
// values: eagerly, under jit and of sharded arrays.
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "shmap/shmap.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using Arrays = std::vector<Array>;
using Program = std::function<Arrays(const testing::GoldenCase&, Arrays)>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Arrays grads(Array (*f)(Array, Array, Array), const Arrays& x) {
  const auto [a, b] = grad<0, 1>(f)(x[0], x[1], x.size() > 2 ? x[2] : Array(0));
  return {a, b};
}

std::map<std::string, Program> programs() {
  std::map<std::string, Program> all;
  const auto add = [&](const char* name, std::function<Array(Arrays)> f) {
    all[name] = [f](const testing::GoldenCase&, Arrays x) { return Arrays{f(std::move(x))}; };
  };
  add("ellipsis_last", [](Arrays x) { return x[0][{ellipsis, 1}]; });
  add("ellipsis_first", [](Arrays x) { return x[0][{1, ellipsis}]; });
  add("ellipsis_between", [](Arrays x) { return x[0][{1, ellipsis, range(2, Range::kEnd)}]; });
  add("ellipsis_none", [](Arrays x) { return x[0][{0, 1, 2, ellipsis}]; });
  add("ellipsis_new", [](Arrays x) { return x[0][{none, ellipsis, none, 0}]; });
  add("ellipsis_array", [](Arrays x) { return x[0][{ellipsis, x[1]}]; });

  add("set_int", [](Arrays x) { return x[0].at(1).set(9); });
  add("set_box", [](Arrays x) { return x[0].at({range(1, 3), range(-2, Range::kEnd)}).set(x[1]); });
  add("set_all", [](Arrays x) { return x[0].at(ellipsis).set(2); });
  add("set_row", [](Arrays x) { return x[0].at({2, range()}).set(x[1]); });
  add("set_steps", [](Arrays x) {
    return x[0].at({range(0, Range::kEnd, 2), range(-1, -9, -1)}).set(x[1]);
  });
  add("set_back", [](Arrays x) { return x[0].at(range(3, 0, -1)).set(x[1]); });
  add("set_new", [](Arrays x) { return x[0].at({range(), none, 1}).set(x[1]); });
  add("set_last", [](Arrays x) { return x[0].at({ellipsis, 0}).set(x[1]); });
  add("set_rows", [](Arrays x) { return x[0].at(x[1]).set(x[2]); });
  add("set_pairs", [](Arrays x) { return x[0].at({x[1], x[2]}).set(x[3]); });
  add("set_apart", [](Arrays x) { return x[0].at({x[1], range(), 1}).set(x[2]); });
  add("set_middle", [](Arrays x) { return x[0].at({range(), x[1], range(1, 3)}).set(x[2]); });
  add("set_mixed", [](Arrays x) { return x[0].at({1, x[1], range(0, Range::kEnd, 3)}).set(x[2]); });
  add("set_empty", [](Arrays x) { return x[0].at(range(2, 2)).set(7); });
  add("set_ints", [](Arrays x) { return x[0].at(x[1]).set(-1); });
  add("set_bools", [](Arrays x) { return x[0].at(x[1]).set(true); });
  add("set_traced", [](Arrays x) { return x[0].at({x[1], range(1, Range::kEnd)}).set(5); });
  add("set_outside", [](Arrays x) { return x[0].at(x[1]).set(5); });
  add("add_int", [](Arrays x) { return x[0].at({1, 2}).add(9); });
  add("add_rows", [](Arrays x) { return x[0].at(x[1]).add(x[2]); });
  add("add_outside", [](Arrays x) { return x[0].at({range(), x[1]}).add(5); });
  add("mul_box", [](Arrays x) { return x[0].at({range(0, 2), 1}).mul(3); });
  add("mul_rows", [](Arrays x) { return x[0].at(x[1]).mul(x[2]); });
  add("min_rows", [](Arrays x) { return x[0].at(x[1]).min(x[2]); });
  add("max_rows", [](Arrays x) { return x[0].at(x[1]).max(x[2]); });
  add("max_box", [](Arrays x) { return x[0].at(range(1, Range::kEnd)).max(0); });
  add("max_ints", [](Arrays x) { return x[0].at(x[1]).max(x[2]); });
  add("get_rows", [](Arrays x) { return x[0].at({x[1], 1}).get(); });

  constexpr auto clip = GatherScatterMode::clip, drop = GatherScatterMode::fill_or_drop;
  add("subtract_rows", [](Arrays x) { return x[0].at(x[1]).subtract(x[2]); });
  add("subtract_box", [](Arrays x) { return x[0].at({range(1, 3), 0}).subtract(x[1]); });
  add("multiply_rows", [](Arrays x) { return x[0].at(x[1]).multiply(x[2]); });
  add("divide_rows", [](Arrays x) { return x[0].at(x[1]).divide(x[2]); });
  add("divide_box", [](Arrays x) {
    return x[0].at({range(1, Range::kEnd), range(0, 2)}).divide(x[1]);
  });
  add("divide_steps", [](Arrays x) { return x[0].at({range(0, Range::kEnd, 2), 1}).divide(3); });
  add("divide_ints", [](Arrays x) { return x[0].at(x[1]).divide(x[2]); });
  add("divide_ints_box", [](Arrays x) { return x[0].at(range(1, 3)).divide(2); });
  add("power_rows", [](Arrays x) { return x[0].at(x[1]).power(x[2]); });
  add("power_box", [](Arrays x) { return x[0].at({range(1, Range::kEnd), 0}).power(3); });
  add("power_ints", [](Arrays x) { return x[0].at(x[1]).power(2); });
  add("apply_box", [](Arrays x) {
    return x[0].at({range(1, 3), 1}).apply([](Array v) { return v * v + 1; });
  });
  add("apply_rows",
      [](Arrays x) { return x[0].at(x[1]).apply([](Array v) { return 2 * v + 1; }); });
  add("apply_often",
      [](Arrays x) { return x[0].at(x[1]).apply([](Array v) { return v * 3 - 1; }); });
  add("apply_outside", [](Arrays x) {
    return x[0].at({range(), x[1]}).apply([](Array v) { return v - 7; });
  });
  add("apply_clip",
      [](Arrays x) { return x[0].at(x[1]).apply([](Array v) { return square(v); }, clip); });
  add("apply_scalar", [](Arrays x) { return x[0].at(x[1]).apply([](Array v) { return -v; }); });
  add("set_clip", [](Arrays x) { return x[0].at({x[1], 2}).set(5, clip); });
  add("add_clip", [](Arrays x) { return x[0].at(x[1]).add(x[2], clip); });
  add("subtract_clip", [](Arrays x) { return x[0].at(x[1]).subtract(x[2], clip); });
  add("mul_clip", [](Arrays x) { return x[0].at(x[1]).mul(x[2], clip); });
  add("divide_clip", [](Arrays x) { return x[0].at(x[1]).divide(x[2], clip); });
  add("max_clip", [](Arrays x) { return x[0].at(x[1]).max(1, clip); });
  add("divide_drop", [](Arrays x) { return x[0].at(x[1]).divide(2, drop); });
  add("power_drop", [](Arrays x) { return x[0].at(x[1]).power(2, drop); });
  add("get_clip", [](Arrays x) { return x[0].at(x[1]).get(clip); });
  add("get_fill", [](Arrays x) { return x[0].at({ellipsis, x[1]}).get(drop); });
  add("get_fill_ints", [](Arrays x) { return x[0].at(x[1]).get(drop); });
  add("get_fill_value", [](Arrays x) {
    return x[0].at({x[1], range(1, Range::kEnd), x[2]}).get(drop, -1);
  });
  add("get_fill_scalar", [](Arrays x) { return x[0].at({x[1], 1}).get(drop, 7); });

  all["grad_divide"] = [](const testing::GoldenCase&, Arrays x) {
    return grads(
        [](Array a, Array y, Array) {
          const auto rows = a.at(array<std::int32_t>({2, 0}, {2}));
          return sum(square(rows.divide(y)) + pow(rows.subtract(y), 3)) +
                 sum(a.at(range(1, 3)).divide(y));
        },
        x);
  };
  all["grad_power"] = [](const testing::GoldenCase&, Arrays x) {
    return grads(
        [](Array a, Array y, Array) {
          return sum(a.at(array<std::int32_t>({2, 0}, {2})).power(y) * a);
        },
        x);
  };
  all["grad_modes"] = [](const testing::GoldenCase&, Arrays x) {
    return grads(
        [](Array a, Array y, Array) {
          const auto rows = a.at(array<std::int32_t>({5, -1, 2}, {3}));
          return sum(rows.get(drop, 3.f) * y[0] * rows.get()) + sum(square(rows.add(y[1], clip)));
        },
        x);
  };
  add("vmap_apply", [](Arrays x) {
    return vmap([](Array row, Array i) { return row.at(i).apply([](Array v) { return -v; }); })(
        x[0], x[1]);
  });
  all["grad_set"] = [](const testing::GoldenCase&, Arrays x) {
    return grads(
        [](Array a, Array y, Array i) {
          const Array cubes = pow(a.at({range(1, Range::kEnd), 0}).add(y[{0, 0}]), 3);
          return sum(square(a.at(i).set(y))) + sum(cubes);
        },
        x);
  };
  all["grad_mul"] = [](const testing::GoldenCase&, Arrays x) {
    return grads(
        [](Array a, Array y, Array) {
          const Array product = a.at(array<std::int32_t>({2, 0}, {2})).mul(y);
          return sum(square(product)) + sum(square(a.at(range(0, Range::kEnd, 2)).max(y)));
        },
        x);
  };
  add("vmap_add", [](Arrays x) {
    return vmap([](Array row, Array i) { return row.at(i).add(1); })(x[0], x[1]);
  });

  add("slice_in_dim", [](Arrays x) { return slice_in_dim(x[0], 1, -1, 2, 2); });
  add("dynamic_in_dim", [](Arrays x) { return dynamic_slice_in_dim(x[0], x[1], 2, 1); });
  add("update_in_dim", [](Arrays x) { return dynamic_update_slice_in_dim(x[0], x[1], x[2], -1); });
  add("index_in_dim", [](Arrays x) { return index_in_dim(x[0], -1, 1); });
  add("index_in_dim_squeezed", [](Arrays x) { return index_in_dim(x[0], 1, -1, false); });
  for (const char* name : {"update_index_inside", "update_index_from_end", "update_index_clamped"})
    add(name, [](Arrays x) { return dynamic_update_index_in_dim(x[0], x[1], x[2], -2); });
  add("update_index_of_rank",
      [](Arrays x) { return dynamic_update_index_in_dim(x[0], x[1], x[2], 1); });
  add("update_index_scalar",
      [](Arrays x) { return dynamic_update_index_in_dim(x[0], x[1], x[2]); });
  all["grad_index_in_dim"] = [](const testing::GoldenCase&, Arrays x) {
    return grads(
        [](Array a, Array y, Array i) {
          const Array cubes = pow(index_in_dim(a, -1, 1, false), 3);
          return sum(square(dynamic_update_index_in_dim(a, y, i))) + sum(cubes);
        },
        x);
  };
  add("vmap_index_in_dim", [](Arrays x) {
    return vmap([](Array row, Array y, Array i) {
      return dynamic_update_index_in_dim(row, y, i) + index_in_dim(row, 2);
    })(x[0], x[1], x[2]);
  });
  for (const char* k : {"minus2", "0", "1"}) {
    const auto with_k = [&](const std::string& name, std::function<Array(Array, int)> f) {
      all[name + k] = [f](const testing::GoldenCase& c, Arrays x) {
        return Arrays{f(x[0], static_cast<int>(c.params.integer("k")))};
      };
    };
    with_k("tril_", [](Array x, int d) { return tril(x, d); });
    with_k("triu_", [](Array x, int d) { return triu(x, d); });
    with_k("diag_", [](Array x, int d) { return diag(x, d); });
    with_k("diag_of_vector_", [](Array x, int d) { return diag(x, d); });
    with_k("trace_", [](Array x, int d) { return trace(x, d); });
  }
  add("diagonal", [](Arrays x) { return diagonal(x[0], 1, 2, 0); });
  add("trace_of_cube", [](Arrays x) { return trace(x[0], 0, 1, 2); });

  add("norm", [](Arrays x) { return linalg::norm(x[0]); });
  add("norm_axis", [](Arrays x) { return linalg::norm(x[0], {.axis = 1, .keepdims = true}); });
  add("norm_matrix", [](Arrays x) { return linalg::norm(x[0], {.axis = Dims{0, 2}}); });
  const std::pair<const char*, double> orders[] = {
      {"inf", kInfinity}, {"minus_inf", -kInfinity}, {"one", 1}, {"minus_one", -1}};
  for (const auto& [name, order] : orders) {
    const double ord = order;
    all[std::string("norm_") + name] = [ord](const testing::GoldenCase&, Arrays x) {
      return Arrays{linalg::norm(x[0], ord)};
    };
    all[std::string("norm_matrices_") + name] = [ord](const testing::GoldenCase&, Arrays x) {
      return Arrays{linalg::norm(x[0], {.ord = ord, .axis = Dims{2, 1}})};
    };
  }
  add("norm_zero", [](Arrays x) { return linalg::norm(x[0], 0); });
  add("norm_three", [](Arrays x) { return linalg::norm(x[0], 3); });
  add("norm_ints", [](Arrays x) { return linalg::norm(x[0]); });
  return all;
}

Arrays run(const testing::GoldenCase& c, const Arrays& in) {
  static const auto all = programs();
  return all.at(c.name)(c, in);
}

TEST(GoldenIndexing, PlainArrays) { testing::expect_golden("indexing", run); }

TEST(GoldenIndexing, OfShardedArrays) {
  testing::expect_golden("indexing", run, testing::split_over_mesh, test::Communication::no_more);
}

}  // namespace
}  // namespace shmap
