// assume_equal: varying to invariant on the user's word alone. The out_specs of a mapped function
// without checks (check_vma = false) may say that blocks are equal although their type varies; in a
// lowered program this primitive removes the axes from the type. Nothing runs.
#include <utility>

#include "collectives/primitives.h"
#include "collectives/scope.h"
#include "collectives/sharding_rules.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

constexpr const char* kLowered =
    "it is part of lowered programs, which are differentiated and mapped no more";

void eval_assume_equal(Types in, const Params&, std::span<ShapedArray> out) { out[0] = in[0]; }

void vary_assume_equal(Types in, const Params& params, const detail::AxisEnv& env,
                       std::span<ShapedArray> out) {
  varying_to_invariant(in, params_as<AxesParams>(params).axes, env, out, "assume_equal");
}

// Only the type changes: the table stays.
void run_assume_equal(GroupCall& call) {
  share_blocks(std::as_const(*call.in[0]).blocks(), call.out[0]->blocks());
}

}  // namespace

constinit Primitive assume_equal_p = [] {
  Primitive p;
  p.name = "assume_equal";
  p.abstract_eval = eval_assume_equal;
  p.variance = vary_assume_equal;
  p.group = run_assume_equal;
  p.sharding = Rule<ShardingRuleFn>(split_as_operand);
  p.jvp = Rule<JvpFn>::none(kLowered);
  p.transpose = Rule<TransposeFn>::none(kLowered);
  p.batching = Rule<BatchFn>::none(kLowered);
  return p;
}();

void register_collectives_assume_equal() { register_primitive(assume_equal_p); }

}  // namespace shmap
