// Partial evaluation (jax.interpreters.partial_eval): of an equation with a program inside that
// gets primals and tangents together, the results that depend on primals alone can be computed
// without the tangents. Such equations come from rules of custom_jvp that call a program (jit,
// scan, cond, shard_map) of both, for one by differentiating under vmap a function that has a
// program inside. What both parts need is computed in both. What a program prints of primals alone
// it prints with the primals, and the rest where the linear program runs, as JAX does; checkpoint
// and while_loop compute their primals again there, and print them again.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "core/transforms/passes/dead_code.h"
#include "core/transforms/tracing/make_jaxpr.h"

namespace shmap {

// Alive while a program is taken apart and transposed. The programs inside of it are transposed
// meanwhile, so that each level of a nest would prune all levels below it again, and ask again what
// depends on what: both are kept for as long as the outermost of these objects of the thread is
// alive.
class SplitScope {
 public:
  SplitScope() : before_(memo_) {
    if (memo_ == nullptr) memo_ = &own_;
  }
  ~SplitScope() { memo_ = before_; }
  SplitScope(const SplitScope&) = delete;
  SplitScope& operator=(const SplitScope&) = delete;
  PruneMemo& memo() const { return memo_->pruned; }

 private:
  friend std::vector<bool> dependent_results(const Jaxpr& jaxpr, const std::vector<bool>& linear);
  struct Dependents {
    JaxprRef asked;  // kept alive, so that no other program gets its address
    std::vector<bool> results;
  };
  struct Memo {
    PruneMemo pruned{&no_effects, {}};  // asks what results depend on
    std::map<std::pair<const Jaxpr*, std::vector<bool>>, Dependents> dependents;
  };
  static constinit thread_local Memo* memo_;
  Memo* before_;
  Memo own_;
};

// Which results depend on the arguments in `linear`, through programs inside of equations too.
std::vector<bool> dependent_results(const Jaxpr& jaxpr, const std::vector<bool>& linear);

// The program with each equation in two, of which some results depend on the arguments in `linear`
// and others do not: one equation for these and one for those. The same program where there is no
// such equation.
JaxprRef split_equations(const Jaxpr& jaxpr, const std::vector<bool>& linear);

// Alive while a rule of custom_jvp runs with tangents that are variables of the linear program. Of
// an operation of the rule, results that depend on primals alone are computed below the linear
// program, as the primals are, and only the rest of the operation becomes an equation. An exception
// ends the scope too.
class PartialEvaluation {
 public:
  explicit PartialEvaluation(JaxprTrace& linear);
  PartialEvaluation(JaxprTrace& linear, JaxprTrace::TakeApart f);
  ~PartialEvaluation();
  PartialEvaluation(const PartialEvaluation&) = delete;
  PartialEvaluation& operator=(const PartialEvaluation&) = delete;

 private:
  JaxprTrace& linear_;
  JaxprTrace::TakeApart before_;
};

}  // namespace shmap
