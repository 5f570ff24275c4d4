#include "core/transforms/attention/find_attention.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/ops/dot.h"
#include "core/transforms/attention/attention_match.h"
#include "core/transforms/passes/dead_code.h"

namespace shmap {

JaxprRef find_attention(const JaxprRef& jaxpr, AttentionCheck takes) {
  if (!takes) return jaxpr;
  ProgramIndex program(*jaxpr);
  const std::size_t n = jaxpr->eqns.size();
  std::vector<bool> gone(n, false);
  std::vector<const Eqn*> instead(n, nullptr);
  std::vector<std::unique_ptr<AttentionMatch>> matches;
  for (std::size_t i = 0; i < n; ++i) {
    if (jaxpr->eqns[i].primitive != &dot_general_p || gone[i]) continue;
    auto match = match_attention(program, static_cast<int>(i), takes);
    if (!match) continue;
    matches.push_back(std::make_unique<AttentionMatch>(*std::move(match)));
    for (int m : matches.back()->members) {
      gone[static_cast<std::size_t>(m)] = true;
      program.take_away(m);
    }
    instead[static_cast<std::size_t>(matches.back()->members.back())] = &matches.back()->eqn;
  }
  if (matches.empty()) return jaxpr;
  auto made = make_ref<Jaxpr>();
  made->binders = jaxpr->binders;
  made->outs = jaxpr->outs;
  made->env = jaxpr->env;
  made->checks_variance = jaxpr->checks_variance;
  for (std::size_t i = 0; i < n; ++i) {
    if (instead[i]) {
      made->eqns.push_back(*instead[i]);
    } else if (!gone[i]) {
      made->eqns.push_back(jaxpr->eqns[i]);
    }
  }
  check_pass(*made, "find_attention");
  return remove_dead_code(*made);
}

}  // namespace shmap
