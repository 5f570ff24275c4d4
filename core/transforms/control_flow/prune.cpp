// Removes unused results and operands of loops and branches, and carries that only they themselves
// read.
#include <algorithm>

#include "core/compiler/passes/dead_code.h"
#include "core/transforms/control_flow/flow_primitives.h"
#include "core/transforms/control_flow/flow_rules.h"

namespace shmap {

namespace {

using Mask = std::vector<bool>;

int kept_among(const Mask& kept, std::size_t from, std::size_t to) {
  return static_cast<int>(std::count(kept.begin() + static_cast<std::ptrdiff_t>(from),
                                     kept.begin() + static_cast<std::ptrdiff_t>(to), true));
}
bool all(const Mask& mask) { return std::find(mask.begin(), mask.end(), false) == mask.end(); }
void append(Mask& mask, const Mask& more) { mask.insert(mask.end(), more.begin(), more.end()); }
Mask part(const Mask& mask, std::size_t from, std::size_t to) {
  return {mask.begin() + static_cast<std::ptrdiff_t>(from),
          mask.begin() + static_cast<std::ptrdiff_t>(to)};
}

// The program of these results, with the arguments in `binders`, which include all that it reads.
JaxprRef with_arguments(const Jaxpr& jaxpr, const Mask& results, const Mask& binders,
                        PruneMemo& memo) {
  const PrunedJaxpr pruned = prune_jaxpr(jaxpr, results, memo);
  if (!pruned.changed && all(results) && all(binders)) return JaxprRef(&jaxpr);
  if (pruned.kept == binders) return pruned.jaxpr;
  std::vector<VarRef> arguments;
  for (std::size_t i = 0; i < binders.size(); ++i)
    if (binders[i]) arguments.push_back(jaxpr.binders[i]);
  return jaxpr_like(jaxpr, std::move(arguments), pruned.jaxpr->eqns, pruned.jaxpr->outs);
}

// Extends `carry` to all carries that are needed to compute these carries, and the results after
// the carry that `more` names. Returns which arguments of the body are then read. `first`: where
// the carry begins in the arguments.
Mask close_carry(const Jaxpr& body, std::size_t first, Mask& carry, const Mask& more,
                 PruneMemo& memo) {
  for (;;) {
    Mask results = carry;
    append(results, more);
    Mask read = prune_jaxpr(body, results, memo).kept;
    bool grown = false;
    for (std::size_t k = 0; k < carry.size(); ++k) {
      if (!read[first + k] || carry[k]) continue;
      carry[k] = grown = true;
    }
    if (!grown) return read;
  }
}

}  // namespace

void prune_scan(PruneCall& call) {
  const auto& p = params_as<ScanLoopParams>(call.params);
  const std::size_t first = count(p.num_consts), xs_at = first + count(p.num_carry);
  Mask carry = part(call.wanted, 0, count(p.num_carry));
  const Mask ys = part(call.wanted, count(p.num_carry), call.wanted.size());
  Mask kept = close_carry(*p.jaxpr, first, carry, ys, call.memo);
  for (std::size_t k = 0; k < carry.size(); ++k) kept[first + k] = carry[k];
  Mask results = carry;
  append(results, ys);
  const JaxprRef body = with_arguments(*p.jaxpr, results, kept, call.memo);
  if (body == p.jaxpr && all(kept) && all(results)) return;
  auto made = std::make_shared<ScanLoopParams>(p);
  made->jaxpr = body;
  made->num_consts = kept_among(kept, 0, first);
  made->num_carry = kept_among(kept, first, xs_at);
  call.pruned = std::move(made);
  call.kept_in = std::move(kept);
  call.kept_out = std::move(results);
}

void prune_while(PruneCall& call) {
  const auto& p = params_as<WhileParams>(call.params);
  const std::size_t tests = count(p.cond_nconsts), bodies = count(p.body_nconsts);
  // All carries that the condition reads are needed, since they decide the number of trips.
  Mask test_reads = prune_jaxpr(*p.cond_jaxpr, {true}, call.memo).kept;
  Mask carry = call.wanted;
  for (std::size_t k = 0; k < carry.size(); ++k) carry[k] = carry[k] || test_reads[tests + k];
  Mask body_reads = close_carry(*p.body_jaxpr, bodies, carry, {}, call.memo);
  for (std::size_t k = 0; k < carry.size(); ++k)
    test_reads[tests + k] = body_reads[bodies + k] = carry[k];
  auto made = std::make_shared<WhileParams>(p);
  made->cond_jaxpr = with_arguments(*p.cond_jaxpr, {true}, test_reads, call.memo);
  made->body_jaxpr = with_arguments(*p.body_jaxpr, carry, body_reads, call.memo);
  if (made->cond_jaxpr == p.cond_jaxpr && made->body_jaxpr == p.body_jaxpr && all(test_reads) &&
      all(body_reads) && all(carry))
    return;
  made->cond_nconsts = kept_among(test_reads, 0, tests);
  made->body_nconsts = kept_among(body_reads, 0, bodies);
  call.pruned = std::move(made);
  call.kept_in = part(test_reads, 0, tests);
  append(call.kept_in, body_reads);
  call.kept_out = std::move(carry);
}

void prune_cond(PruneCall& call) {
  const auto& p = params_as<CondParams>(call.params);
  Mask reads(p.branches[0]->binders.size(), false);
  for (const JaxprRef& branch : p.branches) {
    const Mask own = prune_jaxpr(*branch, call.wanted, call.memo).kept;
    for (std::size_t i = 0; i < reads.size(); ++i) reads[i] = reads[i] || own[i];
  }
  auto made = std::make_shared<CondParams>(p);
  for (JaxprRef& branch : made->branches)
    branch = with_arguments(*branch, call.wanted, reads, call.memo);
  if (made->branches == p.branches && all(reads) && all(call.wanted)) return;
  call.pruned = std::move(made);
  call.kept_in = {true};  // the index
  append(call.kept_in, reads);
  call.kept_out = call.wanted;
}

}  // namespace shmap
