#include "core/cpu/fused/bound_chains.h"

namespace shmap::cpu {

void bind_constants(FusedStepList& list) {
  for (const FusedChainOp& op : list.chain_ops) {
    const std::byte* const constants = reinterpret_cast<const std::byte*>(list.constants.data());
    list.bound_ops.push_back(
        {op.code, op.form,
         op.other.base == kFusedConstants ? constants + op.other.offset : nullptr});
  }
  for (FusedStep& step : list.steps) {
    step.bound = step.chain_count > 0;
    for (std::int32_t k = 0; k < step.chain_count; ++k) {
      const FusedAddress& other =
          list.chain_ops[static_cast<std::size_t>(step.chain_begin + k)].other;
      step.bound = step.bound && other.base == kFusedConstants && other.row_stride == 0 &&
                   other.tile_stride == 0 && other.col_stride == 0;
    }
  }
}

}  // namespace shmap::cpu
