// The type checker of jaxprs (autodidax's typecheck_jaxpr), with device variance.
#include <cstdlib>
#include <string>
#include <unordered_set>

#include "core/ir/jaxpr.h"
#include "core/ir/nesting.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ir/types_of.h"

namespace shmap {

namespace {

// The current trace while rules are applied: rules ask it for the axes in scope, and whether
// variance is checked.
class CheckTrace final : public Trace {
 public:
  explicit CheckTrace(const Jaxpr& jaxpr) : Trace("typecheck"), jaxpr_(jaxpr) {}
  void process(const Primitive& primitive, std::span<Array>, const Params&, std::span<Array>,
               SourceLine source) override {
    throw TypeError(std::string(primitive.name) +
                    " was called by a rule while a jaxpr was checked: rules work on types alone" +
                    at_line(source));
  }
  const detail::AxisEnv* axis_env() const override { return jaxpr_.env; }
  bool checks_variance() const override { return jaxpr_.checks_variance; }

 private:
  const Jaxpr& jaxpr_;
};

class Checker {
 public:
  explicit Checker(const Jaxpr& jaxpr) : jaxpr_(jaxpr) {}

  void run() {
    for (const VarRef& v : jaxpr_.binders) bind(v, "an argument", {});
    for (const Eqn& e : jaxpr_.eqns) check(e);
    for (const Atom& a : jaxpr_.outs) look_up(a, "the results", {});
  }

 private:
  void bind(const VarRef& v, const std::string& where, SourceLine source) {
    if (!bound_.insert(v.get()).second) {
      throw TypeError("typecheck: a variable of type " + to_string(v->type) + " is bound twice, " +
                      "the second time as " + where + ": each variable has one binder" +
                      at_line(source));
    }
  }

  const ShapedArray& look_up(const Atom& a, const std::string& where, SourceLine source) {
    if (!a.is_literal() && !bound_.count(a.var())) {
      throw TypeError("typecheck: unbound variable of type " + to_string(a.type()) + " in " +
                      where + ": it is neither an argument nor the result of an earlier equation" +
                      at_line(source));
    }
    return a.type();
  }

  void check(const Eqn& e) {
    const std::string where = "an equation of " + std::string(e.primitive->name);
    std::vector<ShapedArray> in, out;
    for (const Atom& a : e.in) in.push_back(look_up(a, where, e.source));
    check_variance(e);
    for (const Jaxpr* inner : inner_jaxprs(*e.params)) {
      if (!inner->facts.has(JaxprFacts::checked)) typecheck_jaxpr(*inner);
    }
    out.resize(static_cast<std::size_t>(result_count(*e.primitive, in, *e.params)));
    if (out.size() != e.out.size()) {
      throw TypeError("typecheck: " + where + " binds " + std::to_string(e.out.size()) +
                      " variables, and has " + std::to_string(out.size()) + " results" +
                      at_line(e.source));
    }
    infer_types(*e.primitive, in, *e.params, jaxpr_.env, out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      // Where variance is not checked, a variable's type may have more axes than the inferred type.
      const ShapedArray& type = e.out[i]->type;
      const bool loose = !jaxpr_.checks_variance && type.axes().contains(out[i].axes());
      if (!((loose ? out[i].with_axes(type.axes()) : out[i]) == type)) {
        throw TypeError("typecheck: " + where + " gives a value of type " + to_string(out[i]) +
                        " to a variable of type " + to_string(type) + at_line(e.source));
      }
      bind(e.out[i], "a result of " + where, e.source);
    }
  }

  // The operands of first-order primitives other than collectives must vary over the same axes (JEP
  // 17111).
  void check_variance(const Eqn& e) {
    if (!jaxpr_.env || !jaxpr_.checks_variance || e.primitive->variance || e.primitive->group)
      return;
    const Atom* first = nullptr;
    for (const Atom& a : e.in) {
      if (a.is_literal()) continue;
      if (!first) {
        first = &a;
      } else if (!(a.type().axes() == first->type().axes())) {
        throw TypeError("typecheck: operands of an equation of " + std::string(e.primitive->name) +
                        " have types " + to_string(first->type()) + " and " + to_string(a.type()) +
                        ", which vary over unlike mesh axes: cast one with pbroadcast" +
                        at_line(e.source));
      }
    }
  }

  const Jaxpr& jaxpr_;
  std::unordered_set<const Var*> bound_;
};

}  // namespace

JaxprType typecheck_jaxpr(const Jaxpr& jaxpr) {
  const PassVisit visit("typecheck", jaxpr);
  CheckTrace trace(jaxpr);
  TraceScope scope(trace);
  Checker(jaxpr).run();
  jaxpr.facts.add(JaxprFacts::checked);
  return JaxprType(types_of(jaxpr.binders), types_of(jaxpr.outs));
}

JaxprType typecheck(const ClosedJaxpr& jaxpr) {
  JaxprType type = typecheck_jaxpr(*jaxpr.impl().jaxpr);
  const std::vector<Array>& consts = jaxpr.consts();
  for (std::size_t i = 0; i < consts.size(); ++i) {
    const ShapedArray& given = node_of(consts[i])->type;
    if (!(given == type.in_types[i])) {
      throw TypeError("typecheck: a captured array of type " + to_string(given) +
                      " is bound to a variable of type " + to_string(type.in_types[i]));
    }
  }
  type.in_types.erase(type.in_types.begin(),
                      type.in_types.begin() + static_cast<std::ptrdiff_t>(consts.size()));
  return type;
}

void check_pass([[maybe_unused]] const Jaxpr& jaxpr, [[maybe_unused]] const char* pass) {
#if !defined(NDEBUG) || defined(SHMAP_CHECK_JAXPRS)
  try {
    typecheck_jaxpr(jaxpr);
  } catch (const TooDeep&) {
    throw;
  } catch (const Error& e) {
    throw TypeError("the pass '" + std::string(pass) +
                    "' made a jaxpr that does not check: " + e.what() + "\n" + to_string(jaxpr));
  }
#endif
}

}  // namespace shmap
