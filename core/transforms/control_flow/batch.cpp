// Batching of loops and branches. Where the predicate is batched, a loop runs until it has ended
// for all elements of the batch, and an element for which the loop has ended keeps its values; all
// branches run, and each element takes the results of its own branch.
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/reduce.h"
#include "core/ops/shape_params.h"
#include "core/transforms/autodiff/derived.h"
#include "core/transforms/control_flow/flow_primitives.h"
#include "core/transforms/control_flow/flow_rules.h"
#include "core/transforms/control_flow/staged_flow.h"

namespace shmap {

namespace {

std::vector<bool> batched(const BatchCall& call, std::size_t first, std::size_t n) {
  std::vector<bool> out;
  for (std::size_t i = first; i < first + n; ++i) out.push_back(call.is_batched(i));
  return out;
}

std::vector<bool> joined(std::vector<bool> a, const std::vector<bool>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Appends the operands from `first` on; those in `is_batched` get the batch dimension 0.
void append(std::vector<Array>& out, const BatchCall& call, std::size_t first,
            const std::vector<bool>& is_batched) {
  for (std::size_t i = 0; i < is_batched.size(); ++i)
    out.push_back(is_batched[i] ? with_batch_dim(call, first + i, 0) : call.in[first + i]);
}

std::vector<ShapedArray> binder_types(const Jaxpr& jaxpr, std::size_t first, std::size_t n) {
  std::vector<ShapedArray> out;
  for (std::size_t k = 0; k < n; ++k) out.push_back(jaxpr.binders[first + k]->type);
  return out;
}

// Traces `body` with arguments of these types, with the mesh axes and the variance check of `like`.
template <class Body>
Traced trace_program(const Jaxpr& like, const std::vector<ShapedArray>& types, Body body) {
  JaxprTrace trace("vmap", like);
  std::vector<Array> args;
  for (const ShapedArray& t : types) args.push_back(trace.argument(t));
  TraceScope scope(trace);
  std::vector<Array> results = body(std::move(args));
  return trace.build(results, "vmap", {});
}

std::vector<ShapedArray> binder_types(const Jaxpr& jaxpr) {
  return binder_types(jaxpr, 0, jaxpr.binders.size());
}

// For each element of the batch on_true where its predicate holds, else on_false. The batch
// dimension is dimension 0 of all three, and the only one of pred.
Array choose(const Array& pred, const Array& on_true, const Array& on_false, SourceLine source) {
  Array in[] = {pred, on_false, on_true};
  const Shape shape = node_of(on_true)->type.dims();
  if (shape.rank() > 1) in[0] = bind_broadcast(pred, shape, Dims(0), source);
  AxisSet axes;
  for (const Array& x : in) axes = axes | node_of(x)->type.axes();
  for (Array& x : in) {
    const AxisSet missing = axes - node_of(x)->type.axes();
    if (!missing.empty() && current_trace().checks_variance())
      x = cast_to_varying(x, missing, source);
  }
  return bind(select_n_p, in, no_params, source);
}

}  // namespace

void batch_scan(BatchCall& call) {
  const auto& p = params_as<ScanLoopParams>(call.params);
  const std::size_t consts = count(p.num_consts), n_carry = count(p.num_carry);
  const std::size_t first_x = consts + n_carry, n_xs = call.in.size() - first_x;
  const std::size_t n_ys = call.out.size() - n_carry;
  const std::vector<bool> const_mask = batched(call, 0, consts),
                          x_mask = batched(call, first_x, n_xs);
  std::vector<bool> carry = batched(call, consts, n_carry);
  // A carry that is batched after one trip is batched on every trip: repeated until no carry is
  // added.
  BatchedProgram body;
  for (;;) {
    const std::vector<ShapedArray> types = binder_types(*p.jaxpr, consts, n_carry);
    body = *derived_batch(p.jaxpr, call.size, joined(joined(const_mask, carry), x_mask),
                          joined(carry, std::vector<bool>(n_ys)), types);
    const std::vector<bool> next(body.batched_out.begin(),
                                 body.batched_out.begin() + static_cast<std::ptrdiff_t>(n_carry));
    if (next == carry) break;
    carry = next;
  }
  ScanLoopParams params(p);
  params.jaxpr = body.jaxpr;
  params.num_consts += static_cast<int>(body.consts.size());
  std::vector<Array> in = std::move(body.consts);
  append(in, call, 0, const_mask);
  append(in, call, consts, carry);
  // xs and ys have the loop's dim first, so that their batch dimension is 1.
  for (std::size_t i = first_x; i < call.in.size(); ++i)
    in.push_back(call.is_batched(i) ? with_batch_dim(call, i, 1) : call.in[i]);
  give(call, in, params, 0);
  for (std::size_t o = 0; o < call.out.size(); ++o)
    call.out_dims[o] = !body.batched_out[o] ? -1 : o < n_carry ? 0 : 1;
}

void batch_while(BatchCall& call) {
  const auto& p = params_as<WhileParams>(call.params);
  const std::size_t tests = count(p.cond_nconsts), bodies = count(p.body_nconsts);
  const std::size_t first = tests + bodies, n = call.in.size() - first;
  const std::vector<bool> test_mask = batched(call, 0, tests),
                          body_mask = batched(call, tests, bodies);
  const std::vector<ShapedArray> types = binder_types(*p.body_jaxpr, bodies, n);
  std::vector<bool> carry = batched(call, first, n);
  BatchedProgram test, body;
  for (;;) {
    test = *derived_batch(p.cond_jaxpr, call.size, joined(test_mask, carry));
    // Where the loop ends at different times for different elements, all of the carry is batched.
    if (test.batched_out[0]) carry.assign(n, true);
    body = *derived_batch(p.body_jaxpr, call.size, joined(body_mask, carry), carry, types);
    if (body.batched_out == carry) break;
    carry = body.batched_out;
  }
  if (test.batched_out[0])  // the last round may have found more batched carries
    test = *derived_batch(p.cond_jaxpr, call.size, joined(test_mask, carry));
  WhileParams params(p);
  std::vector<Array> test_in = std::move(test.consts), body_in = std::move(body.consts);
  append(test_in, call, 0, test_mask);
  append(body_in, call, tests, body_mask);
  params.cond_jaxpr = test.jaxpr;
  params.body_jaxpr = body.jaxpr;
  if (test.batched_out[0]) {
    const Jaxpr &one_test = *test.jaxpr, &one_body = *body.jaxpr;
    const auto n_test = static_cast<std::ptrdiff_t>(test_in.size());
    const auto n_body = static_cast<std::ptrdiff_t>(body_in.size());
    params.cond_jaxpr =
        trace_program(one_test, binder_types(one_test), [&](std::vector<Array> args) {
          const Array go = eval_jaxpr(one_test, std::move(args))[0];
          return std::vector<Array>{bind(reduce_or_p, go, ReduceParams(Dims(0)), call.source)};
        }).jaxpr;
    // The body needs the condition's result for each element, and therefore the condition's
    // constants.
    std::vector<ShapedArray> wide = binder_types(one_test, 0, test_in.size());
    for (const ShapedArray& t : binder_types(one_body)) wide.push_back(t);
    params.body_jaxpr = trace_program(one_body, wide, [&](std::vector<Array> args) {
                          const auto at = args.begin();
                          const std::vector<Array> old(at + n_test + n_body, args.end());
                          std::vector<Array> for_test(at, at + n_test),
                              for_body(at + n_test, args.end());
                          for_test.insert(for_test.end(), old.begin(), old.end());
                          const Array go = eval_jaxpr(one_test, std::move(for_test))[0];
                          std::vector<Array> next = eval_jaxpr(one_body, std::move(for_body));
                          for (std::size_t k = 0; k < next.size(); ++k)
                            next[k] = choose(go, next[k], old[k], call.source);
                          return next;
                        }).jaxpr;
    body_in.insert(body_in.begin(), test_in.begin(), test_in.end());
  }
  params.cond_nconsts = static_cast<int>(test_in.size());
  params.body_nconsts = static_cast<int>(body_in.size());
  std::vector<Array> in = std::move(test_in);
  in.insert(in.end(), body_in.begin(), body_in.end());
  append(in, call, first, carry);
  give(call, in, params, 0);
  for (std::size_t k = 0; k < n; ++k) call.out_dims[k] = carry[k] ? 0 : -1;
}

void batch_cond(BatchCall& call) {
  const auto& p = params_as<CondParams>(call.params);
  const SourceLine s = call.source;
  const std::size_t n = call.in.size() - 1, n_out = call.out.size();
  const std::vector<bool> mask = batched(call, 1, n);
  const bool differs = call.is_batched(0);
  // A result is batched if any branch gives it batched, or if elements take different branches.
  std::vector<bool> out(n_out, differs);
  std::vector<BatchedProgram> branches;
  for (const JaxprRef& b : p.branches) {
    branches.push_back(*derived_batch(b, call.size, mask, out));
    for (std::size_t o = 0; o < n_out; ++o) out[o] = out[o] || branches.back().batched_out[o];
  }
  std::vector<Array> args;
  append(args, call, 1, mask);
  if (!differs) {
    std::vector<Traced> traced;
    for (std::size_t b = 0; b < branches.size(); ++b) {
      if (branches[b].batched_out != out)
        branches[b] = *derived_batch(p.branches[b], call.size, mask, out);
      traced.push_back({branches[b].jaxpr, branches[b].consts});
    }
    std::vector<Traced*> programs;
    for (Traced& t : traced) programs.push_back(&t);
    std::vector<Array> in = merge_constants(programs);
    CondParams params;
    for (Traced& t : traced) params.branches.push_back(std::move(t.jaxpr));
    in.insert(in.begin(), call.in[0]);
    in.insert(in.end(), args.begin(), args.end());
    give(call, in, params, 0);
    for (std::size_t o = 0; o < n_out; ++o) call.out_dims[o] = out[o] ? 0 : -1;
    return;
  }
  const Array index = with_batch_dim(call, 0, 0);
  const ShapedArray& type = node_of(index)->type;
  std::vector<Array> chosen;
  for (std::size_t b = branches.size(); b-- > 0;) {
    std::vector<Array> in = branches[b].consts;
    in.insert(in.end(), args.begin(), args.end());
    std::vector<Array> results = eval_jaxpr(*branches[b].jaxpr, std::move(in));
    if (chosen.empty()) {
      chosen = std::move(results);
      continue;
    }
    // An index out of range is clamped to the first or the last branch.
    const Array here =
        type.dtype() == DType::bool_
            ? bind(not__p, index, no_params, s)
            : bind(le_p, index, convert(Array(static_cast<std::int64_t>(b)), type.dtype(), s),
                   no_params, s);
    for (std::size_t o = 0; o < n_out; ++o) chosen[o] = choose(here, results[o], chosen[o], s);
  }
  for (std::size_t o = 0; o < n_out; ++o) {
    call.out[o] = std::move(chosen[o]);
    call.out_dims[o] = 0;
  }
}

}  // namespace shmap
