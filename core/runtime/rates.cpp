#include "core/runtime/rates.h"

#include <vector>
#include "core/ir/types_of.h"

namespace shmap {

constinit Rates detail::rates_of_kinds[kDeviceKinds];

void set_rates(DeviceKind kind, const Rates& rates) {
  detail::rates_of_kinds[static_cast<int>(kind)] = rates;
}

Cost estimated_work(const Primitive& primitive, Types in, const Params& params, Types out) {
  if (primitive.cost) return primitive.cost(in, params, out);
  Cost work;
  for (const ShapedArray& t : in) work.bytes += static_cast<double>(t.nbytes());
  for (const ShapedArray& t : out) work.bytes += static_cast<double>(t.nbytes());
  return work;
}

Cost estimated_work(const Eqn& e) {
  return estimated_work(*e.primitive, types_of(e.in), *e.params, types_of(e.out));
}

}  // namespace shmap
