#include "tests/support/jet.h"

#include <cmath>
#include <cstddef>

namespace shmap::test {

namespace {

double sine(int order, double x) {
  switch (order % 4) {
    case 0:
      return std::sin(x);
    case 1:
      return std::cos(x);
    case 2:
      return -std::sin(x);
    default:
      return -std::cos(x);
  }
}

double hyperbolic(int order, double x) {
  const double t = std::tanh(x), d = 1 - t * t;
  switch (order) {
    case 0:
      return t;
    case 1:
      return d;
    case 2:
      return -2 * t * d;
    default:
      return d * (6 * t * t - 2);
  }
}

// 1 / x: (-1)^n n! / x^(n + 1)
double inverse(int order, double x) {
  double d = 1 / x;
  for (int n = 1; n <= order; ++n) d *= -n / x;
  return d;
}

}  // namespace

Jet Jet::along(const Jet& x, int level, const Jet& v) {
  Jet out = x;
  const std::size_t bit = std::size_t{1} << level;
  for (std::size_t s = 0; s < bit; ++s) out.coefficients_[bit + s] = v.coefficients_[s];
  return out;
}

Jet Jet::derivative(int level) const {
  Jet out;
  const std::size_t bit = std::size_t{1} << level;
  for (std::size_t s = 0; s < bit; ++s) out.coefficients_[s] = coefficients_[bit + s];
  return out;
}

Jet Jet::without(int level) const {
  Jet out;
  const std::size_t bit = std::size_t{1} << level;
  for (std::size_t s = 0; s < bit; ++s) out.coefficients_[s] = coefficients_[s];
  return out;
}

Jet operator+(const Jet& a, const Jet& b) {
  Jet out;
  for (std::size_t s = 0; s < out.coefficients_.size(); ++s)
    out.coefficients_[s] = a.coefficients_[s] + b.coefficients_[s];
  return out;
}

Jet operator-(const Jet& a, const Jet& b) { return a + Jet(-1) * b; }

Jet operator*(const Jet& a, const Jet& b) {
  Jet out;
  for (std::size_t s = 0; s < out.coefficients_.size(); ++s) {
    if (a.coefficients_[s] == 0) continue;
    for (std::size_t t = 0; t < out.coefficients_.size(); ++t)
      if ((s & t) == 0) out.coefficients_[s | t] += a.coefficients_[s] * b.coefficients_[t];
  }
  return out;
}

Jet operator/(const Jet& a, const Jet& b) { return a * b.apply(inverse); }

// f(a + e b) = f(a) + e f'(a) b, for the highest e there is.
Jet Jet::apply(JetFunction f, int order, int levels) const {
  if (levels == 0) return Jet(f(order, value()));
  const Jet a = without(levels - 1), b = derivative(levels - 1);
  bool any = false;
  for (double c : b.coefficients_) any = any || c != 0;
  const Jet at = a.apply(f, order, levels - 1);
  return any ? along(at, levels - 1, a.apply(f, order + 1, levels - 1) * b) : at;
}

Jet sin(const Jet& x) { return x.apply(sine); }
Jet cos(const Jet& x) {
  return x.apply([](int order, double v) { return sine(order + 1, v); });
}
Jet exp(const Jet& x) {
  return x.apply([](int, double v) { return std::exp(v); });
}
Jet tanh(const Jet& x) { return x.apply(hyperbolic); }

}  // namespace shmap::test
