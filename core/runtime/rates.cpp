#include "core/runtime/rates.h"

#include <vector>

namespace shmap {

namespace {
constinit Rates of_kind[kDeviceKinds];
}  // namespace

const Rates& rates(DeviceKind kind) { return of_kind[static_cast<int>(kind)]; }
void set_rates(DeviceKind kind, const Rates& rates) { of_kind[static_cast<int>(kind)] = rates; }

Cost estimated_work(const Primitive& primitive, Types in, const Params& params, Types out) {
  if (primitive.cost) return primitive.cost(in, params, out);
  Cost work;
  for (const ShapedArray& t : in) work.bytes += static_cast<double>(t.nbytes());
  for (const ShapedArray& t : out) work.bytes += static_cast<double>(t.nbytes());
  return work;
}

Cost estimated_work(const Eqn& e) {
  std::vector<ShapedArray> in, out;
  for (const Atom& a : e.in) in.push_back(a.type());
  for (const VarRef& v : e.out) out.push_back(v->type);
  return estimated_work(*e.primitive, in, *e.params, out);
}

}  // namespace shmap
