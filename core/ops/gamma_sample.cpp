#include "core/ops/gamma_sample.h"

#include "core/ops/batch_rules.h"
#include "core/ops/elementwise.h"
#include "core/ops/rules.h"

namespace shmap {

namespace {

void eval_sample(Types in, const Params&, std::span<ShapedArray> out) {
  if (!is_floating(in[0].dtype()) || in[1].dtype() != in[0].dtype() ||
      in[1].dims() != in[0].dims()) {
    throw TypeError("random_gamma_sample: a sample of type " + to_string(in[0]) +
                    " and a parameter of type " + to_string(in[1]) +
                    ": wanted one shape and one float dtype");
  }
  out[0] = in[0].with_axes(AxisSet());
}

void batch_sample(BatchCall& call) {
  Array in[2] = {with_batch_dim(call, 0, 0), with_batch_dim(call, 1, 0)};
  give(call, in, call.params, 0);
}

}  // namespace

constinit Primitive random_gamma_sample_p = [] {
  Primitive p;
  p.name = "random_gamma_sample";
  p.abstract_eval = eval_sample;
  p.sharding = Rule<ShardingRuleFn>(elementwise_sharding);
  p.view = view_whole;
  p.transpose = Rule<TransposeFn>::none("it is linear in neither operand");
  p.batching = Rule<BatchFn>(batch_sample);
  return p;
}();

void register_gamma_sample() { register_primitive(random_gamma_sample_p); }

}  // namespace shmap
