#include "core/transforms/autodiff/rule_call.h"

#include <algorithm>

namespace shmap {

RuleTrace rule_trace(std::span<const Array> leaves) {
  Trace& here = current_trace();
  if (!here.staged() && !here.transforms()) return {RuleTraceKind::here, &here};
  if (auto* jvp = dynamic_cast<JvpTrace*>(&here)) {
    const bool active = std::any_of(leaves.begin(), leaves.end(), [&](const Array& x) {
      return jvp->split(x).second.node() != nullptr;
    });
    if (active) return {RuleTraceKind::jvp, jvp};
    return {RuleTraceKind::below, &jvp->parent()};
  }
  if (auto* batch = dynamic_cast<BatchTrace*>(&here)) {
    const bool active = std::any_of(leaves.begin(), leaves.end(),
                                    [&](const Array& x) { return batch->split(x).second >= 0; });
    if (active) return {RuleTraceKind::batch, batch};
    return {RuleTraceKind::below, &batch->parent()};
  }
  if (auto* staging = dynamic_cast<JaxprTrace*>(&here); staging && staging->below()) {
    const bool staged = std::any_of(leaves.begin(), leaves.end(),
                                    [&](const Array& x) { return staging->is_staged(x); });
    if (!staged) return {RuleTraceKind::below, staging->below()};
  }
  return {RuleTraceKind::staged, &here};
}

}  // namespace shmap
