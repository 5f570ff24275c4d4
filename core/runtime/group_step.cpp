// The step of a collective.
#include "core/base/inline_vector.h"
#include "core/runtime/op_site.h"
#include "core/runtime/reshard.h"
#include "core/runtime/step.h"

namespace shmap {

Array as_block(Array x, const ShapedArray& type) {
  const StoredNode& node = *stored_of(x);
  if (node.type == type) return x;
  return relabel(node, type, nullptr, node.trace, true);
}

void run_group(const Step& step, const OpSite& site, std::span<StoredNode* const> out) {
  InlineVector<StoredNode*, 2> operands(step.in.size());
  for (std::size_t i = 0; i < step.in.size(); ++i) {
    Array& x = step.in[i];
    x = as_block(as_stored(std::move(x), &step.mesh), step.in_types[i]);
    operands[i] = stored_of(x);
  }
  GroupCall call{step.primitive, step.params, step.mesh, operands.span(), out,
                 step.source,    site.number};
  step.primitive.group(call);
}

}  // namespace shmap
