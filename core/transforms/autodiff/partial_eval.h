// Partial evaluation (jax.interpreters.partial_eval). An equation with an inner program (jit, scan,
// cond, shard_map) in a custom_jvp rule may take primals and tangents together. This splits it
// in two: one equation for results that depend on primals alone, computed with the primals, and one
// for the rest, which goes into the linear program. Work that both need is computed in both. Prints
// that depend on primals alone run with the primals (as in JAX); checkpoint and while_loop repeat
// theirs in the linear program.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "core/compiler/passes/dead_code.h"
#include "core/tracing/make_jaxpr.h"

namespace shmap {

// Alive while a program is split and transposed. Nested programs are pruned and queried at every
// level; the results are cached until the thread's outermost SplitScope ends.
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
  PartialEvaluation(JaxprTrace& linear, JaxprTrace::PartialEvalHook hook);
  ~PartialEvaluation();
  PartialEvaluation(const PartialEvaluation&) = delete;
  PartialEvaluation& operator=(const PartialEvaluation&) = delete;

 private:
  JaxprTrace& linear_;
  JaxprTrace::PartialEvalHook before_;
};

}  // namespace shmap
