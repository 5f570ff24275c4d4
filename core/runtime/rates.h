// Estimates of how long work takes, for decisions that must not depend on measured times: which
// task runs at once, the order of a schedule, which loop becomes a task.
#pragma once
#include "core/ir/jaxpr.h"
#include "core/ir/primitive.h"

namespace shmap {

// Rates of one device of a backend; only their ratios matter.
struct Rates {
  double flops_per_ns = 60;
  double bytes_per_ns = 12;
  double link_bytes_per_ns = 8;  // between devices

  double ns(const Cost& work) const {
    return work.flops / flops_per_ns + work.bytes / bytes_per_ns;
  }
};

namespace detail {
extern constinit Rates rates_of_kinds[kDeviceKinds];
}
// The rates that the backend has set; before that, the defaults above.
inline const Rates& rates(DeviceKind kind) {
  return detail::rates_of_kinds[static_cast<int>(kind)];
}
// Called by a backend when it registers its kernels.
void set_rates(DeviceKind kind, const Rates& rates);

// The work of one device's call: Primitive::cost or, without one, the bytes of its operands and
// results.
Cost estimated_work(const Primitive& primitive, Types in, const Params& params, Types out);
Cost estimated_work(const Eqn& eqn);

}  // namespace shmap
