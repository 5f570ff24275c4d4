// shmap-test: devices
// Loops and branches against JAX's values: eagerly, staged and under jit.
#include <gtest/gtest.h>

#include <map>

#include "shmap/shmap.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using Arrays = std::vector<Array>;
using Program = std::function<Arrays(Arrays)>;

std::map<std::string, Program> programs() {
  const auto add_index = [](Array i, Array a) { return a + i; };
  std::map<std::string, Program> all;
  all["fori_horner"] = [](Arrays x) {
    return Arrays{fori_loop(
        0, 5, [](Array i, Array a) { return a * 2 + i; }, x[0])};
  };
  all["fori_weak_init"] = [](Arrays x) {
    return Arrays{fori_loop(
        1, 4, [&](Array i, Array a) { return a + x[0][i]; }, 0)};
  };
  all["fori_bounds"] = [=](Arrays x) { return Arrays{fori_loop(x[0], x[1], add_index, x[2])}; };
  all["fori_nested"] = [](Arrays x) {
    return Arrays{fori_loop(
        0, 6,
        [](Array i, Array a) {
          return fori_loop(
              0, i, [&](Array j, Array b) { return b + i * j; }, a);
        },
        x[0])};
  };
  all["while_halve"] = [](Arrays x) {
    return while_loop([](Arrays c) { return sum(c[0]) > 1; },
                      [](Arrays c) {
                        return Arrays{floor_divide(c[0], 2), c[1] + 1};
                      },
                      Arrays{x[0], array({0}, Shape({}))});
  };
  const auto flat = [](std::pair<Array, Array> r) { return Arrays{r.first, r.second}; };
  all["scan_running"] = [=](Arrays x) {
    return flat(scan([](Array s, Array v) { return std::pair{s + v, s * v}; }, x[0], x[1]));
  };
  all["scan_reverse"] = [=](Arrays x) {
    return flat(scan(
        [](Array s, Array v) {
          return std::pair{s * 2 + v, s};
        },
        x[0], x[1], {.reverse = true}));
  };
  all["scan_length"] = [=](Arrays x) {
    return flat(scan([](Array s, auto) { return std::pair{s * 3, s}; }, x[0], none, {.length = 4}));
  };
  all["scan_products"] = [=](Arrays x) {
    return flat(scan(
        [](Array s, Array a) {
          return std::pair{matmul(a, s) % 5, s};
        },
        x[0], stack({x[1], x[1] + 1, x[1] * 2}, 0)));
  };
  all["cond"] = [](Arrays x) {
    return cond(
        x[0],
        [](Array a, Array b) {
          return Arrays{a + b, a};
        },
        [](Array a, Array b) {
          return Arrays{a - b, b};
        },
        x[1], x[2]);
  };
  all["switch"] = [](Arrays x) {
    return Arrays{switch_(
        x[0],
        {[](Array a) { return a; }, [](Array a) { return a * 2; }, [](Array a) { return -a; }},
        x[1])};
  };
  return all;
}

const Program& program_of(const std::map<std::string, Program>& all, const std::string& name) {
  return all.at(name.substr(0, name.find('/')));
}

Arrays run(const testing::GoldenCase& c, const Arrays& in) {
  static const auto all = programs();
  return program_of(all, c.name)(in);
}

TEST(GoldenControlFlow, PlainArrays) { testing::expect_golden("control_flow", run); }

TEST(GoldenControlFlow, Staged) {
  testing::expect_golden("control_flow", [&](const testing::GoldenCase& c, const Arrays& in) {
    return eval_jaxpr(make_jaxpr([&](const Arrays& x) { return run(c, x); })(in), in);
  });
}

TEST(GoldenControlFlow, SplitOverAMesh) {
  testing::expect_golden("control_flow", run, testing::split_over_mesh,
                         test::Communication::no_more);
}

}  // namespace
}  // namespace shmap
