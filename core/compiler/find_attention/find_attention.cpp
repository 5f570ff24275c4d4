#include "core/compiler/find_attention/find_attention.h"

#include <utility>

#include "core/compiler/find_attention/attention_match.h"
#include "core/compiler/passes/dead_code.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ops/dot.h"

namespace shmap {

JaxprRef find_attention(const Jaxpr& jaxpr, AttentionCheck takes) {
  if (!takes) return JaxprRef(&jaxpr);
  ProgramIndex program(jaxpr);
  Rewriter made(jaxpr);
  for (int i = 0; i < program.size(); ++i) {
    if (program.eqn(i).primitive != &dot_general_p || made.is_gone(i)) continue;
    auto match = match_attention(program, i, takes);
    if (!match) continue;
    for (int m : match->members) {
      made.remove(m);
      program.take_away(m);
    }
    made.put(match->members.back(), std::move(match->eqn));
  }
  return made.is_edited() ? remove_dead_code(*made.finish()) : JaxprRef(&jaxpr);
}

void register_pass_find_attention() {
  register_pass({.order = PassOrder::find_attention,
                 .name = "find_attention",
                 .run =
                     [](const Jaxpr& jaxpr, const PassContext& context) {
                       return find_attention(jaxpr, attention_check(context.kind()));
                     },
                 .merges = true});
}

}  // namespace shmap
