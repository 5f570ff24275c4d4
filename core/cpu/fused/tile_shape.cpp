#include "core/cpu/fused/tile_shape.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/cpu/fused/lowered_op.h"
#include "core/ops/elementwise.h"

namespace shmap::cpu {

namespace {

// Rows that are longer than a tile are cut into blocks. Rows that are only longer than a block are
// cut too if the program divides and its results do not depend on the cut into rows. Blocks are so
// short that the processor's out-of-order window spans the loops of several kernels: it overlaps
// the divisions of one loop with the loads of the next, and predicts the end of each loop.
constexpr std::int64_t kBlockBytes = 2048;

// True if the loop of an operation divides or takes roots, which occupies the processor's divider.
// (logistic(x) is 1 / (1 + exp(-x)).)
bool uses_divider(const Primitive* p) {
  return p == &div_p || p == &sqrt_p || p == &rsqrt_p || p == &logistic_p;
}
bool uses_divider(const FusedProgram& program) {
  return std::any_of(program.ops().begin(), program.ops().end(),
                     [](const FusedProgram::Op& op) { return uses_divider(op.primitive); });
}

// In a tile of fewer bytes, the fixed cost of a tile is more than that of copying rows.
constexpr std::int64_t kSmallTileBytes = 4096;

// Cuts the rows into groups in which each full operand whose rows repeat has either one row or
// neighbouring rows, if a group has enough elements. Otherwise a tile has some whole groups, so
// that rows which repeat in each group are the same in each tile.
void cut_into_groups(const FusedProgram& program, std::int64_t widest, FusedStepList* list) {
  std::int64_t group = 0;
  for (const FusedProgram::Input& input : program.inputs()) {
    const auto [every, count] = input.repeat;
    if (input.kind == FusedKind::full && count > 0)
      group = std::gcd(group, every > 1 ? every : count);
  }
  if (group < 2) return;
  const std::int64_t tiles = (group + list->tile_rows - 1) / list->tile_rows,
                     even = (group + tiles - 1) / tiles;
  if (even * list->cols * widest < kSmallTileBytes) {
    list->tile_rows -= list->tile_rows % std::min(group, list->tile_rows);
    return;
  }
  list->tile_rows = even;
  list->group_rows = group;
  list->group_tiles = (group + even - 1) / even;
}

}  // namespace

void cut_into_tiles(const FusedProgram& program, bool by_rows, std::int64_t tile_bytes,
                    FusedStepList* list) {
  bool has_parts = false, has_repeats = false;
  for (const FusedProgram::Input& input : program.inputs()) {
    has_parts |= input.window.of > 0;
    has_repeats |= input.repeat.count > 0;
  }
  bool rows_matter = has_parts || has_repeats || by_rows;
  std::int64_t widest = 1;
  for (int v = 0; v < program.value_count(); ++v) {
    const FusedKind kind = program.kind(v);
    rows_matter |= kind == FusedKind::row || kind == FusedKind::col;
    if (kind == FusedKind::full)
      widest = std::max<std::int64_t>(widest, itemsize(computed_dtype(program.dtype(v))));
  }
  list->rows = rows_matter ? program.rows() : 1;
  list->cols = rows_matter ? program.cols() : program.rows() * program.cols();
  const std::int64_t tile = tile_bytes / widest, cols = std::max<std::int64_t>(list->cols, 1);
  const std::int64_t block = kBlockBytes / widest;
  list->tile_rows = 1;
  list->block_cols = cols;
  if (cols < (rows_matter || !uses_divider(program) ? tile : block)) {
    // The rows of a window of a larger array are not contiguous; each is a tile of its own.
    if (!has_parts)
      list->tile_rows =
          std::clamp<std::int64_t>(tile / cols, 1, std::max<std::int64_t>(list->rows, 1));
    if (by_rows)
      list->tile_rows =
          static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(list->tile_rows)));
    else if (list->tile_rows > 1 && has_repeats)
      cut_into_groups(program, widest, list);
  } else {
    const std::int64_t blocks = (cols + block - 1) / block, even = (cols + blocks - 1) / blocks;
    list->block_cols = (even + 63) / 64 * 64;
  }
  list->blocks = (list->cols + list->block_cols - 1) / list->block_cols;
}

}  // namespace shmap::cpu
