// Every sampler beside jax.random's, in both modes of its generator: eagerly, under jit, and with
// keys and parameters that are split over devices.
#include <gtest/gtest.h>

#include <string>

#include "shmap/shmap.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using testing::GoldenCase;
using Arrays = std::vector<Array>;

DType dtype_of_name(const std::string& name) {
  for (int t = 0; t < kDTypeCount; ++t)
    if (name == short_name(static_cast<DType>(t))) return static_cast<DType>(t);
  throw ValueError("the golden file names no dtype: " + name);
}

Arrays words_of(const Arrays& keys) { return {extend::random_unwrap(keys[0])}; }

Arrays call(const GoldenCase& c, const Arrays& in) {
  const auto& p = c.params;
  const std::string what = p.text("call");
  if (what == "key") return {extend::random_unwrap(random::key(p.integer("seed")))};
  if (what == "threefry_2x32") return {extend::threefry_2x32(in[0], in[1])};
  const bool original = p.flag("original");
  const extend::GeneratorKey other{in[0], "threefry2x32_original"};
  const random::Key key = original ? random::Key(other) : random::Key(extend::random_wrap(in[0]));
  const Shape shape = p.has("shape") ? Shape(p.ints("shape")) : Shape();
  const DType dtype = p.has("dtype") ? dtype_of_name(p.text("dtype")) : f32;
  if (what == "split") {
    if (!original) return words_of({random::split(key, shape)});
    return {random::split(key, shape)};
  }
  if (what == "fold_in") {
    if (original) return {random::fold_in(other, p.integer("data")).words};
    return words_of({random::fold_in(key, p.integer("data"))});
  }
  if (what == "bits") return {random::bits(key, shape, dtype)};
  if (what == "uniform") {
    if (in.size() == 1) return {random::uniform(key, shape, dtype)};
    return {random::uniform(key, shape, dtype, in[1], in[2])};
  }
  if (what == "normal") return {random::normal(key, shape, dtype)};
  if (what == "exponential") return {random::exponential(key, shape, dtype)};
  if (what == "gumbel") return {random::gumbel(key, shape, dtype)};
  if (what == "laplace") return {random::laplace(key, shape, dtype)};
  if (what == "logistic") return {random::logistic(key, shape, dtype)};
  if (what == "cauchy") return {random::cauchy(key, shape, dtype)};
  if (what == "truncated_normal")
    return {random::truncated_normal(key, in[1], in[2], shape, dtype)};
  if (what == "bernoulli") return {random::bernoulli(key, in[1], shape)};
  if (what == "rademacher") return {random::rademacher(key, shape, dtype)};
  if (what == "randint") return {random::randint(key, shape, in[1], in[2], dtype)};
  if (what == "permutation") {
    if (p.has("n")) return {random::permutation(key, p.integer("n"))};
    return {random::permutation(key, in[1], static_cast<int>(p.integer("axis")),
                                p.flag("independent"))};
  }
  if (what == "choice") {
    random::ChoiceOptions options{.replace = p.flag("replace"),
                                  .axis = static_cast<int>(p.integer_or("axis", 0))};
    if (in.size() > 2) options.p = in[2];
    if (p.has("n")) return {random::choice(key, p.integer("n"), shape, options)};
    return {random::choice(key, in[1], shape, options)};
  }
  if (what == "categorical") {
    const int axis = static_cast<int>(p.integer("axis"));
    if (!p.has("shape")) return {random::categorical(key, in[1], axis)};
    return {random::categorical(key, in[1], axis, shape, p.flag_or("replace", true))};
  }
  if (what == "gamma") return {random::gamma(key, in[1], shape, dtype)};
  if (what == "loggamma") return {random::loggamma(key, in[1], shape, dtype)};
  if (what == "beta") return {random::beta(key, in[1], in[2], shape, dtype)};
  if (what == "dirichlet") return {random::dirichlet(key, in[1], shape, dtype)};
  if (what == "poisson") return {random::poisson(key, in[1], shape, dtype)};
  if (what == "generalized_normal")
    return {random::generalized_normal(key, p.number("p"), shape, dtype)};
  if (what == "ball") return {random::ball(key, p.integer("d"), p.number("p"), shape, dtype)};
  if (what == "orthogonal")
    return {random::orthogonal(key, p.integer("n"), shape, dtype, p.integer("m"))};
  throw ValueError("the golden file calls no sampler: " + what);
}

TEST(GoldenRandom, IsJaxs) { testing::expect_golden("random", call); }
// poisson's loop asks all devices before each trip, and under jit once more than eagerly: it is not
// among those whose communication is compared (keys_test.cpp has it split).
Arrays call_split(const GoldenCase& c, const Arrays& in) {
  if (c.params.text("call") != "poisson") return call(c, in);
  return call(c, {device_put(in[0], devices()[0]), device_put(in[1], devices()[0])});
}
TEST(GoldenRandom, IsJaxsOfWhatIsSplitOverDevices) {
  testing::expect_golden("random", call_split, testing::split_over_mesh,
                         test::Communication::no_more);
}

}  // namespace
}  // namespace shmap
