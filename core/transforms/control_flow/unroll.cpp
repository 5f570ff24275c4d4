#include "core/transforms/control_flow/unroll.h"

#include <algorithm>

#include "core/compiler/passes/pass.h"
#include "core/runtime/flow_task.h"
#include "core/runtime/op_site.h"
#include "core/tracing/make_jaxpr.h"
#include "core/transforms/control_flow/carry_types.h"
#include "core/transforms/control_flow/eager_flow.h"
#include "core/transforms/control_flow/flow_primitives.h"
#include "core/transforms/control_flow/task_time.h"

namespace shmap {

namespace {

// A loop stays a task if it has at least kTaskTrips trips and the time of a trip is between these
// bounds. Shorter trips gain from being fused with one another after unrolling; longer trips gain
// from running each step on several cores.
constexpr std::int64_t kTaskTrips = 16;
constexpr double kLeastTaskTripNs = 2'000, kMostTaskTripNs = 20'000;

// Whether a trip reads an integer carry that may count trips. After unrolling, what is computed
// from it is known.
bool reads_counter(const ScanLoopParams& p) {
  const Jaxpr& body = *p.jaxpr;
  for (int k = 0; k < p.num_carry; ++k) {
    const Var* counter = body.binders[static_cast<std::size_t>(p.num_consts + k)].get();
    const Atom& next = body.outs[static_cast<std::size_t>(k)];
    if (!counter->type.dims().empty() || !is_integer(counter->type.dtype())) continue;
    for (const Eqn& e : body.eqns) {
      const bool counts = !next.is_literal() && !e.out.empty() && e.out[0].get() == next.var();
      for (const Atom& a : e.in)
        if (!a.is_literal() && a.var() == counter && !counts) return true;
    }
  }
  return false;
}

// Decides which loops are unrolled.
class Choice {
 public:
  explicit Choice(std::optional<DeviceKind> tasks_of) : tasks_of_(tasks_of) {}

  bool takes(const Eqn& e) const {
    const std::int64_t size = size_of(e);
    return size > 0 && size <= kUnrolledEquations;
  }
  bool takes_any(const Jaxpr& jaxpr) const {
    return std::any_of(jaxpr.eqns.begin(), jaxpr.eqns.end(),
                       [this](const Eqn& e) { return takes(e); });
  }

 private:
  // The number of equations of a program after its loops are unrolled; more than kUnrolledEquations
  // where there are too many.
  std::int64_t equations_of(const Jaxpr& jaxpr) const {
    std::int64_t n = 0;
    for (const Eqn& e : jaxpr.eqns) {
      const std::int64_t loop = size_of(e);
      n += loop == 0 || loop > kUnrolledEquations ? 1 : loop;
    }
    return n;
  }
  // The number of equations of an unrolled loop; 0 for a loop that stays a task, and for other
  // equations.
  std::int64_t size_of(const Eqn& e) const {
    if (e.primitive != &scan_p) return 0;
    const auto& p = params_as<ScanLoopParams>(*e.params);
    if (p.length == 0 || stays_task(p)) return 0;
    const std::int64_t own = std::max<std::int64_t>(1, equations_of(*p.jaxpr));
    if (own > kUnrolledEquations || p.length > kUnrolledEquations) return kUnrolledEquations + 1;
    return own * p.length;
  }
  // Whether the loop is cheaper as a task of one device than as separate steps.
  bool stays_task(const ScanLoopParams& p) const {
    if (!tasks_of_ || p.length < kTaskTrips || p.num_carry == 0 || reads_counter(p)) return false;
    const double trip = task_nanoseconds(*p.jaxpr, *tasks_of_);
    return trip >= kLeastTaskTripNs && trip <= kMostTaskTripNs;
  }

  const std::optional<DeviceKind> tasks_of_;
};

// Writes out the trips of loops, under the current trace.
class Unroller {
 public:
  explicit Unroller(const Choice& choice) : choice_(choice) {}
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
      if (choice_.takes(e)) {
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
      // An init that is a literal is cast like the carry, because equations of the body expect the
      // carry's variance.
      if (i < xs_at) in[i] = fit(std::move(in[i]), p.jaxpr->binders[i]->type, e.source);
      (i < xs_at ? carry : xs).push_back(std::move(in[i]));
    }
    auto trip = [&](std::vector<Array>& leaves, detail::FlatTree& result) {
      leaves.insert(leaves.begin(), consts.begin(), consts.end());
      result.leaves = program(*p.jaxpr, std::move(leaves));
      leaves.clear();
    };
    return run_scan({"scan", nullptr, 0, e.source}, detail::BodyRef(trip), std::move(carry),
                    std::move(xs), p.length, p.reverse);
  }

  const Choice& choice_;
};

// SHMAP_CHECK_NANS checks the results of each operation, so that loops do not become tasks under
// it.
JaxprRef unroll_for(const Jaxpr& jaxpr, const PassContext& context) {
  const bool tasks = flow_task_p.kernel(context.kind()).run && !checks_nans();
  return unroll(jaxpr, tasks ? std::optional(context.kind()) : std::nullopt);
}

}  // namespace

JaxprRef unroll(const Jaxpr& jaxpr, std::optional<DeviceKind> tasks_of) {
  const Choice choice(tasks_of);
  if (!choice.takes_any(jaxpr)) return JaxprRef(&jaxpr);
  StagingOptions options;
  options.check_variance = jaxpr.checks_variance;
  options.auto_pbroadcast = jaxpr.checks_variance;
  JaxprTrace trace("unroll", jaxpr.env, options);
  std::vector<Array> args;
  for (const VarRef& v : jaxpr.binders) args.push_back(trace.argument(v->type));
  TraceScope scope(trace);
  std::vector<Array> results = Unroller(choice).program(jaxpr, std::move(args));
  return trace.build(results, "unroll", {}).jaxpr;
}

void register_pass_unroll() {
  register_pass(
      {.order = PassOrder::unroll, .name = "unroll", .run = unroll_for, .simplified_after = true});
}

}  // namespace shmap
