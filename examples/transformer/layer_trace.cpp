// Traces of the manual layer of layer.h over the mesh axis x: with its two large products plain,
// and with them overlapped, each with two ppermutes in opposite directions at once (the third
// example of JEP 14273). scripts/overlap_pictures draws them.
//
//   layer_trace FOLDER [--devices cpu:4/4] [--form two_rings] [--time 512] [--embed 512] …
//
// Writes FOLDER/blocking.json and FOLDER/overlapped.json; under mpirun the devices are those of
// all processes, and each process writes files of its own.
#include <shmap/shmap.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>

#include "../support/traced_call.h"
#include "layer.h"

namespace {

using namespace shmap;

int run(int argc, char** argv) {
  std::string folder, devices_text, form = "two_rings";
  std::int64_t batch = 1, time = 512, embed = 512, heads = 16, qkv = 64, ff = 256;
  CLI::App app("Traces of a transformer layer with its communication blocking and overlapped");
  app.add_option("folder", folder, "where to write blocking.json and overlapped.json")->required();
  app.add_option("--devices", devices_text, "the devices, of each process: cpu:4/4 (a space each)");
  app.add_option("--form", form, "of the overlapped products")
      ->check(CLI::IsMember({"ring", "two_rings"}));
  app.add_option("--batch", batch, "sequences");
  app.add_option("--time", time, "rows of a sequence");
  app.add_option("--embed", embed, "features of a row");
  app.add_option("--heads", heads, "heads, split over the devices");
  app.add_option("--qkv", qkv, "features of a query, key or value");
  app.add_option("--ff", ff, "hidden features of the MLP a head");
  CLI11_PARSE(app, argc, argv);
  init(argc, argv, {.devices = devices_text});

  const auto ranks = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({ranks, 1, 1}, {"x", "y", "z"});
  const auto normal = [](int key, const Shape& shape, double size) {
    return random::normal(random::key(key), shape) * static_cast<float>(size);
  };
  const double deviation = 1 / std::sqrt(static_cast<double>(embed));
  const transformer::LayerWeights weights{
      ones({embed}), normal(1, {heads, embed, qkv + 2 * ff}, deviation),
      normal(2, {embed, 1, 2 * qkv}, deviation), normal(3, {heads, qkv + ff, embed}, 0.02)};
  const Array rows = normal(4, {batch, time, embed}, 1);
  const auto placed = [&](const Array& t, const P& spec) {
    return device_put(t, NamedSharding(mesh, spec));
  };
  const AxisRules& at = transformer::layout();
  const transformer::LayerWeights w{placed(weights.norm, at("residual_embed")),
                                    placed(weights.q_wi, at("weight_heads", "embed", "per_head")),
                                    placed(weights.kv, at("residual_embed", none, "per_head")),
                                    placed(weights.o_wo, at("weight_heads", "per_head", "embed"))};
  const Array x = placed(rows, transformer::residual_spec());

  const auto traced = [&](const char* name, Overlap chosen) {
    const auto layer = jit(shard_map(
        [=](Array x, transformer::LayerWeights w) {
          const auto positions = transformer::rows_from(0, time, qkv);
          return transformer::manual_layer(x, w, positions, {}, chosen).y;
        },
        mesh, {transformer::residual_spec(), transformer::weight_specs()},
        transformer::residual_spec()));
    return traced_call(folder, name, [&] { return layer(x, w); });
  };
  const Array one = traced("blocking", Overlap::none);
  const Array other = traced("overlapped", form == "ring" ? Overlap::ring : Overlap::two_rings);
  return compare_results(one, other);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& e) {
    std::cerr << "layer_trace: " << e.what() << "\n";
    return 1;
  }
}
