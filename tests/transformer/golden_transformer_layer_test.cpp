// shmap-test: devices
// The layer of examples/transformer against JAX: forward with all gradients, prefill and decode
// behind a cache, f32 and bf16; plain on one device and partitioned over a mesh, manual in each
// form over meshes of several shapes.
#include <gtest/gtest.h>

#include <functional>

#include "examples/transformer/layer.h"
#include "tests/support/golden_array.h"

namespace transformer {
namespace {

using namespace shmap;
using shmap::testing::GoldenCase;

using Layer = std::function<LayerResult(Array, LayerWeights, Array start, std::optional<Cache>)>;

Rows rows_of(const Array& x, const LayerWeights& w, const Array& start) {
  return rows_from(start, x.shape()[1], w.kv.shape()[-1] / 2);
}

Layer plain(const std::optional<Mesh>& mesh) {
  return [=](Array x, LayerWeights w, Array start, std::optional<Cache> cache) {
    return plain_layer(x, w, rows_of(x, w, start), cache, mesh);
  };
}

Layer manual(const Mesh& mesh, Overlap form) {
  return [=](Array x, LayerWeights w, Array start, std::optional<Cache> cache) {
    const auto mapped = shard_map(
        [=](Array block, LayerWeights blocks, Array first, std::optional<Cache> rows) {
          return manual_layer(block, blocks, rows_of(block, blocks, first), rows, form);
        },
        mesh, {residual_spec(), weight_specs(), P(), P()}, {residual_spec(), P()});
    return mapped(x, w, start, cache);
  };
}

void expect_golden_layer(const Layer& layer, bool jitted) {
  int count = 0;
  for (const GoldenCase& c : shmap::testing::load_golden("transformer")) {
    SCOPED_TRACE(c.name);
    ++count;
    const auto in = [&](std::size_t k) { return shmap::testing::to_array(c.inputs.at(k)); };
    const Array x = in(0), start = Array(static_cast<std::int32_t>(c.params.integer("start")));
    const LayerWeights w{in(1), in(2), in(3), in(4)};
    std::vector<Array> got;
    if (c.params.text("kind") == "forward") {
      const auto run = [&](Array x, LayerWeights w, Array ct) {
        const LayerResult result = layer(x, w, start, {});
        auto [y, pullback] =
            vjp([&](Array x, LayerWeights w) { return layer(x, w, start, {}).y; }, x, w);
        auto [x_bar, w_bar] = pullback(ct);
        return std::vector<Array>{y,          result.cache.k, result.cache.v, x_bar,
                                  w_bar.norm, w_bar.q_wi,     w_bar.kv,       w_bar.o_wo};
      };
      got = jitted ? jit(run)(x, w, in(5)) : run(x, w, in(5));
    } else {
      const auto run = [&](Array x, LayerWeights w, Array start, Cache cache) {
        const LayerResult result = layer(x, w, start, cache);
        return std::vector<Array>{result.y, result.cache.k, result.cache.v};
      };
      const Cache cache{in(5), in(6)};
      got = jitted ? jit(run)(x, w, start, cache) : run(x, w, start, cache);
    }
    ASSERT_EQ(got.size(), c.outputs.size());
    for (std::size_t o = 0; o < got.size(); ++o) {
      EXPECT_EQ(shmap::testing::golden_diff(c.outputs[o], got[o],
                                            static_cast<int>(c.params.integer("ulp")),
                                            c.params.number(o < 3 ? "atol" : "grad_atol")),
                "")
          << "output " << o;
    }
  }
  EXPECT_EQ(count, 8);
}

Mesh cube() { return make_mesh({2, 2, 2}, {"x", "y", "z"}); }

TEST(GoldenTransformerLayer, PlainOnOneDevice) {
  expect_golden_layer(plain({}), false);
  expect_golden_layer(plain({}), true);
}

TEST(GoldenTransformerLayer, PlainPartitioned) { expect_golden_layer(plain(cube()), true); }

TEST(GoldenTransformerLayer, ManualInEachForm) {
  for (const Overlap form : {Overlap::automatic, Overlap::none, Overlap::two_rings})
    expect_golden_layer(manual(cube(), form), true);
  expect_golden_layer(manual(cube(), Overlap::ring), false);
}

TEST(GoldenTransformerLayer, ManualOverMeshesOfOtherShapes) {
  for (const Shape& sizes : {Shape{4, 1, 2}, Shape{1, 4, 2}, Shape{8, 1, 1}, Shape{2, 2, 1}})
    expect_golden_layer(manual(make_mesh(sizes, {"x", "y", "z"}), Overlap::ring), true);
}

}  // namespace
}  // namespace transformer
