#include "core/transforms/passes/unroll.h"

#include <algorithm>

#include "core/transforms/control_flow/control_flow.h"
#include "core/transforms/passes/pass.h"
#include "core/transforms/tracing/make_jaxpr.h"

namespace shmap {

namespace {

// How many equations a program comes to, once its loops are unrolled; more than kUnrolledEquations
// where that is too many.
std::int64_t equations_of(const Jaxpr& jaxpr);

// The same of a loop; 0 for every other equation.
std::int64_t unrolled_size(const Eqn& e) {
  if (e.primitive != &scan_p) return 0;
  const auto& p = params_as<ScanLoopParams>(*e.params);
  if (p.length == 0) return 0;
  const std::int64_t own = std::max<std::int64_t>(1, equations_of(*p.jaxpr));
  if (own > kUnrolledEquations || p.length > kUnrolledEquations) return kUnrolledEquations + 1;
  return own * p.length;
}

std::int64_t equations_of(const Jaxpr& jaxpr) {
  std::int64_t n = 0;
  for (const Eqn& e : jaxpr.eqns) {
    const std::int64_t loop = unrolled_size(e);
    n += loop == 0 || loop > kUnrolledEquations ? 1 : loop;
  }
  return n;
}

bool is_unrolled(const Eqn& e) {
  const std::int64_t size = unrolled_size(e);
  return size > 0 && size <= kUnrolledEquations;
}

bool has_unrolled(const Jaxpr& jaxpr) {
  return std::any_of(jaxpr.eqns.begin(), jaxpr.eqns.end(), is_unrolled);
}

// Writes programs out, under the current trace.
class Unroller {
 public:
  std::vector<Array> program(const Jaxpr& jaxpr, std::vector<Array> args) const {
    VarMap<Array> values;
    for (std::size_t i = 0; i < args.size(); ++i)
      values[jaxpr.binders[i].get()] = std::move(args[i]);
    const auto read = [&](const Atom& a) {
      return a.is_literal() ? a.literal() : values.at(a.var());
    };
    for (const Eqn& e : jaxpr.eqns) {
      std::vector<Array> in, out(e.out.size());
      for (const Atom& a : e.in) in.push_back(read(a));
      if (is_unrolled(e)) {
        out = loop(e, std::move(in));
      } else {
        current_trace().process(*e.primitive, in, *e.params, out, e.source);
      }
      for (std::size_t o = 0; o < out.size(); ++o) values[e.out[o].get()] = std::move(out[o]);
    }
    std::vector<Array> results;
    for (const Atom& a : jaxpr.outs) results.push_back(read(a));
    return results;
  }

 private:
  std::vector<Array> loop(const Eqn& e, std::vector<Array> in) const {
    const auto& p = params_as<ScanLoopParams>(*e.params);
    const auto first = static_cast<std::size_t>(p.num_consts);
    const std::size_t xs_at = first + static_cast<std::size_t>(p.num_carry);
    const std::vector<Array> consts(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(first));
    std::vector<Array> carry, xs;
    for (std::size_t i = first; i < in.size(); ++i) {
      // A literal goes with any variance, but not into what reads a carry that varies.
      if (i < xs_at) in[i] = fit(std::move(in[i]), p.jaxpr->binders[i]->type, e.source);
      (i < xs_at ? carry : xs).push_back(std::move(in[i]));
    }
    auto trip = [&](std::vector<Array>& leaves, detail::FlatTree& result) {
      leaves.insert(leaves.begin(), consts.begin(), consts.end());
      result.leaves = program(*p.jaxpr, std::move(leaves));
      leaves.clear();
    };
    return run_scan({"scan", nullptr, 0, e.source}, BodyRef(trip), std::move(carry), std::move(xs),
                    p.length, p.reverse);
  }
};

}  // namespace

JaxprRef unroll(const Jaxpr& jaxpr) {
  if (!has_unrolled(jaxpr)) return JaxprRef(&jaxpr);
  StagingOptions options;
  options.check_variance = jaxpr.checks_variance;
  options.auto_pbroadcast = jaxpr.checks_variance;
  JaxprTrace trace("unroll", jaxpr.env, options);
  std::vector<Array> args;
  for (const VarRef& v : jaxpr.binders) args.push_back(trace.argument(v->type));
  TraceScope scope(trace);
  std::vector<Array> results = Unroller().program(jaxpr, std::move(args));
  return trace.build(results, "unroll", {}).jaxpr;
}

void register_pass_unroll() {
  register_pass({.order = PassOrder::unroll,
                 .name = "unroll",
                 .run = of_program<unroll>,
                 .simplified_after = true});
}

}  // namespace shmap
