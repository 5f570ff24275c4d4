#include "core/ops/placed_slice.h"

#include <string>

#include "core/ir/planned_primitive.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

void eval_placed_slice(Types in, const Params& params, std::span<ShapedArray> out) {
  const Shape& sizes = params_as<PlacedSliceParams>(params).sizes;
  out[0] = ShapedArray(sizes, in[0].dtype(), in[0].weak(), AxisSet());
}

void run_placed_slice(GroupCall& call) {
  const std::vector<std::int64_t>& offsets = params_as<PlacedSliceParams>(call.params).offsets;
  const std::span<const Block> in = call.in[0]->blocks();
  const std::span<Block> out = call.out[0]->blocks();
  const std::int64_t size = itemsize(call.in[0]->type.dtype());
  for (std::size_t p = 0; p < out.size(); ++p) {
    out[p] = in[p];
    out[p].offset += offsets[offsets.size() == 1 ? 0 : p] * size;
  }
}

}  // namespace

void PlacedSliceParams::visit(ParamVisitor& v) const {
  std::string at;
  for (const std::int64_t offset : offsets) at += (at.empty() ? "" : " ") + std::to_string(offset);
  v.value("slice_sizes", sizes);
  v.value("offsets", std::string_view(at));
}

constinit Primitive placed_slice_p = [] {
  Primitive p = planned_primitive("placed_slice");
  p.abstract_eval = eval_placed_slice;
  p.group = run_placed_slice;
  return p;
}();

void register_placed_slice() { register_primitive(placed_slice_p); }

}  // namespace shmap
