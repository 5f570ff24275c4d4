#include "core/transforms/passes/inline_calls.h"

#include <algorithm>

#include "core/transforms/autodiff/checkpoint.h"
#include "core/transforms/jit/jit.h"
#include "core/transforms/lowering/called_program.h"

namespace shmap {

namespace {

bool calls(const Eqn& e) {
  const Primitive* p = e.primitive;
  return p == &jit_p || p->interpret == interpret_called;
}

class Inliner {
 public:
  explicit Inliner(std::vector<Eqn>& made) : made_(made) {}

  // The results of a program whose binders stand for these. fresh: its variables get new ones, as
  // it may be called more than once.
  std::vector<Atom> program(const Jaxpr& jaxpr, const std::vector<Atom>& args, bool fresh) {
    VarMap<Atom> values;
    for (std::size_t i = 0; i < args.size(); ++i) values.emplace(jaxpr.binders[i].get(), args[i]);
    const auto read = [&](const Atom& a) {
      if (a.is_literal()) return a;
      const auto it = values.find(a.var());
      return it == values.end() ? a : it->second;
    };
    for (const Eqn& original : jaxpr.eqns) {
      Eqn e = original;
      for (Atom& a : e.in) a = read(a);
      if (calls(e)) {
        const std::vector<Atom> results = call(e);
        for (std::size_t o = 0; o < e.out.size(); ++o) values.emplace(e.out[o].get(), results[o]);
        continue;
      }
      for (VarRef& v : e.out) {
        if (!fresh) break;
        const VarRef mine = make_ref<const Var>(v->type);
        values.emplace(v.get(), Atom(mine));
        v = mine;
      }
      made_.push_back(std::move(e));
    }
    std::vector<Atom> outs;
    for (const Atom& a : jaxpr.outs) outs.push_back(read(a));
    return outs;
  }

 private:
  std::vector<Atom> call(const Eqn& e) {
    std::vector<Atom> args = e.in;
    const bool again =
        e.primitive == &checkpoint_p && params_as<CheckpointParams>(*e.params).differentiated;
    for (Atom& a : args) {
      if (!again || a.is_literal()) continue;
      const VarRef behind = make_ref<const Var>(a.type());
      made_.push_back(
          {&optimization_barrier_p, {a}, std::make_shared<BarrierParams>(), {behind}, e.source});
      a = Atom(behind);
    }
    return program(*inner_jaxprs(*e.params)[0], args, true);
  }

  std::vector<Eqn>& made_;
};

}  // namespace

JaxprRef inline_calls(const Jaxpr& jaxpr) {
  if (std::none_of(jaxpr.eqns.begin(), jaxpr.eqns.end(), calls)) return JaxprRef(&jaxpr);
  auto made = make_ref<Jaxpr>();
  made->binders = jaxpr.binders;
  made->env = jaxpr.env;
  made->checks_variance = jaxpr.checks_variance;
  made->outs = Inliner(made->eqns).program(jaxpr, {}, false);
  check_pass(*made, "inline_calls");
  return made;
}

}  // namespace shmap
