// Training a model: Adam, and the ways to split it over devices.
#pragma once
#include <shmap/shmap.h>

#include <functional>
#include <string>

#include "model.h"

namespace transformer {

// What a checkpoint holds.
struct State {
  Model params, mean, power;  // Adam's running means of gradients and of their squares
  Array step;                 // f32: steps taken
};
State first_state(const Model& model);

struct LearningRates {
  float rate = 3e-3f;  // the highest
  int warmup = 20, steps = 400;
  // Rises to it in a line, and falls to a tenth of it in half a cosine.
  Array rate_at(const Array& step) const;
};
// One step of Adam (0.9, 0.95): elementwise, so that blocks stay where they are.
State adam(const State& state, const Model& gradient, const LearningRates& schedule);

// How a model and its batches lie on devices, and its loss there.
struct Split {
  std::string name;
  std::function<Array(Model, Array)> loss;         // (model, tokens[B, T + 1]) -> scalar
  std::function<State(const State&)> place;        // from one device
  std::function<Array(const Array&)> place_batch;  // likewise
};
Split one_device(shmap::DType dtype);
// The model on all devices, the batch split over them: B is a multiple of their number.
Split data_parallel(shmap::DType dtype);
// 2D: model and batch split over x, y and z as layer.h says. ValueError where the sizes are not the
// devices' number.
Split two_dims(const shmap::Shape& xyz, shmap::DType dtype);

// x, y and z for so many devices: factors of two to each in turn, what is left to z.
shmap::Shape default_mesh(std::int64_t devices);

// The same arrays whole, on a device of this process. A collective of all processes.
State gathered(const State& state);

}  // namespace transformer
