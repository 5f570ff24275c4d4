// Pipeline parallelism (GPipe): each device holds one layer, and the microbatches travel around a
// ring of devices, so that after the first steps all devices compute at once. The gradient comes
// from value_and_grad: the transpose of each ppermute sends a cotangent back around the ring.
//
// The loss and the gradient are compared with those of a plain loop over the layers; the exit code
// is 1 where they differ.
#include <shmap/shmap.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "support/processes.h"

using namespace shmap;

constexpr int kMicrobatches = 16, kRows = 32, kWidth = 64;

Array layer(Array x, Array w) { return tanh(matmul(x, w)); }

Array loss_of(Array out, Array target) { return mean(square(out - target)); }

// On each device: w is the device's own layer, f32[1,width,width]{stage}; x and target are all
// microbatches, f32[microbatches,rows,width].
Array pipelined_loss(Array w, Array x, Array target) {
  const int stages = axis_size("stage");
  const Array stage = axis_index("stage");

  Array arriving = zeros({kRows, kWidth});
  std::vector<Array> finished;
  for (int step = 0; step < kMicrobatches + stages - 1; ++step) {
    // The first stage takes a new microbatch while there is one; the others take the one that
    // arrived.
    const Array in = step < kMicrobatches ? where(stage == 0, x[step], arriving) : arriving;
    const Array out = layer(in, w[0]);
    if (step >= stages - 1) finished.push_back(out);  // on the last stage a finished microbatch
    arriving = ppermute(out, "stage", ring_permutation("stage"));
  }
  return loss_of(broadcast_from(stack(finished), "stage", stages - 1), target);
}

Array plain_loss(Array w, Array x, Array target) {
  for (std::int64_t s = 0; s < w.shape()[0]; ++s) x = layer(x, w[s]);
  return loss_of(x, target);
}

// Values between -1 and 1 that are the same in every run.
Array waves(Shape shape, float frequency) {
  return reshape(sin(arange(shape.num_elements()) * frequency), shape);
}

float largest(Array x) { return max(abs(x)).item<float>(); }

int main() {
  examples::print_in_process_0();
  const int stages = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({stages}, {"stage"});
  const Array w = waves({stages, kWidth, kWidth}, 0.7f) * 0.2f;
  const Array x = waves({kMicrobatches, kRows, kWidth}, 1.3f);
  const Array target = waves({kMicrobatches, kRows, kWidth}, 0.4f);

  auto loss = shard_map(pipelined_loss, mesh, {P("stage"), P(), P()}, P());
  auto [value, gradient] = jit(value_and_grad(loss))(w, x, target);
  auto [want_value, want_gradient] = value_and_grad(plain_loss)(w, x, target);

  const int steps = kMicrobatches + stages - 1;
  std::printf("%d stages, %d microbatches: %d steps, of which a stage works in %d (%.0f %%)\n",
              stages, kMicrobatches, steps, kMicrobatches, 100.0 * kMicrobatches / steps);
  const float value_error = largest(value - want_value) / largest(want_value);
  const float gradient_error = largest(gradient - want_gradient) / largest(want_gradient);
  std::printf("loss %.6f, %.1e off that of a plain loop; its gradient %.1e off\n",
              value.item<float>(), value_error, gradient_error);
  return std::max(value_error, gradient_error) < 1e-5f ? 0 : 1;
}
