// Dropout: each step draws a mask from its own key and trains a layer with it. The same seed gives
// the same run, eagerly, under jit and on any number of devices.
#include <cmath>
#include <iostream>

#include "shmap/shmap.h"
#include "support/processes.h"

using namespace shmap;

namespace {

struct Params {
  Array w1, w2;
};

// Keeps each element with probability 0.8, and scales kept elements by 1 / 0.8.
Array dropout(Array key, Array x) {
  return where(random::bernoulli(key, 0.8f, x.shape()), x / 0.8f, 0.f);
}

Array loss(Params p, Array key, Array x, Array y) {
  const Array hidden = dropout(key, tanh(matmul(x, p.w1)));
  return mean(square(matmul(hidden, p.w2) - y));
}

Params step(Params p, Array key, Array x, Array y) {
  const Params g = grad(loss)(p, key, x, y);
  return {p.w1 - 0.05f * g.w1, p.w2 - 0.05f * g.w2};
}

}  // namespace

int main() {
  examples::print_in_process_0();
  auto [data_key, init1, init2, train_key] = random::split<4>(random::key(0));
  const Array x = random::normal(data_key, {256, 16});
  const Array y = sum(x, 1, true) / 4.f;
  Params params{random::normal(init1, {16, 64}) / 4.f, random::normal(init2, {64, 1}) / 8.f};
  const Params start = params;

  // The rows of the data are split over the devices.
  const Mesh mesh = make_mesh({devices().size()}, {"data"});
  const Array xs = device_put(x, NamedSharding(mesh, P("data", none)));
  const Array ys = device_put(y, NamedSharding(mesh, P("data", none)));

  const auto fast = jit(step);
  for (int i = 0; i < 60; ++i) params = fast(params, random::fold_in(train_key, i), xs, ys);

  const auto test_loss = [&](Params p) {
    return mean(square(matmul(tanh(matmul(x, p.w1)), p.w2) - y)).item<float>();
  };
  const float before = test_loss(start), after = test_loss(params);
  std::cout << "loss before: " << before << ", after: " << after << "\n";

  // The masks do not depend on where they are drawn: one device alone gives the same step.
  const Array key = random::fold_in(train_key, 7);
  const Params here = step(start, key, x, y), there = fast(start, key, xs, ys);
  const float apart = max(abs(here.w1 - there.w1)).item<float>();
  std::cout << "one device and all of them differ by " << apart << "\n";
  return after < before / 4 && apart < 1e-5f ? 0 : 1;
}
