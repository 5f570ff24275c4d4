#include "core/ops/gather_reduce.h"

#include <string>

#include "core/base/counted.h"
#include "core/ir/planned_primitive.h"
#include "shmap/error.h"

namespace shmap {

namespace {

void eval_gather_reduce(Types in, const Params& params, std::span<ShapedArray> out) {
  if (in.size() != 2) {
    throw ValueError("gather_reduce: " + counted(in.size(), "operand") +
                     " given, and an array and indices are wanted");
  }
  out[0] = params_as<GatherReduceParams>(params).type;
}

Cost cost_gather_reduce(Types in, const Params& params, Types out) {
  const ShapedArray& gathered = params_as<GatherReduceParams>(params).gathered;
  return {static_cast<double>(gathered.size()),
          static_cast<double>(gathered.nbytes() + in[1].nbytes() + out[0].nbytes())};
}

}  // namespace

void GatherReduceParams::visit(ParamVisitor& v) const {
  v.value("axes", axes);
  v.value("gather", std::string_view(to_string(gather)));
  v.value("reduction", std::string_view(reduction->name));
}

constinit Primitive gather_reduce_p = [] {
  Primitive p = planned_primitive("gather_reduce");
  p.abstract_eval = eval_gather_reduce;
  p.cost = cost_gather_reduce;
  p.no_kernel = "a pass makes it where there is a kernel";
  return p;
}();

void register_gather_reduce() { register_primitive(gather_reduce_p); }

}  // namespace shmap
