// layouts_bench: replays programs over eight devices, 4 x 2, in any number of processes: the same
// work alone and under mpirun (scripts/compare_layouts). Process 0 prints a row's median time per
// call and a hash of its result, which must be the same in every layout.
//
//   SHMAP_DEVICES=cpu:8 layouts_bench [calls] [row]
//   mpirun -n 4 -x SHMAP_DEVICES=cpu:2 layouts_bench [calls] [row]
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "shmap/shmap.h"

using namespace shmap;

namespace {

std::uint64_t hash_of(const Array& x) {
  std::uint64_t hash = 0;
  for (const float v : process_allgather(x).to_vector<float>())
    hash = hash * 1000003 + std::bit_cast<std::uint32_t>(v);
  return hash;
}

std::string_view only;  // the only row to time; "": all rows
int timed = 0;          // the number of rows that were timed

// Times batches of calls and waits for each call. All processes begin a batch together, since a
// call communicates.
void row(const char* name, int calls, const std::function<Array()>& call) {
  if (!only.empty() && only != name) return;
  ++timed;
  constexpr int kBatches = 9;
  for (int i = 0; i < 5; ++i) call().block_until_ready();
  std::vector<double> us;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call().block_until_ready();
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - begin;
    us.push_back(taken.count() / calls);
  }
  std::nth_element(us.begin(), us.begin() + kBatches / 2, us.end());
  const std::uint64_t hash = hash_of(call());
  if (process_index() == 0)
    std::printf("row %s %.3f %016llx\n", name, us[kBatches / 2],
                static_cast<unsigned long long>(hash));
}

Array random_of(int seed, Shape shape, const Mesh& mesh, const PartitionSpec& spec) {
  return device_put(random::normal(random::key(static_cast<std::uint64_t>(seed)), shape),
                    NamedSharding(mesh, spec));
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::max(1, std::atoi(argv[1])) : 30;
  if (argc > 2) only = argv[2];
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});

  // Ten elementwise operations on 1024 floats per device, and the sum over all devices.
  const Array x = random_of(1, {8, 1024}, mesh, P(Axes{"i", "j"}));
  const auto body = jit(shard_map(
      [](Array a) {
        for (int i = 0; i < 5; ++i) a = sin(a) * 1.01f;
        return psum(a, {"i", "j"});
      },
      mesh, {P(Axes{"i", "j"})}, P()));
  row("elementwise", calls * 20, [&] { return body(x); });

  // A layer split over j, of a batch split over i: two products per device, of which the first is
  // gathered and the second scattered along j.
  const Array tokens = random_of(2, {1024, 512}, mesh, P("i", "j"));
  const Array w1 = random_of(3, {512, 1024}, mesh, P(none, "j"));
  const Array w2 = random_of(4, {1024, 512}, mesh, P("j", none));
  const auto layer = jit(shard_map(
      [](Array t, Array a, Array b) {
        const Array whole = all_gather(t, "j", {.axis = 1, .tiled = true});
        return psum_scatter(matmul(gelu(matmul(whole, a)), b), "j",
                            {.scatter_dimension = 1, .tiled = true});
      },
      mesh, {P("i", "j"), P(none, "j"), P("j", none)}, P("i", "j")));
  row("layer", calls, [&] { return layer(tokens, w1, w2); });

  // The gradient of a network with data parallelism: the batch is split over all devices, and each
  // weight's gradient (1 MB) is summed over them.
  const Array batch = random_of(5, {1024, 512}, mesh, P(Axes{"i", "j"}));
  const Array w = random_of(6, {512, 512}, mesh, P());
  const auto loss = shard_map(
      [](Array p, Array b) {
        return psum(sum(square(tanh(matmul(b, p)))), {"i", "j"});
      },
      mesh, {P(), P(Axes{"i", "j"})}, P());
  const auto gradient =
      jit([&](Array p, Array b) { return grad([&](Array q) { return loss(q, b); })(p); });
  row("gradient", calls, [&] { return gradient(w, batch); });
  if (timed == 0 && process_index() == 0)
    std::fprintf(stderr, "no row '%s': there are elementwise, layer, gradient\n", argv[2]);
  // Where one process ends with an error, mpirun ends the others.
  return timed == 0 && process_index() == 0 ? 1 : 0;
}
