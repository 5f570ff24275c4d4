#include "core/runtime/fused_columns.h"

#include <string>

#include "core/ir/planned_primitive.h"
#include "shmap/error.h"

namespace shmap {

namespace {

const FusedColumnsParams& columns_of(const Params& params) {
  return params_as<FusedColumnsParams>(params);
}

void eval_fused_columns(Types in, const Params& params, std::span<ShapedArray> out) {
  const FusedColumnsParams& p = columns_of(params);
  if (in.size() != static_cast<std::size_t>(p.program->operand_count())) {
    throw ValueError("fused_columns: " + std::to_string(in.size()) + " operands were given, and " +
                     std::to_string(p.program->operand_count()) + " are wanted");
  }
  out[0] = p.type;
}

Cost fused_columns_cost(Types, const Params& params, Types) {
  const FusedColumnsParams& p = columns_of(params);
  Cost cost = p.program->cost();
  cost.flops += 2 * static_cast<double>(p.program->size(FusedKind::full));
  cost.bytes -= static_cast<double>(p.program->outputs()[0].type.nbytes());
  cost.bytes += static_cast<double>(p.type.nbytes());
  return cost;
}

}  // namespace

void FusedColumnsParams::visit(ParamVisitor& v) const {
  v.value("program", program->text());
  v.value("reduction", std::string(reduction->name));
}

constinit Primitive fused_columns_p = [] {
  Primitive p = planned_primitive("fused_columns");
  p.abstract_eval = eval_fused_columns;
  p.cost = fused_columns_cost;
  p.no_kernel = "a pass makes it where there is a kernel";
  return p;
}();

void register_fused_columns() { register_primitive(fused_columns_p); }

}  // namespace shmap
