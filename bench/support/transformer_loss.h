// A loss of the transformer layer, and the check of its gradient against the slopes of the loss, in
// double: along a random direction of the weights, and along one of the input.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>

#include "bench/support/transformer_layer.h"

namespace shmap::bench::transformer {

constexpr double kStep = 1.0 / 64;  // relative to the size of a weight, or of the input

// The layer's loss: its output on the checked sequence, weighed by random numbers.
struct LayerLoss {
  Data data;
  Values weights = random_floats(S * E, 40);
  double slope = 0;  // of the loss along `direction`, of the weights
  Values direction[7];
  double slope_of_x = 0;  // along this one, of the input
  Values direction_of_x;

  explicit LayerLoss(const Data& of = Data()) : data(of) {
    Data ahead = data, behind = data;
    Values* a[] = {&ahead.scale, &ahead.wq,   &ahead.wk,   &ahead.wv,
                   &ahead.wo,    &ahead.w_in, &ahead.w_out};
    Values* b[] = {&behind.scale, &behind.wq,   &behind.wk,   &behind.wv,
                   &behind.wo,    &behind.w_in, &behind.w_out};
    for (std::size_t k = 0; k < 7; ++k)
      direction[k] = step(*a[k], *b[k], 50 + k, k == 0 ? 1.f : 0.08f);
    slope = (value(ahead) - value(behind)) / 2;
    ahead = behind = data;
    direction_of_x = step(ahead.x, behind.x, 57, 1.f);
    slope_of_x = (value(ahead) - value(behind)) / 2;
  }
  double value(const Data& at) const {
    const Doubles y = reference(at, kChecked);
    double sum = 0;
    for (std::size_t n = 0; n < y.size(); ++n) sum += y[n] * weights[n];
    return sum;
  }
  Array mask() const {
    Values all(B * S * E);
    std::copy(weights.begin(), weights.end(),
              all.begin() + static_cast<std::ptrdiff_t>(kChecked * weights.size()));
    return data.put(all, {B, S, E}, P("i", none, "j"));
  }
  auto loss() const {
    return [mapped = data.mapped(), mask = mask()](Layer w, Array x) {
      return sum(mapped(x, w) * mask);
    };
  }
  // The loss is of one sequence: the gradient of the others' input is 0.
  std::string check(const Layer& g, const Array& of_x) const {
    double got = 0;
    std::size_t k = 0;
    for (const Array* leaf : {&g.scale, &g.wq, &g.wk, &g.wv, &g.wo, &g.w_in, &g.w_out})
      got += along(direction[k++], *leaf);
    const std::string wrong = difference(got, slope, "the weights");
    return wrong.empty() ? difference(along(direction_of_x, of_x), slope_of_x, "the input") : wrong;
  }

 private:
  // Moves a and b, which are equal, apart by random steps, and returns the steps as the rounding of
  // a and b made them.
  static Values step(Values& a, Values& b, std::uint64_t seed, float size) {
    Values steps = random_floats(a.size(), seed);
    for (std::size_t n = 0; n < steps.size(); ++n) {
      const float by = steps[n] * static_cast<float>(kStep) * size;
      a[n] += by;
      b[n] -= by;
      steps[n] = (a[n] - b[n]) / 2;
    }
    return steps;
  }
  static double along(const Values& direction, const Array& gradient) {
    const Values values = gradient.to_vector<float>();
    double sum = 0;
    for (std::size_t n = 0; n < values.size(); ++n)
      sum += static_cast<double>(values[n]) * direction[n];
    return sum;
  }
  static std::string difference(double got, double wanted, const char* of) {
    if (std::abs(got - wanted) <= 2e-3 * std::abs(wanted)) return "";
    return std::string("the loss's slope along a random direction of ") + of + " is " +
           std::to_string(got) + ", and should be " + std::to_string(wanted);
  }
};

// The gradient of the loss, of the weights and of the input.
struct Gradient {
  Layer of_w;
  Array of_x;
};

inline void wait_for(const Gradient& g) {
  const Layer& w = g.of_w;
  for (const Array* leaf : {&w.scale, &w.wq, &w.wk, &w.wv, &w.wo, &w.w_in, &w.w_out, &g.of_x})
    leaf->block_until_ready();
}

}  // namespace shmap::bench::transformer
