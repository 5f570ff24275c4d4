// Training the model of examples/transformer: the splits' losses and gradients against each other,
// a run that goes on from a checkpoint, bf16, tokens that the model generates with a cache; the
// text that it learns, and the learning curve.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "examples/transformer/curve.h"
#include "examples/transformer/losses.h"
#include "examples/transformer/text.h"
#include "examples/transformer/training.h"
#include "tests/support/error_text.h"

namespace transformer {
namespace {

using namespace shmap;
using ::testing::HasSubstr;
using ::testing::Not;

const ModelSizes kSizes{.vocab = 11, .embed = 16, .heads = 8, .qkv = 4, .ff = 6, .layers = 2};

State start() { return first_state(init_model(kSizes, random::key(1))); }
Array some_tokens(int number) {
  return random::randint(random::fold_in(random::key(2), number), {8, 13}, 0, 11, i32);
}

auto step_of(const Split& split) {
  return jit([loss = split.loss](State s, Array tokens) {
    auto [value, gradient] = value_and_grad(loss)(s.params, tokens);
    return std::pair{value, adam(s, gradient, {.warmup = 2, .steps = 20})};
  });
}

struct Training {
  std::vector<float> losses;
  State state;
};
Training train(const Split& split, State state, int first, int last) {
  const auto step = step_of(split);
  Training run;
  for (int n = first; n < last; ++n) {
    auto [loss, next] = step(std::move(state), split.place_batch(some_tokens(n)));
    state = std::move(next);
    run.losses.push_back(loss.item<float>());
  }
  run.state = std::move(state);
  return run;
}

double largest(const Array& x) { return max(abs(x)).item<float>(); }

TEST(TransformerTraining, SplitsAgree) {
  const Training one = train(one_device(f32), start(), 0, 12);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const Split& split :
       {data_parallel(f32), two_dims({2, 2, 2}, f32), two_dims({4, 1, 2}, f32)}) {
    SCOPED_TRACE(split.name);
    const Training other = train(split, split.place(start()), 0, 12);
    for (std::size_t n = 0; n < one.losses.size(); ++n)
      EXPECT_NEAR(other.losses[n], one.losses[n], 2e-4 * one.losses[n]) << n;
    // Adam's means are sums of gradients: those of each weight agree.
    const std::vector<Array> want = leaves_of(one.state.mean);
    const std::vector<Array> got = leaves_of(gathered(other.state).mean);
    for (std::size_t k = 0; k < want.size(); ++k)
      EXPECT_LT(largest(got[k] - want[k]), 2e-3 * largest(want[k])) << k;
  }
}

TEST(TransformerTraining, Bf16IsNearF32) {
  const Training wide = train(one_device(f32), start(), 0, 6);
  const Split split = two_dims({2, 2, 2}, bf16);
  for (const Training& narrow :
       {train(one_device(bf16), start(), 0, 6), train(split, split.place(start()), 0, 6)}) {
    for (std::size_t n = 0; n < 6; ++n)
      EXPECT_NEAR(narrow.losses[n], wide.losses[n], 0.02 * wide.losses[n]) << n;
    EXPECT_NE(narrow.losses, wide.losses);
  }
}

TEST(TransformerTraining, GoesOnFromACheckpointWithTheSameBits) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("shmap-training-" + std::to_string(::getpid())))
          .string();
  const Split split = two_dims({2, 2, 2}, f32);
  const Training whole = train(split, split.place(start()), 0, 6);
  save_checkpoint(folder, train(split, split.place(start()), 0, 3).state);
  const State loaded = load_checkpoint(folder, split.place(start()));
  std::filesystem::remove_all(folder);
  EXPECT_EQ(loaded.params.table.sharding(), whole.state.params.table.sharding());
  const Training rest = train(split, loaded, 3, 6);
  EXPECT_EQ(rest.losses, std::vector<float>(whole.losses.begin() + 3, whole.losses.end()));
}

// Drawn greedily behind a cache: each token is the likeliest one of the whole sequence so far, told
// by the loss, which sees no cache.
TEST(TransformerTraining, WritesWhatTheLossFindsLikeliest) {
  const Model model = train(one_device(f32), start(), 0, 10).state.params;
  std::vector<std::int32_t> tokens{1, 2, 3};
  const std::vector<std::int32_t> written = generate(model, tokens, 5, 12, random::key(0), 0);
  ASSERT_EQ(written.size(), 5u);
  for (const std::int32_t token : written) {
    const auto nats = [&](std::int32_t last) {  // of the whole sequence with that last token
      std::vector<std::int32_t> all = tokens;
      all.push_back(last);
      const auto count = static_cast<std::int64_t>(all.size());
      return plain_loss(model, array<std::int32_t>(all, {1, count})).item<float>();
    };
    for (std::int32_t other = 0; other < kSizes.vocab; ++other)
      EXPECT_LE(nats(token), nats(other) + 1e-6) << other;
    tokens.push_back(token);
  }
  // Past the context it goes on from the last half of it.
  const std::vector<std::int32_t> longer = generate(model, {1, 2, 3}, 9, 6, random::key(0), 0);
  ASSERT_EQ(longer.size(), 9u);
  EXPECT_EQ(std::vector<std::int32_t>(longer.begin() + 4, longer.begin() + 7),
            generate(model, {longer[1], longer[2], longer[3]}, 3, 6, random::key(0), 0));
  EXPECT_EQ(generate(model, {1, 2, 3}, 5, 12, random::key(3), 1.f),
            generate(model, {1, 2, 3}, 5, 12, random::key(3), 1.f));
}

TEST(TransformerTraining, RateRisesAndFalls) {
  const LearningRates schedule{.rate = 2, .warmup = 4, .steps = 100};
  const auto at = [&](float step) { return schedule.rate_at(step).item<float>(); };
  EXPECT_NEAR(at(0), 0.5, 1e-6);
  EXPECT_NEAR(at(50), 1.1, 1e-5);
  EXPECT_NEAR(at(100), 0.2, 1e-5);
  EXPECT_EQ(default_mesh(8), Shape({2, 2, 2}));
  EXPECT_EQ(default_mesh(12), Shape({2, 2, 3}));
  EXPECT_EQ(default_mesh(1), Shape({1, 1, 1}));
}

TEST(TransformerText, EncodesDrawsAndRefuses) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("shmap-text-" + std::to_string(::getpid())))
          .string();
  std::ofstream(path) << "a dog and a cat and a hen, and so on and on.";
  const Text text(path);
  EXPECT_EQ(text.decode(text.encode("a hen")), "a hen");
  EXPECT_EQ(text.windows(3, 5, 7), text.windows(3, 5, 7));
  EXPECT_NE(text.windows(3, 5, 7), text.windows(3, 5, 8));
  EXPECT_EQ(text.windows(3, 5, 7).size(), 15u);
  // Held out are the last four of 44 characters, which the others have none of.
  EXPECT_EQ(text.decode(text.windows(1, 4, 0, true)), " on.");
  for (std::uint64_t k = 0; k < 50; ++k)
    EXPECT_EQ(text.decode(text.windows(1, 5, k)).find('.'), std::string::npos);
  test::expect_error<ValueError>([&] { text.encode("x"); }, {"'x'"});
  test::expect_error<ValueError>([&] { text.windows(1, 9, 0, true); }, {"held out"});
  std::filesystem::remove(path);
  test::expect_error<ValueError>([&] { Text none(path); }, {path.c_str()});
}

TEST(TransformerLosses, AreThoseUpToTheCheckpoint) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("shmap-losses-" + std::to_string(::getpid())))
          .string();
  EXPECT_EQ(load_losses(folder, 4).first, 4);  // there are none
  save_losses(folder, {.batches = {5, 4, 3.5f, 0.1f}, .held_out = {{2, 4.5f}, {4, 3}}});
  const Losses all = load_losses(folder, 4);
  EXPECT_EQ(all.first, 0);
  EXPECT_EQ(all.batches, (std::vector<float>{5, 4, 3.5f, 0.1f}));
  EXPECT_EQ(all.held_out, (std::vector<std::pair<int, float>>{{2, 4.5f}, {4, 3}}));
  // The run was stopped after it wrote the losses, before it wrote the checkpoint.
  const Losses before = load_losses(folder, 3);
  EXPECT_EQ(before.batches, (std::vector<float>{5, 4, 3.5f}));
  EXPECT_EQ(before.held_out, (std::vector<std::pair<int, float>>{{2, 4.5f}}));
  // The losses belong to another run than the checkpoint.
  EXPECT_EQ(load_losses(folder, 5).first, 5);
  EXPECT_TRUE(load_losses(folder, 5).batches.empty());
  save_npz(folder + "/losses.npz", {{"first", zeros({1}, i32)}});
  test::expect_error<ValueError>([&] { load_losses(folder, 1); }, {"losses.npz", "\"batches\""});
  std::filesystem::remove_all(folder);
}

TEST(TransformerCurve, HasEachPoint) {
  const std::string svg =
      curve_svg("a < b", "step", "loss", {{"one", "#123456", {{0, 4}, {50, 2}, {100, 1}}}});
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  // The line goes from the left edge at the top to the right edge, a quarter above the bottom.
  EXPECT_THAT(svg, HasSubstr("stroke=\"#123456\" points=\"64,64 380,212 696,286 \""));
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"380\" cy=\"212\""));
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

// A line of one point would be invisible; one of many is not dotted. No name is inside of the
// frame, where lines are.
TEST(TransformerCurve, MarksLonePointsAndNamesLinesAbove) {
  Line many{"many", "#111111", {}};
  for (int k = 0; k < 100; ++k) many.points.emplace_back(k, 4);
  const std::string svg = curve_svg("", "step", "loss", {many, {"lone", "#222222", {{99, 2}}}});
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"696\" cy=\"212\" r=\"3\" fill=\"#222222\"/>"));
  EXPECT_THAT(svg, Not(HasSubstr("r=\"3\" fill=\"#111111\"")));
  EXPECT_THAT(svg, HasSubstr("y=\"54\" text-anchor=\"start\">lone</text>"));
}

}  // namespace
}  // namespace transformer
