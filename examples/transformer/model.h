// A language model of the layers of layer.h: tokens in, logits of the next token out. As the layer
// it is there as a function of whole arrays and as the body of a shard_map over x, y and z.
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

// f32, drawn from the key: normal numbers by 1 / sqrt(what a product sums over).
Model init_model(const ModelSizes& sizes, const Array& key);
shmap::Specs model_specs(std::size_t layers);  // of a Model, by the layout of layer.h
std::int64_t parameter_count(const Model& model);

// The arrays of a model, in order; and a model of such arrays.
std::vector<Array> leaves_of(const Model& model);
Model with_leaves(const Model& like, const std::vector<Array>& leaves);

// The mean cross-entropy (nats) of tokens[B, T + 1], i32: each of the last T is foretold from those
// before it. Products are of `dtype`.
Array plain_loss(const Model& model, const Array& tokens, shmap::DType dtype = shmap::f32);
// The same in a body over x, y and z: the model as model_specs, tokens split over z; a scalar that
// is the same on all devices.
Array manual_loss(const Model& model, const Array& tokens, shmap::DType dtype = shmap::f32,
                  Overlap form = Overlap::automatic);

// `count` tokens after the prompt, drawn at the temperature (0: the likeliest ones), by a prefill
// and then one token at a time behind a cache of `context` rows; where that is full, it starts anew
// from the last half of them. The prompt is shorter than the context, which is at least 2. On one
// device; waits for each token.
std::vector<std::int32_t> generate(const Model& model, const std::vector<std::int32_t>& prompt,
                                   int count, std::int64_t context, const Array& key,
                                   float temperature);

}  // namespace transformer
