// What work is estimated to take: for what hangs on an estimate, never on a measured time (which
// task runs at once, the order of a schedule, which loop is a task).
#pragma once
#include "core/ir/jaxpr.h"
#include "core/ir/primitive.h"

namespace shmap {

// Rates of one device of a backend, of which only the relation counts.
struct Rates {
  double flops_per_ns = 60;
  double bytes_per_ns = 12;
  double link_bytes_per_ns = 8;  // between devices

  double ns(const Cost& work) const {
    return work.flops / flops_per_ns + work.bytes / bytes_per_ns;
  }
};

// Those that the backend gave; until it did, those above.
const Rates& rates(DeviceKind kind);
// By a backend, when it registers its kernels.
void set_rates(DeviceKind kind, const Rates& rates);

// The work of one device's call: Primitive::cost, or else the bytes of its operands and results.
Cost estimated_work(const Primitive& primitive, Types in, const Params& params, Types out);
Cost estimated_work(const Eqn& eqn);

}  // namespace shmap
