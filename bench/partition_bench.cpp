// Programs of whole arrays, split over 16,384 abstract devices. The rows time how long the library
// takes to partition a program of 1000 equations, and to trace, partition, plan and simulate 100
// layers.
#include <shmap/shmap.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/support/rows.h"
#include "core/compiler/lowering/closed_program.h"
#include "core/ir/jaxpr.h"

namespace {

using namespace shmap;
using bench::Row;
using bench::Work;

constexpr std::size_t kLayers = 100;
constexpr std::int64_t kBatch = 2048 * 16, kWidth = 4096, kHidden = 16384;

// Each layer has two products, of which the second is summed over "model".
struct Network {
  std::vector<Array> in, out, bias;
};

Array apply(Array x, const Network& n) {
  for (std::size_t l = 0; l < n.in.size(); ++l)
    x = x + matmul(relu(matmul(x * 0.5f, n.in[l])), n.out[l]) * 0.1f + n.bias[l];
  return x;
}

// The functions capture a value, so that nothing is cached for their type and each call traces
// anew.
ClosedJaxpr traced(bool gradient) {
  const float scale = gradient ? 0.5f : 1.f;
  const auto loss = [scale](Array x, std::vector<Array> in, std::vector<Array> out,
                            std::vector<Array> bias) {
    return apply(x * scale, {std::move(in), std::move(out), std::move(bias)});
  };
  const AbstractMesh mesh({2048, 8}, {"data", "model"});
  const Specs specs{P("data"), P(none, "model"), P("model"), P()};
  const ShapedArray x({kBatch, kWidth}, bf16);
  const std::vector<ShapedArray> in(kLayers, ShapedArray({kWidth, kHidden}, bf16)),
      out(kLayers, ShapedArray({kHidden, kWidth}, bf16)),
      bias(kLayers, ShapedArray({kWidth}, bf16));
  if (!gradient) return make_jaxpr(jit(loss, mesh, specs, P("data")))(x, in, out, bias);
  const auto total = [loss](Array y, std::vector<Array> a, std::vector<Array> b,
                            std::vector<Array> c) {
    return sum(loss(std::move(y), std::move(a), std::move(b), std::move(c)));
  };
  return make_jaxpr(jit(grad<1, 2, 3>(total), mesh, specs, {P(none, "model"), P("model"), P()}))(
      x, in, out, bias);
}

std::size_t equations(const Jaxpr& jaxpr) {
  std::size_t n = jaxpr.eqns.size();
  for (const Eqn& e : jaxpr.eqns)
    for (const Jaxpr* inner : inner_jaxprs(*e.params)) n += equations(*inner);
  return n;
}

std::size_t collectives(const ClosedJaxpr& jaxpr) {
  return cost_analysis(jaxpr).collectives.size();
}

// The time per 1000 equations of the program.
Row partition_row() {
  return {"partition 1000 equations", {}, [] {
            const auto jaxpr = std::make_shared<ClosedJaxpr>(traced(false));
            const auto made = std::make_shared<std::optional<ProgramOfBlocks>>();
            const auto* mesh = mesh_of_program(jaxpr->impl());
            Work work;
            work.call = [=] { *made = program_of_blocks(jaxpr->impl(), mesh, true); };
            work.check = [=]() -> std::string {
              if (!*made) return "the program was not partitioned";
              const std::size_t sums = collectives(*jaxpr);
              return sums == kLayers ? std::string()
                                     : std::to_string(sums) + " collectives, not one a layer";
            };
            work.parts = static_cast<double>(equations(*jaxpr->impl().jaxpr)) / 1000;
            work.about.set("equations", static_cast<double>(equations(*jaxpr->impl().jaxpr)));
            return work;
          }};
}

Row simulate_row(const char* name, bool gradient) {
  return {name, {}, [gradient] {
            const auto schedule = std::make_shared<Schedule>();
            Work work;
            work.call = [=] {
              *schedule = simulate(traced(gradient),
                                   Topology{.levels = {{8, {3, 400000}}, {2048, {10, 45000}}},
                                            .flops_per_us = 7e8,
                                            .memory_bytes_per_us = 4e6});
            };
            // The predicted time must exceed that of the products alone.
            work.check = [=]() -> std::string {
              const double products = (gradient ? 3 : 1) * 2.0 * 2 * kLayers * (kBatch / 2048.0) *
                                      kWidth * (kHidden / 8.0) / 7e8;
              return schedule->us > products && schedule->exposed_communication_us > 0
                         ? std::string()
                         : "predicted " + std::to_string(schedule->us) + " us";
            };
            return work;
          }};
}

}  // namespace

int main(int argc, char** argv) {
  return shmap::bench::bench_main(
      argc, argv, "partition_bench",
      {partition_row(), simulate_row("trace, partition, simulate 100 layers on 16384", false),
       simulate_row("the same, their gradient", true)});
}
