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

// The masks of a while loop's operands: which have a batch dimension.
struct WhileMasks {
  std::vector<bool> test, body, carry;
};
struct BatchedWhile {
  BatchedProgram test, body;
};

// The programs of a loop whose operands are batched by `masks`; a carry that is batched after one
// trip is batched on every trip, and is added to masks.carry.
BatchedWhile batched_while(const BatchCall& call, const WhileParams& p, WhileMasks& masks) {
  const std::size_t n = masks.carry.size();
  const std::vector<ShapedArray> types = binder_types(*p.body_jaxpr, masks.body.size(), n);
  BatchedWhile made;
  for (;;) {
    made.test = *derived_batch(p.cond_jaxpr, call.size, joined(masks.test, masks.carry));
    // Where the loop ends at different times for different elements, all of the carry is batched.
    if (made.test.batched_out[0]) masks.carry.assign(n, true);
    made.body = *derived_batch(p.body_jaxpr, call.size, joined(masks.body, masks.carry),
                               masks.carry, types);
    if (made.body.batched_out == masks.carry) break;
    masks.carry = made.body.batched_out;
  }
  if (made.test.batched_out[0])  // the last round may have found more batched carries
    made.test = *derived_batch(p.cond_jaxpr, call.size, joined(masks.test, masks.carry));
  return made;
}

// Whether the loop goes on for any element. `test` says it for each.
JaxprRef test_of_any(const Jaxpr& test, SourceLine source) {
  return trace_program(
             test, binder_types(test),
             [&](std::vector<Array> args) {
               const Array go = eval_jaxpr(test, std::move(args))[0];
               return std::vector<Array>{bind(reduce_or_p, go, ReduceParams(Dims(0)), source)};
             })
      .jaxpr;
}

// A trip in which the elements for which the loop has ended keep their values. It needs the
// condition's result for each element, and therefore takes the condition's constants, before its
// own.
JaxprRef body_of_running(const Jaxpr& test, std::size_t n_test, const Jaxpr& body,
                         std::size_t n_body, SourceLine source) {
  std::vector<ShapedArray> types = binder_types(test, 0, n_test);
  for (const ShapedArray& t : binder_types(body)) types.push_back(t);
  return trace_program(body, types,
                       [&](std::vector<Array> args) {
                         const auto own = args.begin() + static_cast<std::ptrdiff_t>(n_test);
                         const std::vector<Array> old(own + static_cast<std::ptrdiff_t>(n_body),
                                                      args.end());
                         std::vector<Array> for_test(args.begin(), own), for_body(own, args.end());
                         for_test.insert(for_test.end(), old.begin(), old.end());
                         const Array go = eval_jaxpr(test, std::move(for_test))[0];
                         std::vector<Array> next = eval_jaxpr(body, std::move(for_body));
                         for (std::size_t k = 0; k < next.size(); ++k)
                           next[k] = choose(go, next[k], old[k], source);
                         return next;
                       })
      .jaxpr;
}

// The branches of a cond, the operands after the index, and which results have a batch dimension.
struct BatchedCond {
  std::vector<BatchedProgram> branches;
  std::vector<Array> args;
  std::vector<bool> mask, out;
};

// A result is batched if any branch gives it batched, or if elements take different branches.
BatchedCond batched_cond(const BatchCall& call, const CondParams& p) {
  BatchedCond made;
  made.mask = batched(call, 1, call.in.size() - 1);
  made.out.assign(call.out.size(), call.is_batched(0));
  for (const JaxprRef& b : p.branches) {
    made.branches.push_back(*derived_batch(b, call.size, made.mask, made.out));
    for (std::size_t o = 0; o < made.out.size(); ++o)
      made.out[o] = made.out[o] || made.branches.back().batched_out[o];
  }
  append(made.args, call, 1, made.mask);
  return made;
}

// All elements take one branch: a cond of the batched branches, which give the same results
// batched.
void batch_common_branch(BatchCall& call, const CondParams& p, BatchedCond cond) {
  std::vector<Traced> traced;
  for (std::size_t b = 0; b < cond.branches.size(); ++b) {
    if (cond.branches[b].batched_out != cond.out)
      cond.branches[b] = *derived_batch(p.branches[b], call.size, cond.mask, cond.out);
    traced.push_back({cond.branches[b].jaxpr, cond.branches[b].consts});
  }
  std::vector<Traced*> programs;
  for (Traced& t : traced) programs.push_back(&t);
  std::vector<Array> in = merge_constants(programs);
  CondParams params;
  for (Traced& t : traced) params.branches.push_back(std::move(t.jaxpr));
  in.insert(in.begin(), call.in[0]);
  in.insert(in.end(), cond.args.begin(), cond.args.end());
  give(call, in, params, 0);
  for (std::size_t o = 0; o < cond.out.size(); ++o) call.out_dims[o] = cond.out[o] ? 0 : -1;
}

// For each element whether it takes branch `b` or one before it. An index out of range is clamped
// to the first or the last branch.
Array takes_branch_up_to(const Array& index, std::size_t b, SourceLine source) {
  const DType dtype = node_of(index)->type.dtype();
  if (dtype == DType::bool_) return bind(not__p, index, no_params, source);
  const Array last = convert(Array(static_cast<std::int64_t>(b)), dtype, source);
  return bind(le_p, index, last, no_params, source);
}

// Elements take different branches: all branches run, and each element takes the results of its
// own.
void batch_own_branches(BatchCall& call, const BatchedCond& cond) {
  const Array index = with_batch_dim(call, 0, 0);
  std::vector<Array> chosen;
  for (std::size_t b = cond.branches.size(); b-- > 0;) {
    std::vector<Array> in = cond.branches[b].consts;
    in.insert(in.end(), cond.args.begin(), cond.args.end());
    std::vector<Array> results = eval_jaxpr(*cond.branches[b].jaxpr, std::move(in));
    if (chosen.empty()) {
      chosen = std::move(results);
      continue;
    }
    const Array here = takes_branch_up_to(index, b, call.source);
    for (std::size_t o = 0; o < chosen.size(); ++o)
      chosen[o] = choose(here, results[o], chosen[o], call.source);
  }
  for (std::size_t o = 0; o < chosen.size(); ++o) {
    call.out[o] = std::move(chosen[o]);
    call.out_dims[o] = 0;
  }
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
  WhileMasks masks{batched(call, 0, tests), batched(call, tests, bodies), batched(call, first, n)};
  BatchedWhile loop = batched_while(call, p, masks);
  std::vector<Array> test_in = std::move(loop.test.consts), body_in = std::move(loop.body.consts);
  append(test_in, call, 0, masks.test);
  append(body_in, call, tests, masks.body);
  WhileParams params(p);
  params.cond_jaxpr = loop.test.jaxpr;
  params.body_jaxpr = loop.body.jaxpr;
  if (loop.test.batched_out[0]) {
    params.cond_jaxpr = test_of_any(*loop.test.jaxpr, call.source);
    params.body_jaxpr = body_of_running(*loop.test.jaxpr, test_in.size(), *loop.body.jaxpr,
                                        body_in.size(), call.source);
    body_in.insert(body_in.begin(), test_in.begin(), test_in.end());
  }
  params.cond_nconsts = static_cast<int>(test_in.size());
  params.body_nconsts = static_cast<int>(body_in.size());
  std::vector<Array> in = std::move(test_in);
  in.insert(in.end(), body_in.begin(), body_in.end());
  append(in, call, first, masks.carry);
  give(call, in, params, 0);
  for (std::size_t k = 0; k < n; ++k) call.out_dims[k] = masks.carry[k] ? 0 : -1;
}

void batch_cond(BatchCall& call) {
  const auto& p = params_as<CondParams>(call.params);
  BatchedCond cond = batched_cond(call, p);
  if (call.is_batched(0))
    batch_own_branches(call, cond);
  else
    batch_common_branch(call, p, std::move(cond));
}

}  // namespace shmap
