#include "core/cpu/fused/tile_shape.h"

#include <algorithm>
#include <bit>

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

}  // namespace

void cut_into_tiles(const FusedProgram& program, bool by_rows, std::int64_t tile_bytes,
                    FusedStepList* list) {
  const auto is_part = [](const FusedProgram::Input& input) { return input.window.of > 0; };
  const bool has_parts = std::any_of(program.inputs().begin(), program.inputs().end(), is_part);
  bool rows_matter = has_parts || by_rows;
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
  } else {
    const std::int64_t blocks = (cols + block - 1) / block, even = (cols + blocks - 1) / blocks;
    list->block_cols = (even + 63) / 64 * 64;
  }
  list->blocks = (list->cols + list->block_cols - 1) / list->block_cols;
}

}  // namespace shmap::cpu
