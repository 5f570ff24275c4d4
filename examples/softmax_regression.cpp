// Softmax regression on handwritten digits, data parallel: the images are split over the devices,
// the weights are on all of them. Only the pmean of the parallel program is written by hand; the
// sum of the gradients over the devices follows from the types.
//
// The first gradient is compared with one computed by hand. The exit code is 1 if it differs, or if
// the trained model recognises fewer than 95 % of the digits that it has seen.
#include <shmap/shmap.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "support/processes.h"

using namespace shmap;

struct Model {
  Array w, bias;
};

Array logits(Model m, Array x) { return matmul(x, m.w) + m.bias; }

Array loss(Model m, Array x, Array labels) {  // on each device, for its images
  return pmean(-mean(sum(one_hot(labels, 10) * log_softmax(logits(m, x)), -1)), "data");
}

// If all weights are 0, every class has probability 1/10, and the gradient with respect to w is the
// mean over the images of (1/10 - [the label is c]) × pixel.
double error_of_first_gradient(Array gradient, Array images, Array labels) {
  const std::vector<float> g = gradient.to_vector<float>(),
                           x = process_allgather(images).to_vector<float>();
  const std::vector<std::int32_t> y = process_allgather(labels).to_vector<std::int32_t>();
  const std::size_t pixels = x.size() / y.size();
  std::vector<double> want(g.size());
  for (std::size_t n = 0; n < y.size(); ++n)
    for (std::size_t p = 0; p < pixels; ++p)
      for (std::size_t c = 0; c < 10; ++c)
        want[p * 10 + c] += (0.1 - (std::size_t(y[n]) == c)) * x[n * pixels + p] / double(y.size());
  double error = 0;
  for (std::size_t k = 0; k < g.size(); ++k) error = std::max(error, std::abs(g[k] - want[k]));
  return error;
}

int main() {
  examples::print_in_process_0();
  const int n = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({n}, {"data"});
  const std::string folder = SHMAP_EXAMPLE_DATA;
  Array images = astype(load_npy(folder + "/digits_images.npy"), f32) / 16.f;
  Array labels = astype(load_npy(folder + "/digits_labels.npy"), i32);
  const std::int64_t count = images.shape()[0] / n * n;  // as many for each device
  images = device_put(images[range(0, count)], NamedSharding(mesh, P("data")));
  labels = device_put(labels[range(0, count)], NamedSharding(mesh, P("data")));

  auto value_and_gradient = value_and_grad(shard_map(loss, mesh, {P(), P("data"), P("data")}, P()));
  auto step = jit([=](Model m, Array x, Array y) {
    auto [value, g] = value_and_gradient(m, x, y);
    return std::tuple{value, Model{m.w - 2.f * g.w, m.bias - 2.f * g.bias}, g};
  });

  Model model{zeros({images.shape()[1], 10}), zeros({10})};
  double error = 0;
  for (int k = 0; k <= 200; ++k) {
    auto [value, next, gradient] = step(model, images, labels);
    if (k == 0) error = error_of_first_gradient(gradient.w, images, labels);
    if (k % 50 == 0) std::printf("step %3d  loss %.4f\n", k, value.item<float>());
    model = next;
  }
  const Array right = argmax(logits(model, images), 1) == labels;
  const float accuracy = mean(astype(right, f32)).item<float>();
  std::printf("%.1f %% of the digits recognised; first gradient %.1e off one computed by hand\n",
              100 * accuracy, error);
  return accuracy > 0.95f && error < 1e-6 ? 0 : 1;
}
