#include "model.h"

#include <cmath>
#include <string>

namespace transformer {

using namespace shmap;

namespace {

// Converts only the products' weights, not the norms.
LayerWeights products_in(const LayerWeights& w, DType dtype) {
  return {w.norm, astype(w.q_wi, dtype), astype(w.kv, dtype), astype(w.o_wo, dtype)};
}

Array cross_entropy(const Array& logits, const Array& tokens) {
  return -mean(
      sum(one_hot(tokens, static_cast<int>(logits.shape()[-1])) * log_softmax(logits), -1));
}

Array row_range(const Array& tokens, std::int64_t first, std::int64_t limit) {
  return tokens[{range(), range(first, limit)}];
}

Rows rows_of(const Model& model, const Array& start, std::int64_t count) {
  return rows_from(start, count, model.layers.at(0).kv.shape()[-1] / 2);
}

struct Step {
  Array logits;  // [B, T, V]
  std::vector<Cache> caches;
};

Step plain_step(const Model& model, const Array& tokens, const Array& start,
                const std::vector<Cache>& caches, DType dtype) {
  const Rows rows = rows_of(model, start, tokens.shape()[1]);
  Array x = take(model.table, tokens, 0);
  std::vector<Cache> now;
  for (std::size_t k = 0; k < model.layers.size(); ++k) {
    const std::optional<Cache> before = caches.empty() ? std::nullopt : std::optional(caches[k]);
    LayerResult result = plain_layer(x, products_in(model.layers[k], dtype), rows, before);
    x = result.y;
    now.push_back(result.cache);
  }
  return {einsum("bte,ve->btv", layer_norm_over({}, x, model.norm), model.out), now};
}

}  // namespace

Model init_model(const ModelSizes& s, const Array& key) {
  int number = 0;
  const auto draw = [&](const Shape& shape, std::int64_t summed) {
    const Array normal = random::normal(random::fold_in(key, number++), shape);
    return normal * (1.f / std::sqrt(static_cast<float>(summed)));
  };
  Model model{draw({s.vocab, s.embed}, 4), {}, ones({s.embed}), draw({s.vocab, s.embed}, s.embed)};
  for (std::int64_t k = 0; k < s.layers; ++k) {
    model.layers.push_back(
        {ones({s.embed}), draw({s.heads, s.embed, s.qkv + 2 * s.ff}, s.embed),
         draw({s.embed, 1, 2 * s.qkv}, s.embed),
         draw({s.heads, s.qkv + s.ff, s.embed}, s.heads * (s.qkv + s.ff) * s.layers)});
  }
  return model;
}

Specs model_specs(std::size_t layers) {
  const P columns(none, axes("x", "y"));
  return {columns, std::vector<Specs>(layers, weight_specs()), P(axes("x", "y")), columns};
}

std::vector<Array> leaves_of(const Model& model) {
  std::vector<Array> out{model.table};
  for (const LayerWeights& w : model.layers) out.insert(out.end(), {w.norm, w.q_wi, w.kv, w.o_wo});
  out.insert(out.end(), {model.norm, model.out});
  return out;
}

Model with_leaves(const Model& like, const std::vector<Array>& leaves) {
  std::size_t next = 0;
  Model out{leaves.at(next++), {}, {}, {}};
  for (std::size_t k = 0; k < like.layers.size(); ++k, next += 4)
    out.layers.push_back(
        {leaves.at(next), leaves.at(next + 1), leaves.at(next + 2), leaves.at(next + 3)});
  out.norm = leaves.at(next++);
  out.out = leaves.at(next);
  return out;
}

std::int64_t parameter_count(const Model& model) {
  std::int64_t count = 0;
  for (const Array& leaf : leaves_of(model)) count += leaf.size();
  return count;
}

Array plain_loss(const Model& model, const Array& tokens, DType dtype) {
  const std::int64_t rows = tokens.shape()[1] - 1;
  const Step step = plain_step(model, row_range(tokens, 0, rows), 0, {}, dtype);
  return cross_entropy(step.logits, row_range(tokens, 1, rows + 1));
}

Array manual_loss(const Model& model, const Array& tokens, DType dtype, Overlap form) {
  const std::int64_t count = tokens.shape()[1] - 1;
  const Rows rows = rows_of(model, 0, count);
  Array x = take(model.table, row_range(tokens, 0, count), 0);  // [batch.z, time, embed.xy]
  for (const LayerWeights& w : model.layers)
    x = manual_layer(x, products_in(w, dtype), rows, {}, form).y;
  const Array norm = layer_norm_over(axes("x", "y"), x, model.norm);
  const Array logits = psum(einsum("bte,ve->btv", norm, model.out), axes("x", "y"));
  return pmean(cross_entropy(logits, row_range(tokens, 1, count + 1)), "z");
}

std::vector<std::int32_t> generate(const Model& model, const std::vector<std::int32_t>& prompt,
                                   int count, std::int64_t context, const Array& key,
                                   float temperature) {
  if (prompt.empty() || static_cast<std::int64_t>(prompt.size()) >= context)
    throw ValueError("generate: a prompt of " + std::to_string(prompt.size()) +
                     " tokens: from 1 to " + std::to_string(context - 1) +
                     " are wanted, fewer than the context");
  const std::int64_t qkv = model.layers.at(0).kv.shape()[-1] / 2;
  const auto next = jit(
      [temperature](Model m, Array tokens, Array start, std::vector<Cache> before, Array step_key) {
        const Step step = plain_step(m, tokens, start, before, f32);
        const Array logits = step.logits[{0, -1}];
        const Array token = temperature > 0 ? random::categorical(step_key, logits / temperature)
                                            : argmax(logits, 0);
        return std::pair{astype(token, i32), step.caches};
      });
  std::vector<std::int32_t> all = prompt;
  std::vector<Cache> caches;
  std::int64_t filled = 0, first = 0;  // rows of the cache; the token of its row 0
  for (int k = 0; k < count; ++k) {
    const auto length = static_cast<std::int64_t>(all.size());
    if (k == 0 || filled == context) {
      caches.assign(model.layers.size(), empty_cache(1, context, qkv, f32));
      first = k == 0 ? 0 : length - context / 2;
      filled = 0;
    }
    const std::vector<std::int32_t> fresh(all.begin() + first + filled, all.end());
    const auto rows = static_cast<std::int64_t>(fresh.size());
    auto [token, after] =
        next(model, array<std::int32_t>(fresh, {1, rows}), Array(static_cast<std::int32_t>(filled)),
             std::move(caches), random::fold_in(key, k));
    caches = std::move(after);
    filled += rows;
    all.push_back(token.item<std::int32_t>());
  }
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
  return all;
}

}  // namespace transformer
