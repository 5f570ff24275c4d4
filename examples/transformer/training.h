// Training a model: Adam, and the ways to split it over devices.
#pragma once
#include <shmap/shmap.h>

#include <functional>
#include <string>

#include "model.h"

namespace transformer {

// The contents of a checkpoint.
struct State {
  Model params, mean, power;  // Adam's running means of gradients and of their squares
  Array step;                 // f32: steps taken
};
State first_state(const Model& model);

struct LearningRates {
  float rate = 3e-3f;  // the highest rate
  int warmup = 20, steps = 400;
  // Rises linearly to `rate`, then falls to a tenth of it in half a cosine.
  Array rate_at(const Array& step) const;
};
// One step of Adam (0.9, 0.95): elementwise, so that blocks stay where they are.
State adam(const State& state, const Model& gradient, const LearningRates& schedule);

// The placement of a model and its batches on devices, and the loss for it.
struct Split {
  std::string name;
  std::function<Array(Model, Array)> loss;         // (model, tokens[B, T + 1]) -> scalar
  std::function<State(const State&)> place;        // from one device to the split
  std::function<Array(const Array&)> place_batch;  // the same for a batch
};
Split one_device(shmap::DType dtype);
// The model on all devices, the batch split over them: B is a multiple of their number.
Split data_parallel(shmap::DType dtype);
// 2D: model and batch split over x, y and z as in layer.h. ValueError if the product of the sizes
// is not the number of devices.
Split two_dims(const shmap::Shape& xyz, shmap::DType dtype);

// Sizes of x, y and z for that many devices: factors of two for each in turn, the rest for z.
shmap::Shape default_mesh(std::int64_t devices);

// The same arrays, whole, on a device of this process. A collective of all processes.
State gathered(const State& state);

}  // namespace transformer
