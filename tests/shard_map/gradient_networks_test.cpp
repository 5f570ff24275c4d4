// shmap-test: devices
// Gradients of random networks that are the same with and without a mesh: their weights replicated,
// gathered or tensor parallel, given to the body or captured by it. A failure prints its case
// number: run with SHMAP_TEST_CASE=<n> to repeat that one alone.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include "tests/support/gradient_check.h"
#include "tests/support/random_smooth_body.h"

namespace shmap {
namespace {

using namespace test;

// A layer's weights, by which its work is shared out over the axis j.
enum class Sharing { replicated, gathered, tensor_parallel };

struct Layer {
  Sharing sharing;
  bool captured;  // by the body, instead of given to it
};

// A network over a batch split over the axis i, with layers of random kinds.
void run_network(unsigned number) {
  static const std::vector<Extents> meshes = {{2, 2}, {2, 4}, {4, 2}, {8, 1}, {1, 4}};
  RandomSmoothBody g(number * 104729u + 5u, meshes);
  const Mesh mesh = g.mesh();
  const std::int64_t width = 4, hidden = 8, batch = 8;
  std::vector<Layer> layers;
  Values arguments = {g.random_array({batch, width})}, directions;
  std::string text = "network " + std::to_string(number) + " on " + to_string(mesh);
  std::vector<P> specs = {P("i")};
  const std::size_t depth = 1 + g.pick(3);
  for (std::size_t k = 0; k < depth; ++k) {
    const auto sharing = static_cast<Sharing>(g.pick(3));
    layers.push_back({sharing, sharing == Sharing::replicated && g.coin()});
    text += sharing == Sharing::replicated ? layers.back().captured ? ", captured" : ", replicated"
            : sharing == Sharing::gathered ? ", gathered"
                                           : ", tensor parallel";
    arguments.push_back(g.random_array({width, hidden}));
    arguments.push_back(g.random_array({hidden, width}));
    const bool tensor = sharing == Sharing::tensor_parallel;
    specs.push_back(sharing == Sharing::replicated ? P() : tensor ? P(none, "j") : P("j"));
    specs.push_back(sharing == Sharing::replicated ? P() : P("j"));
  }
  SCOPED_TRACE(text);
  for (const Array& x : arguments) {
    const Shape shape = x.shape();
    directions.push_back(g.random_array(Extents(shape.begin(), shape.end())));
  }

  const auto network = [&layers](const Values& args, bool mapped) {
    Array x = args[0];
    for (std::size_t k = 0; k < layers.size(); ++k) {
      Array up = args[2 * k + 1], down = args[2 * k + 2];
      const Sharing sharing = mapped ? layers[k].sharing : Sharing::replicated;
      if (sharing == Sharing::gathered) {
        up = all_gather(up, "j", {.tiled = true});
        down = all_gather(down, "j", {.tiled = true});
      }
      Array y = matmul(tanh(matmul(x, up)), down);
      if (sharing == Sharing::tensor_parallel) y = psum(y, "j");
      // All devices along j have the gathered weights, and the same values: their mean.
      if (sharing == Sharing::gathered) y = pmean(y, "j");
      x = x + sin(y);
    }
    return mean(sum(square(x), 1));
  };
  const auto loss = [&](ShardMapOptions options) {
    return [&, options](const Values& args) {
      Values given;
      std::vector<P> in;
      std::vector<std::size_t> place(args.size(), args.size());
      for (std::size_t k = 0; k < args.size(); ++k) {
        if (k > 0 && layers[(k - 1) / 2].captured) continue;
        place[k] = given.size();
        given.push_back(args[k]);
        in.push_back(specs[k]);
      }
      const auto body = [&](Values blocks) {
        Values all;
        for (std::size_t k = 0; k < args.size(); ++k)
          all.push_back(place[k] < args.size() ? blocks[place[k]] : args[k]);
        return pmean(network(all, true), "i");
      };
      return shard_map(body, mesh, {Specs(in)}, P(), options)(given);
    };
  };
  try {
    check_gradient(loss({}), loss({.check_vma = false}), arguments, directions, true,
                   number % 4 == 0);
    const auto plain = [&](const Values& args) { return network(args, false); };
    expect_near("without a mesh", grad(loss({}))(arguments), grad(plain)(arguments), 1e-12);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw: " << e.what();
  }
}

TEST(GradientProperty, NetworksWithAndWithoutAMesh) { run_cases(60, run_network); }

}  // namespace
}  // namespace shmap
