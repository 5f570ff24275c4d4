// A loss of the transformer layer, and the check of its gradient against the slope of the loss, in
// double, along a random direction.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>

#include "bench/support/transformer_layer.h"

namespace shmap::bench::transformer {

constexpr double kStep = 1.0 / 64;  // relative to the size of a weight

// The layer's loss: its output on the checked sequence, weighed by random numbers.
struct LayerLoss {
  Data data;
  Values weights = random_floats(S * E, 40);
  double slope = 0;  // slope of the loss along `direction`
  Values direction[7];

  explicit LayerLoss(const Data& of = Data()) : data(of) {
    Data ahead = data, behind = data;
    Values* a[] = {&ahead.scale, &ahead.wq,   &ahead.wk,   &ahead.wv,
                   &ahead.wo,    &ahead.w_in, &ahead.w_out};
    Values* b[] = {&behind.scale, &behind.wq,   &behind.wk,   &behind.wv,
                   &behind.wo,    &behind.w_in, &behind.w_out};
    for (std::size_t k = 0; k < 7; ++k) {
      const Values v = random_floats(a[k]->size(), 50 + k);
      for (std::size_t n = 0; n < v.size(); ++n) {
        const float step = v[n] * static_cast<float>(kStep) * (k == 0 ? 1.f : 0.08f);
        (*a[k])[n] += step;
        (*b[k])[n] -= step;
        // The steps as the weights' rounding made them.
        direction[k].push_back(((*a[k])[n] - (*b[k])[n]) / 2);
      }
    }
    slope = (value(ahead) - value(behind)) / 2;
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
  std::string check(const Layer& g) const {
    double got = 0;
    std::size_t k = 0;
    for (const Array* leaf : {&g.scale, &g.wq, &g.wk, &g.wv, &g.wo, &g.w_in, &g.w_out}) {
      const Values values = leaf->to_vector<float>();
      for (std::size_t n = 0; n < values.size(); ++n)
        got += static_cast<double>(values[n]) * direction[k][n];
      ++k;
    }
    if (std::abs(got - slope) <= 2e-3 * std::abs(slope)) return "";
    return "the loss's slope along a random direction is " + std::to_string(got) +
           ", and should be " + std::to_string(slope);
  }
};

inline void wait_for(const Layer& g) {
  for (const Array* leaf : {&g.scale, &g.wq, &g.wk, &g.wv, &g.wo, &g.w_in, &g.w_out})
    leaf->block_until_ready();
}

}  // namespace shmap::bench::transformer
