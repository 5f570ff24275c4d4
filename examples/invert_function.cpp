// A custom interpreter, after "Writing custom interpreters in JAX": inverse(f) runs the program of
// f backwards, each equation by the inverse of its primitive. The result is checked with f, and is
// traced, differentiated and mapped like any code; the exit code is 1 if it is wrong.
#include <shmap/shmap.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

using namespace shmap;

// Computes an operand from the equation's result and its other operand (empty if it has only one).
using Inverse = std::function<Array(const extend::Eqn& e, Array other, Array y)>;

const std::map<std::string, Inverse>& inverses() {
  static const std::map<std::string, Inverse> table = {
      {"exp", [](const extend::Eqn&, Array, Array y) { return log(y); }},
      {"log", [](const extend::Eqn&, Array, Array y) { return exp(y); }},
      {"tanh", [](const extend::Eqn&, Array, Array y) { return 0.5f * log((1 + y) / (1 - y)); }},
      {"neg", [](const extend::Eqn&, Array, Array y) { return -y; }},
      {"add", [](const extend::Eqn&, Array c, Array y) { return y - c; }},
      {"mul", [](const extend::Eqn&, Array c, Array y) { return y / c; }},
      {"sub",
       [](const extend::Eqn& e, Array c, Array y) {  // x - c, or c - x
         return e.inputs()[0].is_literal() ? c - y : y + c;
       }},
  };
  return table;
}

Array run_backwards(const ClosedJaxpr& jaxpr, Array y) {
  extend::Environment<Array> values;
  values.write(extend::out_atoms(jaxpr).at(0).var(), y);
  std::vector<extend::Eqn> eqns = extend::eqns(jaxpr);
  for (auto e = eqns.rbegin(); e != eqns.rend(); ++e) {
    const auto inverse = inverses().find(e->primitive());
    if (inverse == inverses().end())
      throw ValueError("no inverse is known of " + e->primitive().name());
    // One operand is unknown; the other has to be a number.
    std::optional<extend::Var> wanted;
    Array other;
    for (const extend::Atom& a : e->inputs()) {
      if (a.is_literal()) other = a.literal().value();
      if (!a.is_literal()) {
        if (wanted) throw ValueError(e->primitive().name() + " of two unknowns has no inverse");
        wanted = a.var();
      }
    }
    values.write(*wanted, inverse->second(*e, other, values.read(e->outputs()[0])));
  }
  return values.read(extend::in_vars(jaxpr).at(0));
}

template <class F>
auto inverse(F f, ShapedArray type) {
  return [jaxpr = make_jaxpr(f)(type)](Array y) { return run_backwards(jaxpr, y); };
}

int main() {
  const auto f = [](Array x) { return exp(tanh(x * 0.5f) - 1.f); };
  const Array x = linspace(-1.f, 1.f, 9);
  const auto f_inverse = inverse(f, x.type());
  std::cout << make_jaxpr(f_inverse)(x) << "\n" << f_inverse(f(x)) << "\n";

  // The inverse's slope is one over the slope of f.
  const Array slope = grad([&](Array v) { return sum(f(v)); })(x);
  const Array inverse_slope = jit(grad([&](Array v) { return sum(f_inverse(v)); }))(f(x));
  const float error = max(abs(f_inverse(f(x)) - x)).item<float>();
  const float slope_error = max(abs(slope * inverse_slope - 1.f)).item<float>();
  std::cout << "off by " << error << ", slopes by " << slope_error << "\n";
  return error < 1e-5f && slope_error < 1e-4f ? 0 : 1;
}
