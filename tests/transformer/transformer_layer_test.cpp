// The layer of examples/transformer: what its manual form communicates, forward and backward; rows
// one by one behind a cache against the whole sequence; layers chosen in a loop; an optimisation
// step.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "examples/transformer/layer.h"
#include "tests/support/under_jit.h"

namespace transformer {
namespace {

using namespace shmap;

constexpr std::int64_t kB = 4, kE = 16, kH = 16, kD = 4, kF = 3;

LayerWeights random_weights(const Shape& stack, DType dtype = f32) {
  const std::vector<Shape> shapes = {
      {kE}, {kH, kE, kD + 2 * kF}, {kE, 1, 2 * kD}, {kH, kD + kF, kE}};
  std::vector<Array> made;
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    std::vector<std::int64_t> extents(stack.begin(), stack.end());
    extents.insert(extents.end(), shapes[k].begin(), shapes[k].end());
    const Array normal = random::normal(random::key(static_cast<int>(k)), Shape(extents));
    made.push_back(astype(k == 0 ? 1.f + 0.1f * normal : 0.3f * normal, dtype));
  }
  return {made[0], made[1], made[2], made[3]};
}
Array random_x(std::int64_t rows, DType dtype = f32) {
  return random::normal(random::key(9), {kB, rows, kE}, dtype);
}

Rows rows_at(const Array& start, std::int64_t count) { return rows_from(start, count, kD); }

template <class M>
auto manual_of(const M& mesh, Overlap form) {
  return shard_map(
      [=](Array x, LayerWeights w) {
        return manual_layer(x, w, rows_at(0, x.shape()[1]), {}, form).y;
      },
      mesh, {residual_spec(), weight_specs()}, residual_spec());
}

// "all_gather(y)" -> how often.
std::map<std::string, int> collectives_of(const ClosedJaxpr& jaxpr) {
  std::map<std::string, int> out;
  for (const CollectiveCost& c : cost_analysis(jaxpr).collectives) {
    std::string name = c.primitive + "(";
    for (const std::string& axis : c.axes) name += axis;
    ++out[name + ")"];
  }
  return out;
}
int products_of(const ClosedJaxpr& jaxpr) {
  const std::string text = to_string(jaxpr);
  int count = 0;
  for (std::size_t at = 0; (at = text.find(" dot_general[", at)) != std::string::npos; ++at)
    ++count;
  return count;
}

TEST(TransformerLayer, Collectives) {
  const AbstractMesh mesh({4, 2, 2}, {"x", "y", "z"});
  const Array x = random_x(6);
  const LayerWeights w = random_weights({});
  const ClosedJaxpr ring = make_jaxpr(manual_of(mesh, Overlap::ring))(x, w);
  // Two means of the norm; k and v; the norm's result; two rings of |x| - 1; the result's sum.
  EXPECT_EQ(collectives_of(ring), (std::map<std::string, int>{{"psum(xy)", 3},
                                                              {"all_gather_invariant(z)", 1},
                                                              {"all_gather(y)", 1},
                                                              {"all_gather(z)", 1},
                                                              {"ppermute(x)", 2 * 3},
                                                              {"psum_scatter(y)", 1},
                                                              {"psum_scatter(z)", 1}}))
      << to_string(ring);
  const ClosedJaxpr plain = make_jaxpr(manual_of(mesh, Overlap::none))(x, w);
  EXPECT_EQ(collectives_of(plain).at("all_gather(x)"), 1);
  EXPECT_EQ(collectives_of(plain).at("psum_scatter(x)"), 1);
  EXPECT_EQ(products_of(ring), products_of(plain) + 2 * 3);  // |x| products where there was one
}

TEST(TransformerLayer, CollectivesBackward) {
  const AbstractMesh mesh({4, 2, 2}, {"x", "y", "z"});
  const auto gradient = [&](Overlap form) {
    const auto loss = [mapped = manual_of(mesh, form)](Array x, LayerWeights w) {
      return sum(mapped(x, w));
    };
    return make_jaxpr(grad<0, 1>(loss))(random_x(6), random_weights({}));
  };
  const ClosedJaxpr ring = gradient(Overlap::ring), plain = gradient(Overlap::none);
  const std::map<std::string, int> counts = collectives_of(ring);
  EXPECT_FALSE(counts.contains("all_gather(x)")) << to_string(ring);
  EXPECT_FALSE(counts.contains("psum_scatter(x)")) << to_string(ring);
  // Forward, and with respect to either operand, of two products.
  EXPECT_EQ(counts.at("ppermute(x)"), 2 * 3 * 3);
  EXPECT_TRUE(collectives_of(plain).contains("all_gather(x)"));
  EXPECT_FALSE(collectives_of(plain).contains("ppermute(x)"));
}

void expect_close(const Array& got, const Array& want, float bound) {
  ASSERT_EQ(got.shape(), want.shape());
  EXPECT_LT(max(abs(astype(got, f32) - astype(want, f32))).item<float>(), bound);
}

// Prefill of two rows and then row by row, plain and manual, gives what the whole sequence gives.
TEST(TransformerLayer, RowsBehindACacheAreThoseOfTheSequence) {
  const Mesh mesh = make_mesh({2, 2, 2}, {"x", "y", "z"});
  for (const DType dtype : {f32, bf16}) {
    const Array x = random_x(6, dtype);
    const LayerWeights w = random_weights({}, dtype);
    const LayerResult whole = plain_layer(x, w, rows_at(0, 6));
    const auto mapped = jit(shard_map(
        [](Array block, LayerWeights blocks, Array start, Cache cache) {
          return manual_layer(block, blocks, rows_at(start, block.shape()[1]), cache);
        },
        mesh, {residual_spec(), weight_specs(), P(), P()}, {residual_spec(), P()}));
    const auto plain = jit([](Array rows, LayerWeights w, Array start, Cache cache) {
      return plain_layer(rows, w, rows_at(start, rows.shape()[1]), cache);
    });
    // bf16: two units in the last place of the largest element.
    const float bound = dtype == f32 ? 2e-5f : max(abs(astype(whole.y, f32))).item<float>() / 64;
    for (const bool manual : {false, true}) {
      Cache cache = empty_cache(kB, 8, kD, dtype);
      std::vector<Array> parts;
      for (std::int32_t start = 0; start < 6; start += start == 0 ? 2 : 1) {
        const Array rows = x[{range(), range(start, start == 0 ? 2 : start + 1)}];
        const LayerResult result =
            manual ? mapped(rows, w, start, cache) : plain(rows, w, start, cache);
        parts.push_back(device_put(result.y, devices()[0]));
        cache = result.cache;
      }
      expect_close(concatenate(parts, 1), whole.y, bound);
      expect_close(device_put(cache.k, devices()[0])[{range(), range(0, 6)}], whole.cache.k, bound);
      expect_close(device_put(cache.v, devices()[0])[{range(), range(0, 6)}], whole.cache.v, bound);
    }
  }
}

TEST(TransformerLayer, LayersAreChosenByATracedIndex) {
  const LayerWeights stacked = random_weights({3});
  const Array x = random_x(5);
  Array want = x;
  for (int k = 0; k < 3; ++k) want = plain_layer(want, layer_of(stacked, k), rows_at(0, 5)).y;
  const auto loop = [](Array x, LayerWeights stacked) {
    return fori_loop(
        0, 3,
        [&](Array k, Array y) { return plain_layer(y, layer_of(stacked, k), rows_at(0, 5)).y; }, x);
  };
  // Products of other extents may add up in another order.
  const float bound = 1e-6f * max(abs(want)).item<float>();
  expect_close(jit(loop)(x, stacked), want, bound);
  // The layer as the body of a scan on a mesh gives the same, and so do the gradients of the
  // stacked weights.
  const Mesh mesh = make_mesh({2, 2, 2}, {"x", "y", "z"});
  std::vector<P> specs;
  for (std::size_t k = 0; k < weight_specs().size(); ++k) {
    std::vector<P::Entry> entries = weight_specs()[k].spec().entries();
    entries.insert(entries.begin(), none);
    specs.push_back(P(entries));
  }
  const auto scanned = shard_map(
      [](Array x, LayerWeights stacked) {
        return scan(
                   [](Array y, LayerWeights w) {
                     return std::pair{manual_layer(y, w, rows_at(0, 5), {}, Overlap::ring).y,
                                      Array(0)};
                   },
                   x, stacked)
            .first;
      },
      mesh, {residual_spec(), specs}, residual_spec());
  expect_close(device_put(jit(scanned)(x, stacked), devices()[0]), want, bound);
  const auto slope = [&](const auto& f) {
    return jit(grad<1>([f](Array x, LayerWeights w) { return sum(square(f(x, w))); }))(x, stacked);
  };
  const LayerWeights a = slope(loop), b = slope(scanned);
  const float scale = max(abs(a.q_wi)).item<float>();
  expect_close(device_put(b.q_wi, devices()[0]), a.q_wi, 1e-5f * scale);
  expect_close(device_put(b.o_wo, devices()[0]), a.o_wo, 1e-4f * max(abs(a.o_wo)).item<float>());
  expect_close(device_put(b.kv, devices()[0]), a.kv, 1e-5f * max(abs(a.kv)).item<float>());
  expect_close(device_put(b.norm, devices()[0]), a.norm, 1e-5f * max(abs(a.norm)).item<float>());
}

TEST(TransformerLayer, EagerAndUnderJitTheSame) {
  const Mesh mesh = make_mesh({2, 2, 2}, {"x", "y", "z"});
  test::expect_same_under_jit(manual_of(mesh, Overlap::ring), test::Communication::no_more,
                              random_x(3), random_weights({}));
}

}  // namespace
}  // namespace transformer
