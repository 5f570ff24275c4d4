// The cost of a program on one device, from the primitives' cost rules.
#include <algorithm>
#include <optional>
#include <utility>

#include "core/compiler/lowering/closed_program.h"
#include "core/compiler/passes/inline_calls.h"
#include "core/compiler/passes/simplify.h"
#include "core/ir/collective_axes.h"
#include "core/ir/jaxpr.h"
#include "core/ir/nesting.h"
#include "core/ir/types_of.h"

namespace shmap {

namespace {

double bytes_of(Types types) {
  double bytes = 0;
  for (const ShapedArray& t : types) bytes += static_cast<double>(t.nbytes());
  return bytes;
}

void add(CostAnalysis& total, const CostAnalysis& part) {
  total.flops += part.flops;
  total.bytes_accessed += part.bytes_accessed;
  total.collectives.insert(total.collectives.end(), part.collectives.begin(),
                           part.collectives.end());
}

CostAnalysis cost_of(const Jaxpr& jaxpr);

CostAnalysis cost_inside(const Eqn& e) {
  CostAnalysis inside;
  for (const Jaxpr* program : inner_jaxprs(*e.params)) {
    CostAnalysis one = cost_of(*program);
    if (!e.primitive->programs.one_runs()) {
      add(inside, one);
    } else if (std::pair(one.flops, one.bytes_accessed) >=
               std::pair(inside.flops, inside.bytes_accessed)) {
      inside = std::move(one);
    }
  }
  const std::int64_t trips =
      e.primitive->programs.trips ? e.primitive->programs.trips(*e.params) : 1;
  CostAnalysis total;
  total.flops = inside.flops * static_cast<double>(trips);
  total.bytes_accessed = inside.bytes_accessed * static_cast<double>(trips);
  if (!inside.collectives.empty())
    for (std::int64_t t = 0; t < trips; ++t)
      total.collectives.insert(total.collectives.end(), inside.collectives.begin(),
                               inside.collectives.end());
  return total;
}

CostAnalysis cost_of(const Jaxpr& jaxpr) {
  const PassVisit visit("cost_analysis", jaxpr);
  CostAnalysis total;
  for (const Eqn& e : jaxpr.eqns) {
    if (e.primitive->interpret) {
      add(total, cost_inside(e));
      continue;
    }
    const std::vector<ShapedArray> in = types_of(e.in), out = types_of(e.out);
    if (e.primitive->flops) total.flops += e.primitive->flops(in, *e.params, out);
    total.bytes_accessed += bytes_of(in) + bytes_of(out);
    if (e.primitive->moves_data()) {
      total.collectives.push_back(
          {e.primitive->name, collective_axes(*e.params), static_cast<std::int64_t>(bytes_of(in))});
    }
  }
  return total;
}

// Lowers a program of global arrays to a program of blocks, with the collectives that jit adds.
// Null if nothing is split outside of shard_maps, whose bodies are programs of blocks already.
JaxprRef blocks_of(const detail::ClosedJaxprImpl& program) {
  const detail::MeshImpl* mesh = mesh_of_program(program);
  const bool is_placed = std::any_of(program.in_shardings.begin(), program.in_shardings.end(),
                                     [](const Sharding* s) { return s != nullptr; });
  if (!mesh || mesh->is_single() || (!is_placed && !asks_to_be_split(*program.jaxpr))) return {};
  const std::optional<ProgramOfBlocks> blocks =
      program_of_blocks(program, mesh, has_jit_over_mesh(*program.jaxpr));
  return blocks ? simplify(*inline_calls(*blocks->lowered.jaxpr)) : JaxprRef();
}

}  // namespace

CostAnalysis cost_analysis(const ClosedJaxpr& jaxpr) {
  const JaxprRef blocks = blocks_of(jaxpr.impl());
  return cost_of(blocks ? *blocks : *jaxpr.impl().jaxpr);
}

}  // namespace shmap
