// Trains a small MLP on handwritten digits in three ways, which must reach the same loss:
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
// The exit code is 1 where the losses differ by more than 1e-3 of themselves.
#include <shmap/shmap.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

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

Array plain_loss(Net net, Batch batch) {
  const Array h = relu(matmul(batch.images, net.hidden.w) + net.hidden.b);
  return cross_entropy(matmul(h, net.out.w) + net.out.b, batch.labels);
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

void progress(const char* name, int step, int steps, float loss) {
  constexpr int kWidth = 30;
  const int full = kWidth * step / steps;
  std::printf("\r%-14s [%s%s] step %4d/%d  loss %.5f", name, std::string(full, '=').c_str(),
              std::string(kWidth - full, ' ').c_str(), step, steps, loss);
  if (step == steps) std::printf("\n");
  std::fflush(stdout);
}

// The loss of the last step, and how long the steps took.
struct Outcome {
  float loss = 0;
  double seconds = 0;
};

template <class Step, class Place>
Outcome train(const char* name, Step step, Net net, const Array& images, const Array& labels,
              Place place, const Arguments& args, const std::string& trace = "") {
  const auto batches = static_cast<int>(images.shape()[0] / args.batch);
  const int steps = args.epochs * batches;
  Outcome outcome;
  const auto begin = std::chrono::steady_clock::now();
  for (int n = 0; n < steps; ++n) {
    const int first = n % batches * args.batch;
    const Batch batch = place(
        Batch{images[range(first, first + args.batch)], labels[range(first, first + args.batch)]});
    auto [loss, next] = step(std::move(net), batch);
    net = std::move(next);
    outcome.loss = loss.template item<float>();
    if (!args.quiet) progress(name, n + 1, steps, outcome.loss);
  }
  if (!trace.empty()) {
    const Batch batch = place(Batch{images[range(0, args.batch)], labels[range(0, args.batch)]});
    profiler::Trace timeline(trace);
    step(net, batch).first.block_until_ready();
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
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

  const Array images = astype(load_npy(args.images), f32) / 16.f;
  const Array labels = astype(load_npy(args.labels), i32);
  const auto n = static_cast<int>(devices().size());
  if (n % 2 != 0) throw ValueError("data_parallel: an even number of devices is wanted");
  const Mesh ring = make_mesh({n}, {"data"});
  const Mesh grid = make_mesh({n / 2, 2}, {"data", "model"});
  const Net start = init_net(images.shape()[1], args.hidden);

  const auto on = [](Mesh mesh) {
    return [mesh](const Batch& b) {
      const NamedSharding rows(mesh, P("data"));
      return Batch{device_put(b.images, rows), device_put(b.labels, rows)};
    };
  };
  const auto whole = [](Batch b) { return b; };
  const Outcome one =
      train("one device", train_step(plain_loss, args.rate), start, images, labels, whole, args);
  const Outcome dp = train("data parallel", train_step(data_parallel_loss(ring), args.rate), start,
                           images, labels, on(ring), args, args.trace);
  const Outcome split = train("fsdp x tensor", train_step(sharded_loss(grid), args.rate), start,
                              images, labels, on(grid), args);

  bool agree = true;
  for (const auto& [name, o] :
       {std::pair{"one device", one}, {"data parallel", dp}, {"fsdp x tensor", split}}) {
    const float error = std::abs(o.loss - one.loss) / one.loss;
    agree = agree && error < 1e-3f;
    std::printf("%-14s final loss %.6f  (differs by %.1e)  %6.2f s\n", name, o.loss,
                static_cast<double>(error), o.seconds);
  }
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
