#include "core/ops/optimization_barrier.h"

#include <atomic>

#include "core/ir/planned_primitive.h"
#include "core/ops/rules.h"

namespace shmap {

namespace {

void eval_barrier(Types in, const Params&, std::span<ShapedArray> out) { out[0] = in[0]; }

}  // namespace

BarrierParams::BarrierParams() {
  static std::atomic<std::int64_t> next{0};
  id = next.fetch_add(1, std::memory_order_relaxed);
}

void BarrierParams::visit(ParamVisitor& v) const { v.value("id", id); }

constinit Primitive optimization_barrier_p = [] {
  Primitive p = planned_primitive("optimization_barrier");
  p.abstract_eval = eval_barrier;
  p.view = view_whole;
  p.no_kernel = "it is a view of its operand, which simplification keeps from being a literal";
  return p;
}();

void register_optimization_barrier() { register_primitive(optimization_barrier_p); }

}  // namespace shmap
