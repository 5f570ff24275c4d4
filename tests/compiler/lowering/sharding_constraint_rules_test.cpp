// shmap-test: devices
// The rules of sharding_constraint by numbers: jvp against differences, the transpose against jvp,
// vmap against a loop; eagerly and under jit. Also device_put in traced functions, which becomes a
// sharding_constraint.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

Array f(const Array& x) {
  const Mesh mesh = make_mesh({8}, {"i"});
  return with_sharding_constraint(sin(x) * x, NamedSharding(mesh, P("i"))) * 2;
}

double dot_of(const Array& a, const Array& b) { return sum(a * b).item<double>(); }

TEST(ShardingConstraintRules, JvpTransposeAndBatching) {
  const Array x = arange(16, f64) / 5.0 - 1.0, v = cos(x * 3), w = exp(-x);
  const auto g = [](Array a) { return f(a); };
  const double h = 1e-5;
  const double slope = (dot_of(f(x + h * v), w) - dot_of(f(x - h * v), w)) / (2 * h);
  auto [y, tangent] = jvp(g, std::tuple{x}, std::tuple{v});
  auto [z, pullback] = vjp(g, x);
  auto [x_bar] = pullback(w);
  EXPECT_NEAR(dot_of(tangent, w), slope, 1e-7);
  EXPECT_NEAR(dot_of(x_bar, v), dot_of(tangent, w), 1e-12);
  const Array under_jit = jit(grad([&](Array a) { return sum(f(a) * w); }))(x);
  EXPECT_NEAR(dot_of(under_jit, v), slope, 1e-7);

  const Array many = stack(std::vector<Array>{x, v, w});
  const std::vector<double> got = vmap(g)(many).to_vector<double>();
  std::vector<double> want;
  for (const Array& one : {x, v, w})
    for (const double value : f(one).to_vector<double>()) want.push_back(value);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < want.size(); ++k) EXPECT_NEAR(got[k], want[k], 1e-12) << k;
}

NamedSharding rows() { return NamedSharding(make_mesh({8}, {"i"}), P("i")); }
std::vector<float> values(const Array& x) { return x.to_vector<float>(); }

TEST(DevicePut, IsAConstraintUnderTransforms) {
  const Array x = reshape(arange(64), {8, 8});
  const auto f = [](Array a) { return device_put(a, rows()) * 2.f; };
  const auto loss = [=](Array a) { return sum(f(a) * a); };
  const std::vector<float> want = values(x * 2.f), slope = values(x * 4.f);
  for (int call = 0; call < 3; ++call) {
    const Array y = jit(f)(x);
    EXPECT_EQ(values(y), want);
    EXPECT_EQ(y.sharding(), rows());
    EXPECT_EQ(values(jit(grad(loss))(x)), slope);
  }
  EXPECT_EQ(to_string(make_jaxpr(f)(ShapedArray({8}, f32))),
            "{ lambda a:f32[8] .\n  let b:f32[8] = device_put[sharding=P('i')] a\n      c:f32[8] = "
            "mul b 2.0\n  in ( c ) }");
  EXPECT_EQ(values(grad(loss)(x)), slope);
  const auto [y, tangent] = jvp(f, std::tuple{x}, std::tuple{x});
  EXPECT_EQ(values(tangent), want);
  EXPECT_EQ(y.sharding(), rows());
  const Array many = vmap(f)(stack({x, x + 1.f}));
  EXPECT_EQ(values(many), values(stack({x * 2.f, (x + 1.f) * 2.f})));
  EXPECT_EQ(many.sharding(), NamedSharding(make_mesh({8}, {"i"}), P(none, "i")));
  EXPECT_EQ(values(jit(vmap(f))(stack({x, x}))), values(stack({x * 2.f, x * 2.f})));
  EXPECT_EQ(values(hessian([=](Array a) { return sum(f(a) * a); })(arange(8)))[9], 4.f);
  // A constant, in the middle of a program, under loops.
  const auto g = [](Array a) {
    return fori_loop(
        0, 3, [](Array, Array c) { return device_put(c, rows()) + device_put(ones({8}), rows()); },
        a);
  };
  EXPECT_EQ(values(jit(g)(arange(8))), values(arange(8) + 3.f));
}

TEST(DevicePut, MovesToADeviceInPrograms) {
  const Array x = arange(4);
  const Device last = devices().back();
  const auto f = [=](Array a) { return device_put(a, last) + 1.f; };
  const Array y = jit(f)(x);
  EXPECT_EQ(values(y), values(x + 1.f));
  EXPECT_EQ(y.addressable_shards().at(0).device, last);
  EXPECT_EQ(values(grad([=](Array a) { return sum(f(a) * f(a)); })(x)), values((x + 1.f) * 2.f));
}

// If a value is used on two meshes, its cotangents meet on the mesh that it comes from.
TEST(DevicePut, OfACotangentGoesBack) {
  const std::vector<Device> all = devices();
  const Mesh left(NdArray<Device>({all[0], all[1]}, {2}), "i");
  const Mesh right(NdArray<Device>({all[2], all[3]}, {2}), "i");
  const NamedSharding here(left, P("i")), there(right, P("i")), back(left, P());
  const Array x = device_put(arange(4), here);
  const auto f = [&](Array a) {
    return sum(a * a) + device_put(sum(device_put(a, there) * 3.f), back);
  };
  const Array slope = grad(f)(x);
  EXPECT_EQ(values(slope), values(arange(4) * 2.f + 3.f));
  EXPECT_EQ(slope.sharding().mesh(), left);
}

TEST(DevicePut, SaysWhatCannotBeDone) {
  const Array x = arange(16);
  const char* here = "sharding_constraint_rules_test.cpp:";
  const auto in_body = [&](auto body) {
    return shard_map(body, make_mesh({8}, {"i"}), P("i"), P("i"));
  };
  const auto put = in_body([](Array a) { return device_put(a, rows()); });
  const auto to_device = in_body([](Array a) { return device_put(a, devices()[0]); });
  for (const auto& f : {std::function<Array(Array)>(put), std::function<Array(Array)>(jit(put)),
                        std::function<Array(Array)>(to_device)}) {
    test::expect_error<ValueError>([&] { f(x); },
                                   {"device_put", "inside a shard_map body", "in_specs", here});
  }
  test::expect_error<ValueError>(
      [&] { jit([](Array a) { return device_put(a, rows()); })(arange(6)); },
      {"6", "'i'", "8", here});
  test::expect_error<TypeError>(
      [&] { jit([](Array a) { return process_allgather(a); })(x); },
      {"process_allgather was given an array of type f32[16]", "call it outside of the function"});
}

}  // namespace
}  // namespace shmap
