// Control flow of global arrays as control flow of blocks. The deciding value is the same on every
// device. A carry is split as its init is; if the init is not split, as the body returns it.
// Between trips nothing is moved except by the body itself.
#include "core/compiler/lowering/lower.h"

#include "core/transforms/control_flow/flow_primitives.h"
#include "core/transforms/control_flow/flow_rules.h"
#include "core/transforms/control_flow/scan_elements.h"
#include "core/transforms/control_flow/staged_flow.h"

namespace shmap {

namespace {

std::vector<const Sharding*> shardings_of(const LowerCall& call, std::size_t from, std::size_t to) {
  std::vector<const Sharding*> s;
  for (std::size_t i = from; i < to; ++i)
    s.push_back(call.in[i].sharding ? call.in[i].sharding : call.lowering.mesh()->replicated());
  return s;
}

// Lowers the body of a loop so that each carry has one sharding in all trips. `before`, `after`:
// the shardings of the arguments before and after the carry.
LoweredProgram lower_body(const LowerCall& call, const Jaxpr& jaxpr,
                          const std::vector<const Sharding*>& before,
                          std::vector<const Sharding*>& carry,
                          const std::vector<const Sharding*>& after) {
  for (;;) {
    std::vector<const Sharding*> arguments = before;
    arguments.insert(arguments.end(), carry.begin(), carry.end());
    arguments.insert(arguments.end(), after.begin(), after.end());
    LoweredProgram loose = call.lowering.inner(jaxpr, arguments, call.source);
    bool adopted = false;
    for (std::size_t k = 0; k < carry.size(); ++k) {
      if (!carry[k]->is_replicated() || loose.results[k]->is_replicated()) continue;
      carry[k] = loose.results[k];
      adopted = true;
    }
    if (!adopted) return call.lowering.with_results(jaxpr, std::move(loose), carry, call.source);
  }
}

std::vector<Array> bind_blocks(LowerCall& call, const Primitive& primitive,
                               std::vector<Array>& operands, const Params& params) {
  TraceScope scope(call.lowering.trace());
  std::vector<Array> out(call.out.size());
  call.lowering.trace().process(primitive, operands, params, out, call.source);
  return out;
}

void append(std::vector<Array>& values, const std::vector<Array>& more) {
  values.insert(values.end(), more.begin(), more.end());
}

}  // namespace

void lower_scan(LowerCall& call) {
  const auto& p = params_as<ScanLoopParams>(call.params);
  const std::size_t first = count(p.num_consts), xs_at = first + count(p.num_carry);
  std::vector<LowerValue> in(call.in.begin(), call.in.end());
  for (std::size_t i = xs_at; i < in.size(); ++i) {
    if (in[i].sharding)
      in[i] = call.lowering.reshard(in[i], whole_in_front(in[i].sharding), "scan: xs", call.source);
  }
  const std::vector<const Sharding*> consts = shardings_of(call, 0, first);
  std::vector<const Sharding*> carry = shardings_of(call, first, xs_at);
  std::vector<const Sharding*> elements;
  for (std::size_t i = xs_at; i < in.size(); ++i)
    elements.push_back(in[i].sharding ? element_sharding(in[i].sharding)
                                      : call.lowering.mesh()->replicated());
  LoweredProgram body = lower_body(call, *p.jaxpr, consts, carry, elements);
  ScanLoopParams params;
  params.jaxpr = std::move(body.traced.jaxpr);
  params.length = p.length;
  params.reverse = p.reverse;
  params.num_consts = p.num_consts + static_cast<int>(body.traced.consts.size());
  params.num_carry = p.num_carry;
  std::vector<Array> operands = std::move(body.traced.consts);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (i >= first && i < xs_at)
      in[i] = call.lowering.reshard(in[i], carry[i - first], "scan: the init", call.source);
    operands.push_back(in[i].block);
  }
  std::vector<Array> out = bind_blocks(call, scan_p, operands, params);
  for (std::size_t o = 0; o < out.size(); ++o) {
    call.out[o].block = std::move(out[o]);
    call.out[o].sharding = o < carry.size() ? carry[o] : stacked_sharding(body.results[o]);
  }
}

void lower_while(LowerCall& call) {
  const auto& p = params_as<WhileParams>(call.params);
  const std::size_t tests = count(p.cond_nconsts), first = tests + count(p.body_nconsts);
  std::vector<const Sharding*> carry = shardings_of(call, first, call.in.size());
  LoweredProgram body =
      lower_body(call, *p.body_jaxpr, shardings_of(call, tests, first), carry, {});
  std::vector<const Sharding*> arguments = shardings_of(call, 0, tests);
  arguments.insert(arguments.end(), carry.begin(), carry.end());
  const LoweredProgram test = call.lowering.with_results(
      *p.cond_jaxpr, call.lowering.inner(*p.cond_jaxpr, arguments, call.source),
      {call.lowering.mesh()->replicated()}, call.source);
  WhileParams params;
  params.cond_jaxpr = test.traced.jaxpr;
  params.body_jaxpr = std::move(body.traced.jaxpr);
  params.cond_nconsts = p.cond_nconsts + static_cast<int>(test.traced.consts.size());
  params.body_nconsts = p.body_nconsts + static_cast<int>(body.traced.consts.size());
  std::vector<Array> operands;
  append(operands, test.traced.consts);
  for (std::size_t i = 0; i < tests; ++i) operands.push_back(call.in[i].block);
  append(operands, body.traced.consts);
  for (std::size_t i = tests; i < call.in.size(); ++i) {
    const LowerValue x = i < first ? call.in[i]
                                   : call.lowering.reshard(call.in[i], carry[i - first],
                                                           "while: the init", call.source);
    operands.push_back(x.block);
  }
  std::vector<Array> out = bind_blocks(call, while_p, operands, params);
  for (std::size_t o = 0; o < out.size(); ++o) {
    call.out[o].block = std::move(out[o]);
    call.out[o].sharding = carry[o];
  }
}

void lower_cond(LowerCall& call) {
  const auto& p = params_as<CondParams>(call.params);
  const detail::MeshImpl* mesh = call.lowering.mesh();
  const LowerValue index =
      call.lowering.reshard(call.in[0], mesh->replicated(), "cond: the index", call.source);
  const std::vector<const Sharding*> arguments = shardings_of(call, 1, call.in.size());
  // Results are split as in the first branch that splits them.
  std::vector<const Sharding*> targets(call.out.size(), mesh->replicated());
  std::vector<LoweredProgram> inner;
  for (const JaxprRef& branch : p.branches) {
    const LoweredProgram& loose =
        inner.emplace_back(call.lowering.inner(*branch, arguments, call.source));
    for (std::size_t o = 0; o < targets.size(); ++o)
      if (targets[o]->is_replicated()) targets[o] = loose.results[o];
  }
  std::vector<Traced*> programs;
  for (std::size_t b = 0; b < inner.size(); ++b) {
    inner[b] =
        call.lowering.with_results(*p.branches[b], std::move(inner[b]), targets, call.source);
    programs.push_back(&inner[b].traced);
  }
  const std::vector<Array> consts = merge_constants(programs);
  CondParams params;
  for (LoweredProgram& b : inner) params.branches.push_back(std::move(b.traced.jaxpr));
  std::vector<Array> operands{index.block};
  append(operands, consts);
  for (std::size_t i = 1; i < call.in.size(); ++i) operands.push_back(call.in[i].block);
  std::vector<Array> out = bind_blocks(call, cond_p, operands, params);
  for (std::size_t o = 0; o < out.size(); ++o) {
    call.out[o].block = std::move(out[o]);
    call.out[o].sharding = targets[o];
  }
}

}  // namespace shmap
