// Numbers with infinitesimals: a + b e0 + c e1 + d e0 e1 + …, where the square of each is 0. A
// function of them carries its derivatives along, exactly and to any nesting: the coefficient of ek
// in f(x + ek v) is the derivative of f along v. Tests compare the library's derivatives with it.
#pragma once
#include <array>

namespace shmap::test {

// A function of one real number with its derivatives: at(0, x) is its value, at(n, x) the nth.
using JetFunction = double (*)(int order, double x);

class Jet {
 public:
  static constexpr int kLevels = 3;  // e0, e1, e2
  Jet(double value = 0) : coefficients_{value} {}

  double value() const { return coefficients_[0]; }
  // x + e[level] v, for x and v without that infinitesimal and those above it.
  static Jet along(const Jet& x, int level, const Jet& v);
  // The coefficient of e[level] and the number without it, for a number without higher
  // infinitesimals.
  Jet derivative(int level) const;
  Jet without(int level) const;

  friend Jet operator+(const Jet& a, const Jet& b);
  friend Jet operator-(const Jet& a, const Jet& b);
  friend Jet operator*(const Jet& a, const Jet& b);
  friend Jet operator/(const Jet& a, const Jet& b);
  Jet apply(JetFunction f) const { return apply(f, 0, kLevels); }

 private:
  // The derivative of that order at the number; only the infinitesimals below `levels` count.
  Jet apply(JetFunction f, int order, int levels) const;

  std::array<double, 1 << kLevels> coefficients_{};  // by the set of infinitesimals, as a bit mask
};

Jet sin(const Jet& x);
Jet cos(const Jet& x);
Jet exp(const Jet& x);
Jet tanh(const Jet& x);

}  // namespace shmap::test
