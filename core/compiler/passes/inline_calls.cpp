#include "core/compiler/passes/inline_calls.h"

#include <algorithm>

#include "core/base/scope_names.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ops/optimization_barrier.h"

namespace shmap {

namespace {

class Inliner {
 public:
  explicit Inliner(Rewriter& made) : made_(made) {}

  // The results of a program whose equations, and those of the programs that it calls, are written
  // out. They get the scopes (profiler::named_scope) of their callers.
  std::vector<Atom> program(const Jaxpr& jaxpr, std::span<const Atom> args, Rewriter::Vars vars,
                            SourceLine caller = {}) {
    return made_.write_out(jaxpr, args, vars, [&](Eqn& e) {
      e.source = in_scope_of(caller, e.source);
      return e.primitive->programs.inlined ? std::optional(call(e)) : std::nullopt;
    });
  }

 private:
  std::vector<Atom> call(const Eqn& e) {
    std::vector<Atom> args = e.in;
    const bool apart =
        e.primitive->programs.stays_apart && e.primitive->programs.stays_apart(*e.params);
    for (Atom& a : args) {
      if (!apart || a.is_literal()) continue;
      const VarRef behind = make_ref<const Var>(a.type());
      made_.add(
          {&optimization_barrier_p, {a}, std::make_shared<BarrierParams>(), {behind}, e.source});
      a = Atom(behind);
    }
    return program(*inner_jaxprs(*e.params)[0], args, Rewriter::Vars::fresh, e.source);
  }

  Rewriter& made_;
};

}  // namespace

JaxprRef inline_calls(const Jaxpr& jaxpr) {
  const auto calls = [](const Eqn& e) { return e.primitive->programs.inlined; };
  if (std::none_of(jaxpr.eqns.begin(), jaxpr.eqns.end(), calls)) return JaxprRef(&jaxpr);
  Rewriter made(jaxpr);
  std::vector<Atom> outs = Inliner(made).program(jaxpr, {}, Rewriter::Vars::own);
  return made.finish(jaxpr.binders, std::move(outs));
}

void register_pass_inline_calls() {
  register_pass(
      {.order = PassOrder::inline_calls, .name = "inline_calls", .run = of_program<inline_calls>});
}

}  // namespace shmap
