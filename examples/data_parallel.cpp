// Trains a small MLP on handwritten digits in three ways, which must reach the same loss; of every
// six digits one is held out, to see how well the others were learnt:
//
//   one device      the program as anyone would write it
//   data parallel   parameters replicated, the batch split: one scalar all-reduce forward, and one
//                   all-reduce a parameter leaf backward, which the types of JEP 17111 put there
//   fsdp x tensor   parameters split over both mesh axes: gathered over "data" when they are used
//                   (FSDP), multiplied by parts over "model" (tensor parallel); the transpose of
//                   the gather is the reduce-scatter of the gradients
//
//   data_parallel [--images X.npy --labels Y.npy] [--devices cpu:8] [--epochs N] [--batch N]
//                 [--hidden N] [--rate R] [--quiet] [--trace step.json]
//
// The loss is the mean over all training digits after the last step. The exit code is 1 if the
// three losses differ by more than a thousandth.
#include <shmap/shmap.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/processes.h"
#include "support/terminal.h"

namespace {

using namespace shmap;

constexpr int kClasses = 10;

struct Layer {
  Array w, b;
};
struct Net {
  Layer hidden, out;
};
struct Batch {
  Array images, labels;
};

Net init_net(std::int64_t inputs, std::int64_t hidden) {
  std::mt19937 engine(7);
  const auto layer = [&](std::int64_t rows, std::int64_t columns) {
    std::normal_distribution<float> normal(0.f, std::sqrt(2.f / static_cast<float>(rows)));
    std::vector<float> w(static_cast<std::size_t>(rows * columns));
    for (float& v : w) v = normal(engine);
    return Layer{array<float>(w, {rows, columns}), zeros({columns})};
  };
  return {layer(inputs, hidden), layer(hidden, kClasses)};
}

// The mean over the batch of -log p(label).
Array cross_entropy(const Array& logits, const Array& labels) {
  return -mean(sum(one_hot(labels, kClasses) * log_softmax(logits), -1));
}

Array logits_of(const Net& net, const Array& images) {
  const Array h = relu(matmul(images, net.hidden.w) + net.hidden.b);
  return matmul(h, net.out.w) + net.out.b;
}

Array plain_loss(Net net, Batch batch) {
  return cross_entropy(logits_of(net, batch.images), batch.labels);
}

auto data_parallel_loss(Mesh mesh) {
  return shard_map([](Net net, Batch batch) { return pmean(plain_loss(net, batch), "data"); }, mesh,
                   {P(), P("data")}, P());
}

// Blocks on a mesh of data x model devices: w of the hidden layer [inputs/d, hidden/m], w of the
// last one [hidden/(m d), classes].
auto sharded_loss(Mesh mesh) {
  return shard_map(
      [](Net net, Batch batch) {
        const Array w1 = all_gather(net.hidden.w, "data", {.tiled = true});
        const Array w2 = all_gather(net.out.w, "data", {.tiled = true});
        const Array h = relu(matmul(batch.images, w1) + net.hidden.b);
        const Array logits = psum(matmul(h, w2), "model") + net.out.b;
        return pmean(cross_entropy(logits, batch.labels), "data");
      },
      mesh, {{{P("data", "model"), P("model")}, {P(axes("model", "data")), P()}}, P("data")}, P());
}

template <class Loss>
auto train_step(Loss loss, float rate) {
  return jit([loss, rate](Net net, Batch batch) {
    auto [value, g] = value_and_grad(loss)(net, batch);
    const auto step = [rate](const Layer& x, const Layer& dx) {
      return Layer{x.w - rate * dx.w, x.b - rate * dx.b};
    };
    return std::pair{value, Net{step(net.hidden, g.hidden), step(net.out, g.out)}};
  });
}

struct Arguments {
  std::string images = SHMAP_EXAMPLE_DATA "/digits_images.npy";
  std::string labels = SHMAP_EXAMPLE_DATA "/digits_labels.npy";
  std::string devices, trace;
  int epochs = 20, batch = 256, hidden = 128;
  float rate = 0.2f;
  bool quiet = false;
};

// The digits, on one device.
struct Data {
  Batch train, held_out;
};

Data load_digits(const Arguments& args) {
  const Array images = astype(load_npy(args.images), f32) / 16.f;
  const Array labels = astype(load_npy(args.labels), i32);
  const std::int64_t all = images.shape()[0], first = all - all / 6;
  return {{images[range(0, first)], labels[range(0, first)]},
          {images[range(first, all)], labels[range(first, all)]}};
}

// The outcome after the last step: the loss over all training digits, the fraction of held-out
// digits that are recognised, and the time of the steps.
struct Outcome {
  float loss = 0, accuracy = 0;
  double seconds = 0;
  std::int64_t examples = 0;
};

template <class Step, class Place>
Outcome train(const char* name, Step step, Net net, const Data& data, Place place,
              const Arguments& args, const std::string& trace = "") {
  const auto batches = static_cast<int>(data.train.images.shape()[0] / args.batch);
  if (batches == 0) throw ValueError("data_parallel: --batch is more than there are examples");
  const int steps = args.epochs * batches;
  const auto batch_at = [&](int n) {
    const int first = n % batches * args.batch;
    const Range rows = range(first, first + args.batch);
    return place(Batch{data.train.images[rows], data.train.labels[rows]});
  };
  examples::Progress progress(name, steps, !args.quiet);
  const auto begin = std::chrono::steady_clock::now();
  for (int n = 0; n < steps; ++n) {
    auto [loss, next] = step(std::move(net), batch_at(n));
    net = std::move(next);
    if (progress.shown())
      progress.at(n + 1,
                  "loss of the batch " + examples::three_digits(loss.template item<float>()));
  }
  net.hidden.w.block_until_ready();
  Outcome outcome;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  outcome.examples = std::int64_t{steps} * args.batch;
  if (!trace.empty()) {
    profiler::Trace timeline(examples::own_file(trace));
    step(net, batch_at(0)).first.block_until_ready();
    timeline.close();
  }
  using examples::whole;
  const Net result{{whole(net.hidden.w), whole(net.hidden.b)},
                   {whole(net.out.w), whole(net.out.b)}};
  outcome.loss = plain_loss(result, data.train).item<float>();
  const Array recognised = argmax(logits_of(result, data.held_out.images), 1);
  outcome.accuracy = mean(astype(recognised == data.held_out.labels, f32)).item<float>();
  return outcome;
}

int run(int argc, char** argv) {
  Arguments args;
  CLI::App app{"Trains an MLP on one device, data parallel, and with parameters split two ways."};
  app.add_option("--images", args.images, "examples x pixels, any number dtype (.npy)");
  app.add_option("--labels", args.labels, "a class from 0 to 9 for each (.npy, integers)");
  app.add_option("--devices", args.devices, "as SHMAP_DEVICES: cpu:8, cpu:8/8 …; an even number");
  app.add_option("--epochs", args.epochs)->check(CLI::PositiveNumber);
  app.add_option("--batch", args.batch, "examples a step")->check(CLI::PositiveNumber);
  app.add_option("--hidden", args.hidden, "units of the hidden layer")->check(CLI::PositiveNumber);
  app.add_option("--rate", args.rate, "learning rate")->check(CLI::PositiveNumber);
  app.add_flag("--quiet", args.quiet, "no progress bar");
  app.add_option("--trace", args.trace,
                 "write the timeline of a data-parallel step here (Perfetto): sums of gradients "
                 "beside the products of earlier layers");
  CLI11_PARSE(app, argc, argv);
  init(argc, argv, {.devices = args.devices});
  examples::print_in_process_0();

  const Data data = load_digits(args);
  const auto n = static_cast<int>(devices().size());
  if (n % 2 != 0) throw ValueError("data_parallel: an even number of devices is wanted");
  const Mesh ring = make_mesh({n}, {"data"});
  const Mesh grid = make_mesh({n / 2, 2}, {"data", "model"});
  const Net start = init_net(data.train.images.shape()[1], args.hidden);
  std::printf("%lld digits to learn, %lld held out; %s … %s\n",
              static_cast<long long>(data.train.images.shape()[0]),
              static_cast<long long>(data.held_out.images.shape()[0]),
              devices().front().str().c_str(), devices().back().str().c_str());

  const auto on = [](Mesh mesh) {
    return [mesh](const Batch& b) {
      const NamedSharding rows(mesh, P("data"));
      return Batch{device_put(b.images, rows), device_put(b.labels, rows)};
    };
  };
  const auto whole = [](Batch b) { return b; };
  const Outcome one =
      train("one device", train_step(plain_loss, args.rate), start, data, whole, args);
  const Outcome dp = train("data parallel", train_step(data_parallel_loss(ring), args.rate), start,
                           data, on(ring), args, args.trace);
  const Outcome split = train("fsdp x tensor", train_step(sharded_loss(grid), args.rate), start,
                              data, on(grid), args);

  bool agree = true;
  for (const auto& [name, o] :
       {std::pair{"one device", one}, {"data parallel", dp}, {"fsdp x tensor", split}}) {
    const float error = std::abs(o.loss - one.loss) / one.loss;
    agree = agree && error < 1e-3f;
    std::printf(
        "%-14s loss %.5f (%.0e off the first)  %.1f %% of the held-out digits  %8s, "
        "%.0f examples/s\n",
        name, o.loss, static_cast<double>(error), 100.0 * o.accuracy,
        examples::time_text(o.seconds).c_str(), static_cast<double>(o.examples) / o.seconds);
  }
  std::printf("%s", examples::virtual_devices_note().c_str());
  if (!args.trace.empty())
    std::printf("the timeline of a step is in %s: open it in ui.perfetto.dev\n",
                args.trace.c_str());
  if (!agree) std::fprintf(stderr, "data_parallel: the losses differ by more than 1e-3\n");
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
