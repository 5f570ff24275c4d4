// shmap-test: devices
// Derivatives of loops and branches against JAX's values: eagerly, as equations and under jit.
#include <gtest/gtest.h>

#include <map>

#include "shmap/shmap.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using Arrays = std::vector<Array>;
using Program = std::function<Arrays(Arrays)>;

Arrays flat(const std::pair<Array, Array>& r) { return {r.first, r.second}; }

Program choose(bool taken) {
  return [taken](Arrays x) {
    return cond(
        array<bool>({taken}, Shape({})),
        [](Array a, Array b) {
          return Arrays{a * b, a};
        },
        [](Array a, Array b) {
          return Arrays{a * a - b, b * b * a};
        },
        x[0], x[1]);
  };
}

Program select(int i) {
  return [i](Arrays x) {
    return Arrays{switch_(array({i}, Shape({})),
                          {[](Array a) { return a; }, [](Array a) { return a * a; },
                           [](Array a) { return a * 0 + 1; }},
                          x[0])};
  };
}

std::map<std::string, Program> programs() {
  std::map<std::string, Program> all;
  all["fori_horner"] = [](Arrays x) {
    return Arrays{fori_loop(
        0, 5, [&](Array i, Array a) { return a * x[1] + i; }, x[0])};
  };
  all["scan_running"] = [](Arrays x) {
    return flat(scan([](Array s, Array v) { return std::pair{s + v, s * v}; }, x[0], x[1]));
  };
  all["scan_reverse"] = [](Arrays x) {
    return flat(scan(
        [](Array s, Array v) {
          return std::pair{s * 2 + v * v, s};
        },
        x[0], x[1], {.reverse = true}));
  };
  all["scan_products"] = [](Arrays x) {
    return flat(scan(
        [](Array s, Array a) {
          return std::pair{matmul(a, s), s};
        },
        x[0], stack({x[1], x[1] + 1, x[1] * 2}, 0)));
  };
  all["scan_rnn"] = [](Arrays x) {
    return flat(scan(
        [&](Array c, Array v) {
          return std::pair{tanh(matmul(c, x[2]) + v), c};
        },
        x[0], x[1]));
  };
  all["while_powers"] = [](Arrays x) {
    return while_loop([](Arrays c) { return sum(c[0]) < 100; },
                      [&](Arrays c) {
                        return Arrays{c[0] * 2, c[1] * c[0] + x[1]};
                      },
                      x);
  };
  all["cond0"] = choose(false);
  all["cond1"] = choose(true);
  for (int i : {0, 1, 2}) all["switch" + std::to_string(i)] = select(i);
  return all;
}

// (arguments, cotangents or tangents) -> what the case's outputs are.
Program derivative(const std::string& name, Program f) {
  return [f, is_vjp = name.starts_with("vjp")](Arrays all) {
    if (!is_vjp) {
      const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
      const Arrays x(all.begin(), middle), v(middle, all.end());
      auto [y, y_dot] = jvp(f, std::make_tuple(x), std::make_tuple(v));
      y.insert(y.end(), y_dot.begin(), y_dot.end());
      return y;
    }
    // Finds the number of arguments that leaves one cotangent for each result.
    for (std::size_t n = all.size() - 1; n > 0; --n) {
      const auto middle = all.begin() + static_cast<std::ptrdiff_t>(n);
      const Arrays x(all.begin(), middle);
      if (f(x).size() != all.size() - n) continue;
      const auto pulled = vjp(f, x);
      return std::get<0>(pulled.second(Arrays(middle, all.end())));
    }
    throw ValueError("the case has no cotangents");
  };
}

void expect(const std::function<Program(Program)>& of_program,
            const std::function<Program(Program)>& of_derivative) {
  const auto all = programs();
  testing::expect_golden("control_flow_grad", [&](const testing::GoldenCase& c, const Arrays& in) {
    const std::string program = c.name.substr(4, c.name.find('/') - 4);
    return of_derivative(derivative(c.name, of_program(all.at(program))))(in);
  });
}

Program as_it_is(Program f) { return f; }
Program under_jit(Program f) {
  return [f](Arrays x) {
    const auto jitted = jit(f);
    jitted(x);
    jitted(x);
    return jitted(x);
  };
}

TEST(GoldenControlFlowGrad, AtOnce) { expect(as_it_is, as_it_is); }
TEST(GoldenControlFlowGrad, UnderJit) { expect(as_it_is, under_jit); }
TEST(GoldenControlFlowGrad, OfEquations) {
  expect([](Program f) { return Program(jit(f)); }, as_it_is);
}

}  // namespace
}  // namespace shmap
