#include "core/cpu/fused/prefetch_plan.h"

namespace shmap::cpu {

namespace {

// If the operands have this many bytes or more, the near caches do not hold them.
constexpr std::int64_t kFromMemory = 2 << 20;

// The number of a tile's calls that can prefetch: one per block in the stages that run by block,
// and one per reduction in the other stages.
std::int64_t calls_of_tile(const FusedStepList& list) {
  std::int64_t calls = 0;
  for (std::size_t stage = 0; stage + 1 < list.stages.size(); ++stage) {
    for (std::int32_t i = list.stages[stage]; i < list.stages[stage + 1]; ++i) {
      const FusedStep::Kind kind = list.steps[static_cast<std::size_t>(i)].kind;
      const bool reduces = kind == FusedStep::reduce || kind == FusedStep::reduce_chain;
      calls += stage % 2 == 1 ? list.blocks : reduces;
    }
  }
  return calls;
}

}  // namespace

void plan_prefetch(FusedStepList& list, const std::vector<LoweredValue>& values,
                   const std::vector<int>& operands) {
  std::int64_t width = 0;  // bytes of one element of all prefetched operands
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const LoweredValue& x = values[static_cast<std::size_t>(operands[i])];
    if (x.kind != FusedKind::full || x.part) continue;
    const std::int32_t size = itemsize(x.dtype);
    list.prefetch.push_back({kFusedOperands + static_cast<std::int32_t>(i), size});
    width += size;
  }
  // The processor itself prefetches contiguous blocks, and operands that one call reads from end
  // to end.
  const bool by_block = list.tile_rows == 1 && list.stages.size() <= 3 && list.blocks > 1;
  const std::int64_t calls = calls_of_tile(list);
  if (list.rows * list.cols * width < kFromMemory || calls <= 1 || by_block)
    return list.prefetch.clear();
  const std::int64_t ahead = width * list.tile_rows * list.cols;
  list.prefetch_bytes = ((ahead + calls - 1) / calls + 63) / 64 * 64;
}

}  // namespace shmap::cpu
