#include "core/compiler/passes/pass.h"

#include <algorithm>

#include "core/compiler/passes/simplify.h"
#include "core/runtime/op_site.h"

namespace shmap {

namespace {

// Sorted by PassOrder. Registration ends before any program runs.
std::vector<Pass>& table() {
  static auto* const passes = new std::vector<Pass>();
  return *passes;
}

void show(const PassContext& context, const char* pass, const Jaxpr& jaxpr) {
  if (!context.shown) return;
  *context.shown += std::string("\nafter ") + pass + ":\n" + to_string(jaxpr) + "\n";
}

}  // namespace

void register_pass(const Pass& pass) {
  std::vector<Pass>& passes = table();
  const auto at = std::lower_bound(passes.begin(), passes.end(), pass.order,
                                   [](const Pass& p, PassOrder order) { return p.order < order; });
  // Registration is repeated from the start where memory ran out in the middle of it, so that a
  // pass may be registered already.
  if (at == passes.end() || at->order != pass.order) passes.insert(at, pass);
}

JaxprRef run_passes(const Jaxpr& jaxpr, const PassContext& context) {
  check_pass(jaxpr, "the program that is planned");
  JaxprRef now(&jaxpr);
  for (const Pass& pass : table()) {
    if (pass.merges && checks_nans()) continue;
    if (pass.makes && !pass.makes->kernel(context.kind()).run) continue;
    if (pass.runs_on && !pass.runs_on(context.kind())) continue;
    JaxprRef made = pass.run(*now, context);
    if (made == now) continue;
    if (pass.simplified_after) made = simplify(*made);
    check_pass(*made, pass.name);
    show(context, pass.name, *made);
    now = std::move(made);
  }
  return now;
}

}  // namespace shmap
