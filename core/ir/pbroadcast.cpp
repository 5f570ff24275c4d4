#include "core/ir/pbroadcast.h"

#include "core/ir/trace.h"

namespace shmap {

void AxesParams::visit(ParamVisitor& v) const {
  v.value("axes", axes.names());
  if (!groups.empty()) v.value("axis_index_groups", groups);
}

constinit Primitive pbroadcast_p;  // the registration of the collectives fills it in

Array cast_to_varying(const Array& x, AxisSet axes, SourceLine source) {
  return bind(pbroadcast_p, x, AxesParams(Axes(axes.names())), source);
}

}  // namespace shmap
