// Trains a small language model on a text, character by character, and lets it write some text. The
// model is on one device, data parallel, or split over the axes of a mesh (2D): all reach the same
// loss.
//
//   transformer [--split one|data|2d|all] [--steps N] [--checkpoints DIR [--resume]]
//               [--curve FILE.svg] [--prompt TEXT --sample N] [--text FILE] …
//   mpirun -n 4 --oversubscribe --bind-to none -x SHMAP_DEVICES=cpu:2 transformer --split 2d
//
// With --split all the exit code is 1 if the losses of two splits differ at any step by more than a
// thousandth.
#include <shmap/shmap.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "../support/terminal.h"
#include "curve.h"
#include "losses.h"
#include "text.h"
#include "training.h"

namespace {

using namespace shmap;
using namespace transformer;

constexpr double kBound = 1e-3;

struct Arguments {
  std::string text = SHMAP_EXAMPLE_DATA "/village.txt";
  std::string split = "one", devices, checkpoints, curve, losses, trace, dtype = "f32";
  std::string prompt = "The ";
  std::vector<std::int64_t> mesh;
  ModelSizes sizes;
  LearningRates schedule;
  std::int64_t batch = 16, context = 64;
  int every = 50, sample = 400, stop = 0;
  std::uint64_t seed = 0;
  float temperature = 0.6f;
  bool resume = false, quiet = false;
};

// True in the process that prints for all.
bool speaks() { return process_index() == 0; }

State start_of(const Arguments& args, const Split& split, const State& start) {
  if (!args.resume) return split.place(start);
  // A single process reads its devices' blocks; each of several processes reads all and keeps its
  // own.
  return process_count() == 1 ? load_checkpoint(args.checkpoints, split.place(start))
                              : split.place(load_checkpoint(args.checkpoints, start));
}

void save(const Arguments& args, const State& state, const Losses& losses) {
  const State whole = process_count() == 1 ? state : gathered(state);
  if (!speaks()) return;
  save_losses(args.checkpoints, losses);
  save_checkpoint(args.checkpoints, whole, {.keep = 2});
}

struct Training {
  State state;
  Losses losses;
  int from = 0;  // the number of steps before this run, which resumes another one
};

Training train(const Arguments& args, const Text& text, const Split& split, const State& start) {
  const auto step = jit([loss = split.loss, schedule = args.schedule](State s, Array tokens) {
    auto [value, gradient] = value_and_grad(loss)(s.params, tokens);
    return std::pair{value, adam(s, gradient, schedule)};
  });
  const auto loss_of = jit(split.loss);
  const auto batch = [&](std::uint64_t number, bool held_out) {
    const std::int64_t length = args.context + 1;
    return split.place_batch(
        array<std::int32_t>(text.windows(args.batch, length, args.seed << 32 | number, held_out),
                            {args.batch, length}));
  };
  State state = start_of(args, split, start);
  const int from = static_cast<int>(state.step.item<float>());
  const int last = args.stop > 0 ? std::min(args.stop, args.schedule.steps) : args.schedule.steps;
  if (from >= last)
    throw ValueError("transformer: the checkpoint has " + std::to_string(from) +
                     " steps already, and this run is to end after " + std::to_string(last));
  Losses losses;
  if (args.resume) {
    losses = load_losses(args.checkpoints, from);
    if (speaks())
      std::printf("going on from step %d%s\n", from,
                  losses.first < from ? "" : ", without the losses before it: none are stored");
  }
  examples::Progress progress(split.name, last, !args.quiet && speaks(), from);
  for (int n = from; n < last; ++n) {
    auto [loss, next] = step(std::move(state), batch(static_cast<std::uint64_t>(n), false));
    state = std::move(next);
    losses.batches.push_back(loss.template item<float>());
    const std::string text = "loss " + examples::three_digits(losses.batches.back());
    progress.at(n + 1, text);
    if ((n + 1) % args.every != 0 && n + 1 != last) continue;
    losses.held_out.emplace_back(n + 1,
                                 loss_of(state.params, batch(0, true)).template item<float>());
    if (n + 1 != last)
      progress.line(n + 1,
                    text + "  held out " + examples::three_digits(losses.held_out.back().second));
    if (!args.checkpoints.empty()) save(args, state, losses);
  }
  if (!args.trace.empty()) {
    profiler::Trace timeline(args.trace);
    step(state, batch(0, false)).first.block_until_ready();
    timeline.close();
  }
  return {state, losses, from};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw Error("cannot write \"" + path + "\"");
}

void write_curve(const std::string& path, const Losses& losses) {
  Line trained{"batches (means of 10)", "#3060c0", {}}, held_out{"held out", "#c04030", {}};
  held_out.points.assign(losses.held_out.begin(), losses.held_out.end());
  for (std::size_t k = 0; k < losses.batches.size(); k += 10) {
    const std::size_t limit = std::min(k + 10, losses.batches.size());
    double sum = 0;
    for (std::size_t n = k; n < limit; ++n) sum += losses.batches[n];
    trained.points.emplace_back(losses.first + static_cast<double>(limit),
                                sum / static_cast<double>(limit - k));
  }
  write(path,
        curve_svg("Loss of examples/transformer", "step", "nats a character", {trained, held_out}));
}

// Prints each loss in a form that has all its bits.
void write_losses(const std::string& path, const Losses& losses) {
  std::string text;
  for (const float loss : losses.batches) {
    char line[64];
    std::snprintf(line, sizeof line, "%a\n", static_cast<double>(loss));
    text += line;
  }
  write(path, text);
}

std::vector<Split> splits_of(const Arguments& args) {
  const DType dtype = args.dtype == "bf16" ? bf16 : f32;
  const auto count = static_cast<std::int64_t>(devices().size());
  const Shape xyz = args.mesh.empty() ? default_mesh(count) : Shape(args.mesh);
  if (args.split == "one") return {one_device(dtype)};
  if (args.split == "data") return {data_parallel(dtype)};
  if (args.split == "2d") return {two_dims(xyz, dtype)};
  return {one_device(dtype), data_parallel(dtype), two_dims(xyz, dtype)};
}

double largest_difference(const Losses& a, const Losses& b) {
  double most = 0;
  for (std::size_t k = 0; k < a.batches.size(); ++k) {
    const double x = a.batches[k], y = b.batches.at(k);
    most = std::max(most, std::abs(x - y) / x);
  }
  return most;
}

void add_options(CLI::App& app, Arguments& args) {
  app.add_option("--split", args.split, "how the model lies on the devices; all: one after another")
      ->check(CLI::IsMember({"one", "data", "2d", "all"}))
      ->capture_default_str();
  app.add_option("--mesh", args.mesh, "sizes of x, y and z for 2d")->expected(3);
  app.add_option("--devices", args.devices, "as SHMAP_DEVICES: cpu:8, cpu:8/8 …");
  app.add_option("--dtype", args.dtype, "of the layers' products")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  app.add_option("--text", args.text, "what is learnt: any file of bytes");
  app.add_option("--steps", args.schedule.steps)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--stop", args.stop, "stop after so many of the steps, to be resumed later");
  app.add_option("--batch", args.batch, "pieces of text a step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--context", args.context, "characters of a piece")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--embed", args.sizes.embed)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--heads", args.sizes.heads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--layers", args.sizes.layers)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--qkv", args.sizes.qkv, "of a head's query; even")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--ff", args.sizes.ff, "of the MLP, a head")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--rate", args.schedule.rate, "the highest learning rate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", args.seed)->capture_default_str();
  app.add_option("--every", args.every,
                 "steps between looks at the held-out text, checkpoints, and lines of progress")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  auto* folder = app.add_option("--checkpoints", args.checkpoints, "the folder to write them to");
  app.add_flag("--resume", args.resume, "go on from the newest of them")->needs(folder);
  app.add_option("--curve", args.curve,
                 "write the learning curve here (SVG), of the steps before a --resume too");
  app.add_option("--losses", args.losses,
                 "write each step's loss here, in hexadecimal, of the steps before a --resume too");
  app.add_option("--trace", args.trace, "write the timeline of one more step here (Perfetto)");
  app.add_option("--prompt", args.prompt, "what the sample goes on from")->capture_default_str();
  app.add_option("--sample", args.sample, "characters to write in the end")->capture_default_str();
  app.add_option("--temperature", args.temperature, "0: always the likeliest character")
      ->capture_default_str();
  app.add_flag(
      "--quiet", args.quiet,
      "no progress: neither the bar nor, where there is no terminal, a line every --every steps");
}

int run(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a line at once, also into a pipe and under mpirun
  Arguments args;
  CLI::App app{"Trains a small transformer on a text, and lets it write."};
  add_options(app, args);
  CLI11_PARSE(app, argc, argv);
  init(argc, argv, {.devices = args.devices});

  const Text text(args.text);
  args.sizes.vocab = text.vocab();
  const std::vector<std::int32_t> prompt = text.encode(args.prompt);
  if (process_count() > 1 && (args.split == "one" || args.split == "all"))
    throw ValueError("transformer: --split " + args.split +
                     " is for one process: for several give data or 2d");
  if (args.split == "all" && !args.checkpoints.empty())
    throw ValueError("transformer: --checkpoints are of one split: give one, data or 2d");
  const State start =
      first_state(init_model(args.sizes, random::key(static_cast<std::int64_t>(args.seed))));
  if (speaks())
    std::printf("%zu characters, %d different; %lld parameters; %zu devices\n", text.size(),
                text.vocab(), static_cast<long long>(parameter_count(start.params)),
                devices().size());

  bool agree = true;
  Losses first;
  Model trained;
  for (const Split& split : splits_of(args)) {
    const auto begin = std::chrono::steady_clock::now();
    const auto [state, losses, from] = train(args, text, split, start);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (first.batches.empty()) first = losses;
    const double off = largest_difference(first, losses);
    agree = agree && off <= kBound;
    if (speaks()) {
      const double characters =
          static_cast<double>((losses.steps() - from) * args.batch * args.context);
      std::printf("%-14s step %d  loss %.4f  held out %.4f  %8s, %.0f characters/s",
                  split.name.c_str(), losses.steps(), static_cast<double>(losses.batches.back()),
                  static_cast<double>(losses.held_out.back().second),
                  examples::time_text(seconds).c_str(), characters / seconds);
      std::printf(args.split == "all" ? "  (losses %.0e off the first)\n" : "\n", off);
    }
    trained = gathered(state).params;
  }
  if (speaks()) {
    if (!args.curve.empty()) write_curve(args.curve, first);
    if (!args.losses.empty()) write_losses(args.losses, first);
    if (args.sample > 0) {
      const Array key = random::key(static_cast<std::int64_t>(args.seed) + 1);
      std::printf(
          "\n%s%s\n", args.prompt.c_str(),
          text.decode(generate(trained, prompt, args.sample, args.context, key, args.temperature))
              .c_str());
    }
  }
  if (!agree) std::fprintf(stderr, "transformer: the losses differ by more than 1e-3\n");
  return agree ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
