// shmap-test: devices
// Keys as arrays, the hash's known answers, blocks of bits, generators of one's own, and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <sstream>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using test::expect_error;
using ::testing::Each;
using ::testing::ElementsAre;
using Words = std::vector<std::uint32_t>;

Words words(const Array& keys) { return extend::random_unwrap(keys).to_vector<std::uint32_t>(); }
Words values(const Array& x) { return x.to_vector<std::uint32_t>(); }
Array pair(std::uint32_t a, std::uint32_t b) { return array<std::uint32_t>({a, b}, {2}); }

// Random123's known answers.
TEST(Threefry, HasTheKnownAnswers) {
  const auto hash = [](Array key, Array counts) {
    return values(extend::threefry_2x32(key, counts));
  };
  EXPECT_THAT(hash(pair(0, 0), pair(0, 0)), ElementsAre(0x6b200159u, 0x99ba4efeu));
  EXPECT_THAT(hash(pair(~0u, ~0u), pair(~0u, ~0u)), ElementsAre(0x1cb996fcu, 0xbb002be7u));
  EXPECT_THAT(hash(pair(0x13198a2e, 0x03707344), pair(0x243f6a88, 0x85a308d3)),
              ElementsAre(0xc4923a9cu, 0x483df7a0u));
  const Array many = stack({full({50000}, 0x243f6a88u), full({50000}, 0x85a308d3u)});
  const Array bulk = extend::threefry_2x32(pair(0x13198a2e, 0x03707344), many);
  EXPECT_EQ(bulk.shape(), Shape({2, 50000}));
  EXPECT_THAT(values(bulk[0]), Each(0xc4923a9cu));
  EXPECT_THAT(values(bulk[1]), Each(0x483df7a0u));
  EXPECT_EQ(extend::threefry_2x32(pair(1, 2), zeros({10, 0}, u32)).shape(), Shape({10, 0}));
  expect_error<TypeError>([] { extend::threefry_2x32(pair(1, 2), zeros({2}, i32)); },
                          {"threefry_2x32", "i32[2]", "wanted u32", "keys_test.cpp"});
  expect_error<ValueError>([] { extend::threefry_2x32(zeros({3}, u32), zeros({2}, u32)); },
                           {"threefry_2x32", "u32[3]", "u32[2]"});
}

TEST(Keys, AreOf64BitSeeds) {
  EXPECT_THAT(words(random::key(0)), ElementsAre(0u, 0u));
  EXPECT_THAT(words(random::key(-1)), ElementsAre(~0u, ~0u));
  EXPECT_THAT(words(random::key(123456789012)), ElementsAre(28u, 3197704724u));
  EXPECT_THAT(words(random::key(full({}, std::int64_t{123456789012}, i64))),
              ElementsAre(28u, 3197704724u));
  EXPECT_THAT(words(random::key(full({}, -1, i32))), ElementsAre(0u, ~0u));
  EXPECT_THAT(values(random::PRNGKey(7)), ElementsAre(0u, 7u));
  EXPECT_EQ(to_string(random::key(0).type()), "key<fry>[]");
  std::ostringstream out;
  out << random::split(random::key(0));
  EXPECT_NE(out.str().find("1797259609"), std::string::npos) << out.str();
  expect_error<TypeError>([] { random::key(zeros({})); }, {"key", "f32[]", "integer"});
  expect_error<ValueError>([] { random::key(zeros({2}, i32)); }, {"key", "i32[2]", "vmap"});
}

TEST(Keys, AreArraysLikeOthers) {
  const Array keys = random::split(random::key(0), 6);
  const Words all = words(keys);
  const auto run = [](Array pairs) {
    const Array k = extend::random_wrap(pairs);
    return std::vector<Array>{extend::random_unwrap(k[1]),
                              extend::random_unwrap(k[range(2, 4)]),
                              extend::random_unwrap(reshape(k, {2, 3})[1]),
                              extend::random_unwrap(stack({k[0], k[5]})),
                              extend::random_unwrap(transpose(reshape(k, {2, 3}))),
                              extend::random_unwrap(take(k, array<std::int32_t>({4, 0}, {2}), 0)),
                              extend::random_unwrap(where(array<bool>({true, false}, {2}),
                                                          k[range(0, 2)], k[range(4, 6)])),
                              extend::random_unwrap(broadcast_to(k[3], {2})),
                              extend::random_unwrap(concatenate({k[range(4, 6)], k[range(0, 1)]}))};
  };
  const std::vector<Array> got =
      test::expect_same_under_jit(run, test::Communication::same, extend::random_unwrap(keys));
  const auto second = [](Array k) { return extend::random_unwrap(k[1]); };
  EXPECT_THAT(values(jit(second)(keys)), ElementsAre(all[2], all[3]));
  const auto key = [&](std::size_t i) { return Words{all[2 * i], all[2 * i + 1]}; };
  const auto join = [&](std::initializer_list<std::size_t> which) {
    Words out;
    for (std::size_t i : which) out.insert(out.end(), {all[2 * i], all[2 * i + 1]});
    return out;
  };
  EXPECT_EQ(values(got[0]), key(1));
  EXPECT_EQ(values(got[1]), join({2, 3}));
  EXPECT_EQ(values(got[2]), join({3, 4, 5}));
  EXPECT_EQ(values(got[3]), join({0, 5}));
  EXPECT_EQ(values(got[4]), join({0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(values(got[5]), join({4, 0}));
  EXPECT_EQ(values(got[6]), join({0, 5}));
  EXPECT_EQ(values(got[7]), join({3, 3}));
  EXPECT_EQ(values(got[8]), join({4, 5, 0}));

  const Mesh mesh = make_mesh({2}, {"i"});
  EXPECT_EQ(words(device_put(keys, NamedSharding(mesh, P("i")))), all);
  expect_error<TypeError>([&] { keys + keys; }, {"add", "key<fry>", "no arithmetic"});
  expect_error<TypeError>([&] { keys * 2; }, {"mul", "key<fry>", "no arithmetic"});
  expect_error<TypeError>([&] { exp(keys); }, {"exp", "key<fry>"});
  expect_error<TypeError>([&] { astype(keys, f32); }, {"key<fry>"});
}

TEST(Keys, OfLegacyFormStaySo) {
  const Array raw = random::PRNGKey(0);
  EXPECT_EQ(random::split(raw).type(), ShapedArray({2, 2}, u32));
  EXPECT_EQ(values(random::split(raw)), words(random::split(random::key(0))));
  EXPECT_EQ(values(random::fold_in(raw, 3)), words(random::fold_in(random::key(0), 3)));
  EXPECT_EQ(values(random::bits(raw, {4})), values(random::bits(random::key(0), {4})));
}

TEST(Keys, SplitIntoAnArrayOfThem) {
  auto [k1, k2] = random::split<2>(random::key(0));
  EXPECT_THAT(words(k1), ElementsAre(1797259609u, 2579123966u));
  EXPECT_THAT(words(k2), ElementsAre(928981903u, 3453687069u));
  EXPECT_EQ(random::split(k1, 0).shape(), Shape({0}));
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(words(random::fold_in(k1, i)), words(random::split(k1, 3)[i]));
}

TEST(Keys, UnderVmap) {
  const Array keys = random::split(random::key(5), 4);
  const auto draw = [](Array k) { return random::bits(random::split(k)[1], {3}); };
  const Array many = vmap(draw)(keys);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(values(many[i]), values(draw(keys[i])));
  const auto fold = [](Array k, Array d) { return extend::random_unwrap(random::fold_in(k, d)); };
  const Array steps = arange(4, i32);
  const Array folded = vmap(fold)(keys, steps), one = vmap(fold, {none, 0})(keys[0], steps);
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(values(folded[i]), values(fold(keys[i], steps[i])));
    EXPECT_EQ(values(one[i]), values(fold(keys[0], steps[i])));
  }
  const auto seeds = [](Array s) { return extend::random_unwrap(random::key(s)); };
  EXPECT_THAT(values(vmap(seeds)(array<std::int32_t>({3, 9}, {2}))), ElementsAre(0, 3, 0, 9));
  // A batch of keys along another dim, and of normals.
  const Array grid = reshape(random::split(random::key(6), 6), {3, 2});
  const auto pairs = [](Array k) {
    return vmap([](Array x) { return random::normal(x, {2}); })(k);
  };
  const Array columns = vmap(pairs, 1)(grid);
  EXPECT_EQ(columns[1][2].to_vector<float>(), random::normal(grid[{2, 1}], {2}).to_vector<float>());
}

// What stands for a tangent, a cotangent or a residual that is not there has words of 0.
// Vectors hold words of several keys where each key gives few elements.
TEST(Keys, OfAnyNumberGiveTheElementsOfEach) {
  for (const std::int64_t n : {1, 3, 4, 17, 300}) {
    const Array keys = random::split(random::key(5), Shape{n});
    for (const std::int64_t size : {1, 2, 3, 31, 32, 70}) {
      const auto bits = [&](Array k) { return random::bits(k, {size}, u32); };
      const auto bytes = [&](Array k) { return random::bits(k, {size}, u8); };
      const auto floats = [&](Array k) { return random::uniform(k, {size}); };
      const auto split = [&](Array k) { return extend::random_unwrap(random::split(k, size)); };
      const auto folded = [&](Array k) {
        return extend::random_unwrap(random::fold_in(k, full({}, 77u, u32)));
      };
      const auto check = [&](const std::function<Array(Array)>& f, const char* what) {
        std::vector<Array> each;
        for (std::int64_t i = 0; i < n; ++i) each.push_back(f(keys[i]));
        const Array expected = stack(each);
        EXPECT_TRUE(all(vmap(f)(keys) == expected).item<bool>()) << what << ' ' << n << ' ' << size;
        EXPECT_TRUE(all(jit(vmap(f))(keys) == expected).item<bool>())
            << what << ' ' << n << ' ' << size;
      };
      check(bits, "bits"), check(bytes, "bytes"), check(floats, "floats"), check(split, "split");
      if (size == 1) check(folded, "fold_in");
    }
  }
}

TEST(Keys, HaveZeros) {
  const Array x = ones({4}), key = random::key(1);
  auto [y, pullback] = vjp([](Array a, Array k) { return a * random::normal(k, {4}); }, x, key);
  const auto [x_bar, key_bar] = pullback(x);
  EXPECT_EQ(x_bar.to_vector<float>(), y.to_vector<float>());
  EXPECT_THAT(words(key_bar), ElementsAre(0u, 0u));
  const auto with_key = [](Array a) { return std::pair{a, random::key(3)}; };
  EXPECT_THAT(words(jvp(with_key, std::tuple{x}, std::tuple{x}).second.second),
              ElementsAre(0u, 0u));

  const auto twice = custom_jvp([](Array a, Array) { return a * 2.f; },
                                [](std::tuple<Array, Array> p, std::tuple<Array, Array> t) {
                                  return std::pair{std::get<0>(p) * 2.f, std::get<0>(t) * 2.f};
                                });
  EXPECT_THAT(grad([&](Array a) { return sum(twice(a, key)); })(x).to_vector<float>(), Each(2.f));
  const auto kept = custom_vjp(
      with_key,
      [&](Array a) {
        return std::pair{with_key(a), a};
      },
      [](Array, std::pair<Array, Array> bar) { return std::tuple{bar.first}; });
  EXPECT_THAT(grad([&](Array a) { return sum(kept(a).first); })(x).to_vector<float>(), Each(1.f));

  // The branch that is not taken has a key among its residuals.
  const auto drawn = [](Array a, Array k) { return sum(sin(a) * random::normal(k, {4})); };
  const auto loss = [&](Array a, Array draws) {
    return cond(
        draws, [&](Array b, Array k) { return checkpoint(drawn)(b, random::split(k)[0]); },
        [](Array b, Array) { return sum(b); }, a, key);
  };
  const auto gradient =
      jit([&](Array a, Array draws) { return grad([&](Array b) { return loss(b, draws); })(a); });
  EXPECT_THAT(gradient(x, array<bool>({false}, Shape{})).to_vector<float>(), Each(1.f));
  const Array want = grad(drawn)(x, random::split(key)[0]);
  EXPECT_EQ(gradient(x, array<bool>({true}, Shape{})).to_vector<float>(), want.to_vector<float>());
}

TEST(Keys, OfNoElements) {
  const Array key = random::key(1), none = zeros({0});
  const auto step = [](Array k, Array) { return std::pair{k, random::split(k, 3)}; };
  const auto ys = [&](Array xs) { return scan(step, key, xs).second; };
  EXPECT_EQ(to_string(ys(none).type()), "key<fry>[0,3]");
  EXPECT_EQ(to_string(jit(ys)(none).type()), "key<fry>[0,3]");
  const Array no_keys = reshape(random::split(key, 0), {0, 3});
  const auto pick = [](Array keys, Array i) { return keys[i]; };
  EXPECT_EQ(to_string(vmap(pick)(no_keys, zeros({0}, i32)).type()), "key<fry>[0]");
}

TEST(Keys, UnderVmapInTheirParts) {
  const Array keys = random::split(random::key(7), 3), raw = extend::random_unwrap(keys);
  const auto wrap = [](Array k) { return extend::random_unwrap(extend::random_wrap(k)); };
  EXPECT_EQ(values(vmap(wrap)(raw)), values(raw));
  const Array counts = arange(6, u32), rates = array<float>({.5f, 3, 40}, {3});
  const auto hash = [&](Array k) { return extend::threefry_2x32(k, counts); };
  const auto draw = [](Array k, Array r) { return random::poisson(k, r, {5}, u32); };
  const Array hashed = vmap(hash)(raw), drawn = vmap(draw)(keys, rates);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(values(hashed[i]), values(hash(raw[i])));
    EXPECT_EQ(values(drawn[i]), values(draw(keys[i], rates[i])));
  }
}

TEST(Bits, OfABlockAreThoseOfTheWhole) {
  const Array key = random::key(9);
  const Array whole = random::bits(key, {8, 6});
  const Array part = extend::random_bits_block(key, {8, 6}, {3, 2}, {4, 3});
  EXPECT_EQ(values(part), values(whole[{range(3, 7), range(2, 5)}]));
  const Array rows = extend::random_bits_block(key, {8, 6}, {full({}, 5, i32), 0}, {3, 6});
  EXPECT_EQ(values(rows), values(whole[range(5, 8)]));
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto body = [&] {
    return extend::random_bits_block(key, {8, 6}, {axis_index("i") * 2, axis_index("j") * 3},
                                     {2, 3});
  };
  const auto mapped = shard_map(body, mesh, {}, P("i", "j"));
  reset_counters();
  EXPECT_EQ(values(mapped()), values(whole));
  EXPECT_EQ(counters().collective_bytes, 0u);
  EXPECT_EQ(values(jit(mapped)()), values(whole));
  expect_error<ValueError>([&] { extend::random_bits_block(key, {8}, {0}, {9}); },
                           {"random_bits_block", "(9,)", "(8,)"});
}

TEST(Bits, OfOneKeyAreTheSameOnEachDevice) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto body = [](Array key) {
    EXPECT_TRUE(random::bits(key).vma().empty());
    return random::bits(random::fold_in(key, axis_index("i")), {3});
  };
  const Array got = shard_map(body, mesh, P(), P("i"))(random::key(4));
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(values(got[range(3 * i, 3 * i + 3)]),
              values(random::bits(random::fold_in(random::key(4), i), {3})));
  }
  const auto split = [](Array keys) { return random::bits(keys[0], {2}); };
  const Array keys = random::split(random::key(4), 4);
  const Array own = shard_map(split, mesh, P("i"), P("i"))(keys);
  for (std::int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(values(own[range(2 * i, 2 * i + 2)]), values(random::bits(keys[i], {2})));
}

// The whole array never exists: each device draws its part, and nothing is communicated.
TEST(Bits, ThatAreSplitAreDrawnInParts) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array key = random::key(2), want = random::normal(key, {16, 6});
  for (const P& spec : {P("i", "j"), P("j", none), P(none, "j"), P(axes("j", "i"), none)}) {
    const NamedSharding sharding(mesh, spec);
    const auto draw = [&](Array k) {
      return with_sharding_constraint(random::normal(k, {16, 6}), sharding);
    };
    const auto fast = jit(draw);
    reset_counters();
    const Array got = fast(key);
    EXPECT_EQ(got.to_vector<float>(), want.to_vector<float>());
    EXPECT_EQ(counters().collective_bytes, 0u);
    EXPECT_EQ(got.sharding(), sharding);
    EXPECT_EQ(fast.plan_text().find("f32[16,6]"), std::string::npos) << fast.plan_text();
    const Array x = device_put(ones({16, 6}), sharding);
    const auto dropped = [](Array k, Array y) {
      return where(random::bernoulli(k, 0.5f, y.shape()), 2 * y, 0.f);
    };
    reset_counters();
    const Array y = jit(dropped)(key, x);
    EXPECT_EQ(counters().collective_bytes, 0u);
    EXPECT_EQ(y.to_vector<float>(), dropped(key, ones({16, 6})).to_vector<float>());
  }
}

// The chain is longer than a stack has room for calls.
TEST(Bits, ThroughALongChainAreDrawnInParts) {
  const NamedSharding sharding(make_mesh({4, 2}, {"i", "j"}), P("i", "j"));
  const auto chain = [&](Array k) {
    Array x = random::uniform(k, {16, 6});
    for (int i = 0; i < 30'000; ++i) x = -x;
    return with_sharding_constraint(x, sharding);
  };
  const CostAnalysis cost = cost_analysis(make_jaxpr(chain)(random::key(2)));
  EXPECT_TRUE(cost.collectives.empty());
}

TEST(Samplers, AreDifferentiatedByTheirParameters) {
  const Array key = random::key(3);
  const auto mean = [&](Array m) { return sum(m + 2 * random::normal(key, {8})); };
  EXPECT_EQ(grad(mean)(Array(1.f)).item<float>(), 8);
  const auto width = [&](Array hi) { return sum(random::uniform(key, {8}, f32, 0.f, hi)); };
  EXPECT_NEAR(grad(width)(Array(2.f)).item<float>(), sum(random::uniform(key, {8})).item<float>(),
              1e-5);
  // A key is among the arguments.
  const auto loss = [](Array w, Array k) { return sum(w * random::normal(k, {4})); };
  EXPECT_EQ(grad(loss)(ones({4}), key).to_vector<float>(),
            random::normal(key, {4}).to_vector<float>());
  EXPECT_EQ(jit(grad(loss))(ones({4}), key).to_vector<float>(),
            random::normal(key, {4}).to_vector<float>());
}

TEST(Samplers, RejectOnAllDevices) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const Array lam = array<float>({0.5f, 3, 20, 700}, {4});
  const auto draw = [](Array l) { return random::poisson(random::key(1), l); };
  const Array split = device_put(lam, NamedSharding(mesh, P("i")));
  EXPECT_EQ(draw(split).to_vector<std::int32_t>(), draw(lam).to_vector<std::int32_t>());
  EXPECT_EQ(jit(draw)(split).to_vector<std::int32_t>(), draw(lam).to_vector<std::int32_t>());
}

TEST(Samplers, DrawInLoops) {
  const auto walk = [](Array key) {
    return fori_loop(
        0, 5,
        [](Array, std::pair<Array, Array> state) {
          auto [k, step] = random::split<2>(state.first);
          return std::pair<Array, Array>(k, state.second + random::uniform(step));
        },
        std::pair<Array, Array>(key, zeros({})));
  };
  const auto sum_of = [&](Array key) { return walk(key).second; };
  EXPECT_EQ(sum_of(random::key(1)).item<float>(), jit(sum_of)(random::key(1)).item<float>());
}

TEST(Generators, OfOnesOwn) {
  // The random bits are consecutive numbers that start at the key.
  extend::define_generator(
      "counter",
      {.key_shape = {1},
       .seed = [](Array seed) { return reshape(astype(seed, u32), {1}); },
       .split =
           [](Array key, Shape shape) {
             return reshape(key + 100u * (iota(u32, shape.num_elements()) + 1u), [&] {
               shape.push_back(1);
               return shape;
             }());
           },
       .random_bits =
           [](Array key, int width, Shape shape) {
             const Array bits = reshape(iota(u32, shape.num_elements()) + key, shape);
             return width == 32 ? bits : astype(bits, width == 8 ? u8 : width == 16 ? u16 : u64);
           },
       .fold_in = [](Array key, Array data) { return key + 1000u * data; }});
  const extend::GeneratorKey key = random::key(7, "counter");
  EXPECT_THAT(values(random::bits(key, {3})), ElementsAre(7, 8, 9));
  EXPECT_THAT(random::bits(key, {2}, u8).to_vector<std::uint8_t>(), ElementsAre(7, 8));
  EXPECT_THAT(values(random::bits(random::split(key)[1], {2})), ElementsAre(207, 208));
  EXPECT_THAT(values(random::fold_in(key, 2).words), ElementsAre(2007));
  const auto draw = [](extend::GeneratorKey k) { return random::uniform(k, {2}); };
  EXPECT_EQ(jit(draw)(key).to_vector<float>(), draw(key).to_vector<float>());
  const auto each = [](extend::GeneratorKey k) { return random::bits(k, {2}); };
  const extend::GeneratorKey two{array<std::uint32_t>({5, 50}, {2, 1}), "counter"};
  EXPECT_THAT(values(vmap(each)(two)), ElementsAre(5, 6, 50, 51));
  EXPECT_THAT(values(random::bits(random::key(0, "threefry2x32"), {2})),
              ElementsAre(0xf29a4fa7u, 0xfa843692u));
  expect_error<ValueError>([] { random::key(0, "nothing"); },
                           {"nothing", "counter", "threefry2x32_original"});
  expect_error<ValueError>(
      [] {
        extend::define_generator("threefry2x32",
                                 {.seed = [](Array x) { return x; },
                                  .split = [](Array x, Shape) { return x; },
                                  .random_bits = [](Array x, int, Shape) { return x; },
                                  .fold_in = [](Array x, Array) { return x; }});
      },
      {"threefry2x32", "taken"});
  expect_error<TypeError>([] { extend::define_generator("half", {}); }, {"half", "seed"});
  expect_error<TypeError>([] { extend::random_wrap(zeros({2}, u32), "counter"); },
                          {"counter", "u32[2]", "(1,)"});
}

TEST(Samplers, SayWhatIsWrong) {
  const Array key = random::key(0), keys = random::split(key);
  expect_error<TypeError>([] { random::bits(zeros({2})); },
                          {"bits", "f32[2]", "random::key(seed)", "keys_test.cpp"});
  expect_error<ValueError>([&] { random::normal(keys); },
                           {"normal", "key<fry>[2]", "vmap", "keys_test.cpp"});
  expect_error<TypeError>([&] { random::bits(key, {2}, i32); }, {"bits", "i32", "u32"});
  expect_error<TypeError>([&] { random::normal(key, {2}, i32); }, {"normal", "i32", "f32"});
  expect_error<TypeError>([&] { random::randint(key, {2}, 0, 2, f32); }, {"randint", "f32"});
  expect_error<TypeError>([&] { random::randint(key, {2}, 0.5f, 2); }, {"randint", "minval"});
  expect_error<ValueError>([&] { random::uniform(key, {2}, f32, zeros({3}), 1); },
                           {"uniform", "(3,)", "(2,)"});
  expect_error<TypeError>([&] { random::bernoulli(key, 1); }, {"bernoulli", "i32"});
  expect_error<ValueError>([&] { random::choice(key, 2, {3}, {.replace = false}); },
                           {"choice", "3 items", "of 2"});
  expect_error<ValueError>([&] { random::choice(key, zeros({0}), {1}); }, {"choice", "no items"});
  for (const bool replace : {false, true}) {  // no items to choose, and none wanted
    EXPECT_EQ(random::choice(key, zeros({0}), {0}, {.replace = replace, .p = zeros({0})}).size(),
              0);
    EXPECT_EQ(random::choice(key, 3, {2, 0}, {.replace = replace, .p = ones({3})}).shape(),
              Shape({2, 0}));
  }
  expect_error<ValueError>([&] { random::choice(key, 3, {1}, {.p = ones({2})}); },
                           {"choice", "f32[2]", "3 items"});
  expect_error<ValueError>(
      [&] {
        random::categorical(key, zeros({2, 3}), 1, {3});
      },
      {"categorical", "(3,)", "(2,)"});
  expect_error<ValueError>([&] { random::dirichlet(key, 1.f); }, {"dirichlet", "one dim"});
  expect_error<ValueError>([&] { random::split(key, -1); }, {"split", "-1"});
  expect_error<TypeError>([&] { random::fold_in(key, 0.5f); }, {"fold_in", "f32"});
  expect_error<ValueError>([&] { random::fold_in(key, zeros({2}, i32)); }, {"fold_in", "vmap"});
  expect_error<TypeError>([] { extend::random_wrap(zeros({3}, u32)); }, {"random_wrap", "u32[3]"});
  expect_error<TypeError>([] { extend::random_unwrap(zeros({2}, u32)); },
                          {"random_unwrap", "keys"});
  expect_error<TypeError>([&] { random::uniform(key, {}, f32, 0, key); }, {"uniform", "key<fry>"});
}

}  // namespace
}  // namespace shmap
