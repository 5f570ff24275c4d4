#include "layer.h"

#include <cmath>

namespace transformer {

using namespace shmap;

namespace {

// The first `limit` elements of the last dim.
Array part(const Array& t, std::int64_t first, std::int64_t limit) {
  return t[{ellipsis, range(first, limit)}];
}

Cache written(const Cache& cache, const Array& k, const Array& v, const Array& start) {
  return {dynamic_update_slice(cache.k, k, {0, start, 0, 0}),
          dynamic_update_slice(cache.v, v, {0, start, 0, 0})};
}

struct Mixed {
  Array fused;  // [B, T, H, D + F]
  Cache cache;
};

// The computation between the products, for all heads or for a device's own heads.
Mixed mix(const Array& q_wi, const Array& kv, const Rows& rows, const std::optional<Cache>& cache) {
  const std::int64_t d = kv.shape()[-1] / 2, width = q_wi.shape()[-1], f = (width - d) / 2;
  const Array q = rope(rows, part(q_wi, 0, d));
  const Array k = rope(rows, part(kv, 0, d)), v = part(kv, d, 2 * d);
  const Cache now = cache ? written(*cache, k, v, rows.start) : Cache{k, v};
  AttentionOptions options{.is_causal = !cache};
  if (cache) options.mask = seen(rows.start, q.shape()[1], now.k.shape()[1]);
  const Array y_att = attention(q, now.k, now.v, options);
  const Array wi0 = astype(part(q_wi, d, d + f), f32), wi1 = part(q_wi, d + f, width);
  const Array y_mlp = astype(silu(wi0), wi1.dtype()) * wi1;
  return {concatenate({y_att, y_mlp}, 3), now};
}

}  // namespace

LayerWeights layer_of(const LayerWeights& stacked, const Array& layer) {
  const auto one = [&](const Array& t) { return dynamic_index_in_dim(t, layer, 0, false); };
  return {one(stacked.norm), one(stacked.q_wi), one(stacked.kv), one(stacked.o_wo)};
}

Cache empty_cache(std::int64_t batch, std::int64_t capacity, std::int64_t qkv, DType dtype) {
  const Shape shape{batch, capacity, 1, qkv};
  return {zeros(shape, dtype), zeros(shape, dtype)};
}

Rows rows_from(const Array& start, std::int64_t count, std::int64_t qkv, double theta) {
  const std::int64_t half = qkv / 2;
  const Array turns = exp(arange(half) * static_cast<float>(-std::log(theta) / double(half)));
  const Array position = astype(start + iota(i32, count), f32);
  const Array angles = reshape(position, {count, 1, 1}) * turns;
  return {start, sin(angles), cos(angles)};
}

Array seen(const Array& start, std::int64_t rows, std::int64_t columns) {
  return reshape(start + iota(i32, rows), {1, 1, rows, 1}) >=
         reshape(iota(i32, columns), {1, 1, 1, columns});
}

Array rope(const Rows& rows, const Array& t) {
  const std::int64_t half = t.shape()[-1] / 2;
  const Array a = astype(part(t, 0, half), f32), b = astype(part(t, half, 2 * half), f32);
  const Array turned =
      concatenate({a * rows.cos - b * rows.sin, b * rows.cos + a * rows.sin}, t.ndim() - 1);
  return astype(turned, t.dtype());
}

const AxisRules& layout() {
  static const AxisRules rules{{"residual_batch", "z"},
                               {"residual_embed", axes("x", "y")},
                               {"batch", none},
                               {"time", none},
                               {"embed", "x"},
                               {"weight_heads", axes("y", "z")},
                               {"heads", axes("y", "z", "x")},
                               {"per_head", none}};
  return rules;
}

Specs weight_specs() {
  const AxisRules& at = layout();
  return {at("residual_embed"), at("weight_heads", "embed", "per_head"),
          at("residual_embed", none, "per_head"), at("weight_heads", "per_head", "embed")};
}

P residual_spec() { return layout()("residual_batch", "time", "residual_embed"); }

Array layer_norm_over(const Axes& axes, const Array& x, const Array& scale) {
  const auto whole_mean = [&](const Array& t) {
    const Array own = mean(t, -1, true);
    return axes.size() == 0 ? own : pmean(own, axes);
  };
  const Array wide = astype(x, f32);
  const Array apart = wide - whole_mean(wide);
  return apart * rsqrt(whole_mean(square(apart)) + 1e-6f) * astype(scale, f32);
}

LayerResult plain_layer(const Array& x, const LayerWeights& w, const Rows& rows,
                        const std::optional<Cache>& cache, const std::optional<Mesh>& mesh) {
  const auto lies = [&](const Array& t, const P& spec) {
    return mesh ? with_sharding_constraint(t, NamedSharding(*mesh, spec)) : t;
  };
  const AxisRules& at = layout();
  const Array residual = lies(x, residual_spec());
  const Array norm = astype(layer_norm_over({}, residual, w.norm), w.q_wi.dtype());
  const Array xnorm = lies(norm, at("batch", "time", "embed"));
  const Array q_wi =
      lies(einsum("bte,hed->bthd", xnorm, w.q_wi), at("batch", "time", "heads", "per_head"));
  const Array kv = lies(einsum("bte,ezd->btzd", xnorm, w.kv), P());
  Mixed mixed = mix(q_wi, kv, rows, cache);
  const Array fused = lies(mixed.fused, at("batch", "time", "heads", "per_head"));
  const Array out = einsum("bthd,hde->bte", fused, w.o_wo);
  return {residual + lies(astype(out, x.dtype()), residual_spec()), mixed.cache};
}

LayerResult manual_layer(const Array& x, const LayerWeights& w, const Rows& rows,
                         const std::optional<Cache>& cache, Overlap form) {
  const auto gathered = [](const Array& t, const char* axis, int dim) {
    return all_gather(t, axis, {.axis = dim, .tiled = true});
  };
  const auto scattered = [](const Array& t, const char* axis, int dim) {
    return psum_scatter(t, axis, {.scatter_dimension = dim, .tiled = true});
  };
  // [batch.z, time, embed.xy]
  const Array own = astype(layer_norm_over(axes("x", "y"), x, w.norm), w.q_wi.dtype());
  // [batch.z, time, 1, 2 D] -> [batch, time, 1, 2 D], the same on all devices
  const Array kv = all_gather_invariant(psum(einsum("bte,ezd->btzd", own, w.kv), axes("x", "y")),
                                        "z", {.axis = 0, .tiled = true});
  // [batch, time, embed.x] @ [heads.yz, embed.x, …] -> [batch, time, heads.yz, …], a sum over x
  // -> [batch, time, heads.yzx, …]
  const Array q_wi = [&] {
    named_scope scope("q_wi");
    const Array xnorm = gathered(gathered(own, "y", 2), "z", 0);
    return einsum_psum_scatter("bte,hed->bthd", xnorm, w.q_wi, "x",
                               {.scatter_dimension = 2, .form = form});
  }();
  Mixed mixed = mix(q_wi, kv, rows, cache);
  // [batch, time, heads.yzx, …] -> heads.yz @ [heads.yz, …, embed.x] -> [batch, time, embed.x], a
  // sum over y and z -> [batch.z, time, embed.xy]
  named_scope scope("o_wo");
  const Array out =
      all_gather_einsum("bthd,hde->bte", mixed.fused, w.o_wo, "x", {.axis = 2, .form = form});
  return {x + astype(scattered(scattered(out, "y", 2), "z", 0), x.dtype()), mixed.cache};
}

}  // namespace transformer
