#include "core/transforms/control_flow/task_time.h"

#include <algorithm>

#include "core/runtime/kernel.h"
#include "core/runtime/rates.h"

namespace shmap {

namespace {

double task_nanoseconds(const Eqn& e, DeviceKind kind) {
  const Primitive& p = *e.primitive;
  if (p.interpret) {
    if (p.programs.control_flow == ControlFlow::none && !p.programs.inlined) return kNoTask;
    const double trips = p.programs.trips ? static_cast<double>(p.programs.trips(*e.params)) : 1;
    double sum = 0, most = 0;
    for (const Jaxpr* inner : inner_jaxprs(*e.params)) {
      const double one = task_nanoseconds(*inner, kind);
      sum += one;
      most = std::max(most, one);
    }
    const double once = p.programs.one_runs() ? most : sum;
    // a body that cannot be a task forbids it for 0 trips too
    return once == kNoTask ? kNoTask : trips * once;
  }
  if (p.has_effect) return kNoTask;
  if (p.view && !e.in.empty() && !e.in[0].is_literal() &&
      p.view(e.in[0].type(), *e.params, e.out[0]->type) >= 0)
    return 0;
  if (p.group || !p.kernel(kind).run) return kNoTask;
  return rates(kind).ns(estimated_work(e));
}

}  // namespace

double task_nanoseconds(const Jaxpr& jaxpr, DeviceKind kind) {
  double sum = 0;
  for (const Eqn& e : jaxpr.eqns) sum += task_nanoseconds(e, kind);
  return sum;
}

}  // namespace shmap
