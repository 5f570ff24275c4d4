#include "core/ops/concatenate_slices.h"

#include <string>

#include "core/base/counted.h"
#include "core/ir/planned_primitive.h"
#include "shmap/error.h"

namespace shmap {

namespace {

void eval_concatenate_slices(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<ConcatenateSlicesParams>(params);
  if (in.size() != p.slices.size()) {
    throw ValueError("concatenate_slices: " + counted(in.size(), "operand") + " for " +
                     counted(p.slices.size(), "slice") + ": one is wanted for each");
  }
  out[0] = p.type;
}

Cost cost_concatenate_slices(Types, const Params&, Types out) {
  return {0, 2 * static_cast<double>(out[0].nbytes())};
}

}  // namespace

void ConcatenateSlicesParams::visit(ParamVisitor& v) const {
  std::string text;
  for (const SliceParams& s : slices) text += (text.empty() ? "" : " ") + to_string(s);
  v.value("dimension", dimension);
  v.value("slices", std::string_view(text));
}

Shape slice_extents(const SliceParams& slice) {
  Shape extents;
  for (std::size_t d = 0; d < slice.strides.size(); ++d) {
    extents.push_back(
        items_in_steps(slice.start_indices[d], slice.limit_indices[d], slice.strides[d]));
  }
  return extents;
}

constinit Primitive concatenate_slices_p = [] {
  Primitive p = planned_primitive("concatenate_slices");
  p.abstract_eval = eval_concatenate_slices;
  p.cost = cost_concatenate_slices;
  p.no_kernel = "a pass makes it where there is a kernel";
  return p;
}();

void register_concatenate_slices() { register_primitive(concatenate_slices_p); }

}  // namespace shmap
