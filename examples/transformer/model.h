// A language model of the layers of layer.h: computes logits of the next token from tokens. Like
// the layer it exists as a function of whole arrays and as the body of a shard_map over x, y and z.
#pragma once
#include <shmap/shmap.h>

#include <utility>
#include <vector>

#include "layer.h"

namespace transformer {

struct ModelSizes {
  std::int64_t vocab = 0, embed = 128, heads = 8, qkv = 16, ff = 64 /* of a head */, layers = 3;
};

struct Model {
  Array table;                       // [V, E]: a token's vector
  std::vector<LayerWeights> layers;  // one after another
  Array norm;                        // [E]
  Array out;                         // [V, E]: logits of a vector
};

// A random model in f32: normal numbers times 1 / sqrt(the number of terms of a product's sums).
Model init_model(const ModelSizes& sizes, const Array& key);
shmap::Specs model_specs(std::size_t layers);  // specs of a Model, by the layout of layer.h
std::int64_t parameter_count(const Model& model);

// The arrays of a model in order, and a model of such arrays.
std::vector<Array> leaves_of(const Model& model);
Model with_leaves(const Model& like, const std::vector<Array>& leaves);

// The mean cross-entropy (nats) of tokens[B, T + 1], i32: each of the last T tokens is predicted
// from those before it. Products have `dtype`.
Array plain_loss(const Model& model, const Array& tokens, shmap::DType dtype = shmap::f32);
// The same in a body over x, y and z: the model by model_specs, tokens split over z; the result is
// a scalar that is the same on all devices.
Array manual_loss(const Model& model, const Array& tokens, shmap::DType dtype = shmap::f32,
                  Overlap form = Overlap::automatic);

// Draws `count` tokens after the prompt at the temperature (0: the likeliest tokens), by a prefill
// and then one token at a time with a cache of `context` rows. When the cache is full, it starts
// again from the last half of them. The prompt is shorter than the context, which is at least 2.
// Runs on one device and waits for each token.
std::vector<std::int32_t> generate(const Model& model, const std::vector<std::int32_t>& prompt,
                                   int count, std::int64_t context, const Array& key,
                                   float temperature);

}  // namespace transformer
