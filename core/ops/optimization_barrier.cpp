#include "core/ops/optimization_barrier.h"

#include <atomic>

namespace shmap {

namespace {

void eval_barrier(Types in, const Params&, std::span<ShapedArray> out) { out[0] = in[0]; }

std::int64_t same_bytes(const ShapedArray&, const Params&, const ShapedArray&) { return 0; }

}  // namespace

BarrierParams::BarrierParams() {
  static std::atomic<std::int64_t> next{0};
  id = next.fetch_add(1, std::memory_order_relaxed);
}

void BarrierParams::visit(ParamVisitor& v) const { v.value("id", id); }

constinit Primitive optimization_barrier_p = [] {
  Primitive p;
  p.name = "optimization_barrier";
  p.abstract_eval = eval_barrier;
  p.view = same_bytes;
  p.jvp = Rule<JvpFn>::none("it is part of lowered programs, which are differentiated no more");
  p.transpose =
      Rule<TransposeFn>::none("it is part of lowered programs, which are differentiated no more");
  p.batching = Rule<BatchFn>::none("it is part of lowered programs, which are mapped no more");
  return p;
}();

void register_optimization_barrier() { register_primitive(optimization_barrier_p); }

}  // namespace shmap
