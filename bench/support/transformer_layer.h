// A transformer layer in float32 on a mesh of 4 × 2 devices, 2D weight-gathered: activations are
// split over batch ("i") and embedding ("j"), weights over both, and weights are gathered over "i"
// where they are used. B, S, E, H, D, F = 8, 128, 512, 8, 64, 2048. Also the same layer in double
// for one sequence of the batch.
#pragma once
#include <shmap/shmap.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "bench/support/data.h"

namespace shmap::bench::transformer {

constexpr std::size_t B = 8, S = 128, E = 512, H = 8, D = 64, F = 2048;
constexpr float kEps = 1e-6f;
constexpr double kForwardFlops = 2.0 * B * S * (4 * E * H * D + 2 * E * F + 2 * S * H * D);

struct Layer {
  Array scale, wq, wk, wv, wo, w_in, w_out;
};

// The layer on one device.
inline Array layer_body(Array x, Layer w) {
  const auto gathered = [](const Array& part, int axis) {
    return all_gather(part, "i", {.axis = axis, .tiled = true});
  };
  Array h = rms_norm(all_gather(x, "j", {.axis = 2, .tiled = true}), w.scale, kEps);
  Array q = einsum("bse,ehd->bshd", h, gathered(w.wq, 0));
  Array k = einsum("bse,ehd->bshd", h, gathered(w.wk, 0));
  Array v = einsum("bse,ehd->bshd", h, gathered(w.wv, 0));
  Array scores = einsum("bqhd,bkhd->bhqk", q, k) * (1.f / std::sqrt(static_cast<float>(D)));
  Array position = arange(static_cast<int>(S));
  scores = where(reshape(position, {S, 1}) >= position, scores, -1e30f);
  Array mixed = einsum("bhqk,bkhd->bqhd", softmax(scores), v);
  Array attended = einsum("bshd,hde->bse", mixed, gathered(w.wo, 2));
  Array hidden = silu(matmul(h, gathered(w.w_in, 0)));
  Array out = attended + matmul(hidden, gathered(w.w_out, 1));
  return x + psum_scatter(out, "j", {.scatter_dimension = 2, .tiled = true});
}

using Values = std::vector<float>;
inline Values scaled(std::size_t n, std::uint64_t seed, float scale) {
  Values values = random_floats(n, seed);
  for (float& v : values) v *= scale;
  return values;
}

struct Data {
  Values x = random_floats(B * S * E, 1), scale = random_floats(E, 2);
  // The scales give values of about unit variance after each product.
  Values wq = scaled(E * H * D, 3, 0.08f), wk = scaled(E * H * D, 4, 0.08f);
  Values wv = scaled(E * H * D, 5, 0.08f), wo = scaled(H * D * E, 6, 0.08f);
  Values w_in = scaled(E * F, 7, 0.08f), w_out = scaled(F * E, 8, 0.04f);

  Mesh mesh;

  explicit Data(const Mesh& on = make_mesh({4, 2}, {"i", "j"})) : mesh(on) {}
  Array put(const Values& values, const Shape& shape, const P& spec) const {
    return device_put(array<float>(values, shape), NamedSharding(mesh, spec));
  }
  Array input() const { return put(x, {B, S, E}, P("i", none, "j")); }
  Layer weights() const {
    return {put(scale, {E}, P()),
            put(wq, {E, H, D}, P("i", "j")),
            put(wk, {E, H, D}, P("i", "j")),
            put(wv, {E, H, D}, P("i", "j")),
            put(wo, {H, D, E}, P("j", none, "i")),
            put(w_in, {E, F}, P("i", "j")),
            put(w_out, {F, E}, P("j", "i"))};
  }
  auto mapped() const {
    const P rows("i", "j");
    return shard_map(
        layer_body, mesh,
        {P("i", none, "j"), {P(), rows, rows, rows, P("j", none, "i"), rows, P("j", "i")}},
        P("i", none, "j"));
  }
};

// ------------------------------------------------------------------------ the reference, in double

using Doubles = std::vector<double>;

// a[m, k] b[k, n]
template <class A>
Doubles product(const A& a, const Values& b, std::size_t k, std::size_t n) {
  const std::size_t m = a.size() / k;
  Doubles c(m * n, 0.0);
  for (std::size_t r = 0; r < m; ++r)
    for (std::size_t j = 0; j < k; ++j)
      for (std::size_t q = 0; q < n; ++q) c[r * n + q] += double(a[r * k + j]) * b[j * n + q];
  return c;
}

inline void softmax_in_place(double* values, std::size_t n) {
  const double most = *std::max_element(values, values + n);
  double sum = 0;
  for (std::size_t k = 0; k < n; ++k) sum += values[k] = std::exp(values[k] - most);
  for (std::size_t k = 0; k < n; ++k) values[k] /= sum;
}

inline Doubles attention(const Doubles& q, const Doubles& k, const Doubles& v) {
  Doubles mixed(S * H * D, 0.0);
  std::vector<double> weights(S);
  for (std::size_t head = 0; head < H; ++head) {
    for (std::size_t row = 0; row < S; ++row) {
      const auto at = [head](const Doubles& t, std::size_t s, std::size_t d) {
        return t[(s * H + head) * D + d];
      };
      for (std::size_t col = 0; col <= row; ++col) {
        weights[col] = 0;
        for (std::size_t d = 0; d < D; ++d) weights[col] += at(q, row, d) * at(k, col, d);
        weights[col] /= std::sqrt(double(D));
      }
      softmax_in_place(weights.data(), row + 1);
      for (std::size_t col = 0; col <= row; ++col)
        for (std::size_t d = 0; d < D; ++d)
          mixed[(row * H + head) * D + d] += weights[col] * at(v, col, d);
    }
  }
  return mixed;
}

// The layer for one sequence: x[S, E].
inline Doubles reference(const Data& t, std::size_t sequence) {
  const float* const x = t.x.data() + sequence * S * E;
  Doubles h(S * E);
  for (std::size_t s = 0; s < S; ++s) {
    double power = 0;
    for (std::size_t e = 0; e < E; ++e) power += double(x[s * E + e]) * x[s * E + e];
    const double factor = 1 / std::sqrt(power / E + kEps);
    for (std::size_t e = 0; e < E; ++e) h[s * E + e] = x[s * E + e] * factor * t.scale[e];
  }
  const Doubles mixed =
      attention(product(h, t.wq, E, H * D), product(h, t.wk, E, H * D), product(h, t.wv, E, H * D));
  Doubles hidden = product(h, t.w_in, E, F);
  for (double& v : hidden) v /= 1 + std::exp(-v);
  const Doubles attended = product(mixed, t.wo, H * D, E), fed = product(hidden, t.w_out, F, E);
  Doubles out(S * E);
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = x[k] + attended[k] + fed[k];
  return out;
}

constexpr std::size_t kChecked = 5;  // index of the checked sequence

inline std::string compare(const Array& got, const Doubles& want) {
  const Values all = got.to_vector<float>();
  return difference(std::span(all).subspan(kChecked * S * E, S * E), want, 1e-4);
}

}  // namespace shmap::bench::transformer
