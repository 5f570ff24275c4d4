#include "training.h"

#include <numbers>
#include <vector>

namespace transformer {

using namespace shmap;

namespace {

// Applies f to the arrays of several models of the same form, one after another.
template <class F, class... M>
Model each(const F& f, const Model& first, const M&... others) {
  const std::vector<Array> a = leaves_of(first);
  const std::vector<Array> rest[] = {leaves_of(others)..., {}};
  std::vector<Array> out;
  for (std::size_t k = 0; k < a.size(); ++k) {
    if constexpr (sizeof...(M) == 0) {
      out.push_back(f(a[k]));
    } else if constexpr (sizeof...(M) == 1) {
      out.push_back(f(a[k], rest[0][k]));
    } else {
      out.push_back(f(a[k], rest[0][k], rest[1][k]));
    }
  }
  return with_leaves(first, out);
}

std::vector<P> leaf_specs(const Specs& specs) {
  if (specs.kind() == Specs::leaf) return {specs.spec()};
  std::vector<P> out;
  for (std::size_t k = 0; k < specs.size(); ++k) {
    const std::vector<P> below = leaf_specs(specs[k]);
    out.insert(out.end(), below.begin(), below.end());
  }
  return out;
}

State placed(const State& state, const Mesh& mesh, const std::vector<P>& specs) {
  const auto model = [&](const Model& m) {
    const std::vector<Array> leaves = leaves_of(m);
    std::vector<Array> out;
    for (std::size_t k = 0; k < leaves.size(); ++k)
      out.push_back(device_put(leaves[k], NamedSharding(mesh, specs.at(k))));
    return with_leaves(m, out);
  };
  return {model(state.params), model(state.mean), model(state.power),
          device_put(state.step, NamedSharding(mesh, P()))};
}

}  // namespace

State first_state(const Model& model) {
  const Model none = each([](const Array& x) { return zeros_like(x); }, model);
  return {model, none, none, zeros({})};
}

Array LearningRates::rate_at(const Array& step) const {
  const Array rising = minimum((step + 1.f) / static_cast<float>(warmup), 1.f);
  const Array done = minimum(step / static_cast<float>(steps), 1.f);
  const Array falling = 0.55f + 0.45f * cos(done * std::numbers::pi_v<float>);
  return rate * rising * falling;
}

State adam(const State& s, const Model& gradient, const LearningRates& schedule) {
  constexpr float kMean = 0.9f, kPower = 0.95f;
  const Array count = s.step + 1.f, rate = schedule.rate_at(s.step);
  const Array mean_share = 1.f - pow(kMean, count), power_share = 1.f - pow(kPower, count);
  State out{{},
            each([](const Array& m, const Array& g) { return kMean * m + (1 - kMean) * g; }, s.mean,
                 gradient),
            each([](const Array& p, const Array& g) { return kPower * p + (1 - kPower) * g * g; },
                 s.power, gradient),
            count};
  out.params = each(
      [&](const Array& x, const Array& m, const Array& p) {
        return x - rate * (m / mean_share) / (sqrt(p / power_share) + 1e-8f);
      },
      s.params, out.mean, out.power);
  return out;
}

Split one_device(DType dtype) {
  return {"one device", [dtype](Model m, Array t) { return plain_loss(m, t, dtype); },
          [](const State& s) { return s; }, [](const Array& t) { return t; }};
}

Split data_parallel(DType dtype) {
  const Mesh mesh = make_mesh({static_cast<int>(devices().size())}, {"data"});
  return {"data parallel",
          shard_map([dtype](Model m, Array t) { return pmean(plain_loss(m, t, dtype), "data"); },
                    mesh, {P(), P("data")}, P()),
          [mesh](const State& s) {
            return placed(s, mesh, std::vector<P>(leaves_of(s.params).size()));
          },
          [mesh](const Array& t) { return device_put(t, NamedSharding(mesh, P("data"))); }};
}

Split two_dims(const Shape& xyz, DType dtype) {
  const Mesh mesh = make_mesh(xyz, {"x", "y", "z"});
  const auto specs_of = [](const Model& m) { return model_specs(m.layers.size()); };
  return {"2D sharded",
          [=](Model m, Array t) {
            return shard_map(
                [dtype](Model blocks, Array tokens) { return manual_loss(blocks, tokens, dtype); },
                mesh, {specs_of(m), P("z")}, P())(m, t);
          },
          [=](const State& s) { return placed(s, mesh, leaf_specs(specs_of(s.params))); },
          [mesh](const Array& t) { return device_put(t, NamedSharding(mesh, P("z"))); }};
}

Shape default_mesh(std::int64_t count) {
  std::int64_t sizes[3] = {1, 1, 1};
  for (int k = 0; count % 2 == 0; count /= 2) sizes[k++ % 3] *= 2;
  return {sizes[0], sizes[1], sizes[2] * count};
}

State gathered(const State& s) {
  const auto whole = [](const Array& x) {
    if (process_count() == 1) return device_put(x, devices()[0]);
    return array<float>(process_allgather(x).to_vector<float>(), x.shape());
  };
  return {each(whole, s.params), each(whole, s.mean), each(whole, s.power), whole(s.step)};
}

}  // namespace transformer
