// `fused_columns` on the CPU: makes some rows of the program's result at a time in a near cache,
// and passes them to the trees that reduce the columns.
#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "core/base/thread_kept.h"
#include "core/cpu/fused/fused_plan.h"
#include "core/cpu/fused/fused_raw.h"
#include "core/cpu/kernels/reduce/column_tree.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/runtime/fused_columns.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

// A thread is added only for more work than this, in flops and bytes.
constexpr double kColumnsPartWork = 1024 * 1024;
constexpr std::int64_t kSegments = 16;  // about how many segments the threads share

// Whether the program's result consists of the squares of its one operand, of f32 or f64.
bool is_square(const FusedProgram& program) {
  const auto& inputs = program.inputs();
  if (inputs.size() != 1 || program.ops().size() != 1) return false;
  const FusedProgram::Input& x = inputs[0];
  const bool whole =
      x.kind == FusedKind::full && !x.literal && x.window.of == 0 && x.repeat.count == 0;
  return whole && (x.dtype == DType::f32 || x.dtype == DType::f64) &&
         program.ops()[0].primitive == &square_p;
}

// The steps, and the cut of the rows into segments. A segment has a power of two of rows, so that
// it gives a subtree.
struct ColumnsPlan final : FusedPlan {
  explicit ColumnsPlan(const FusedProgram& program)
      : steps(cpu::make_fused_steps(program, INT64_MAX, true)),
        is_square(shmap::is_square(program)) {
    chunk = std::max<std::int64_t>(8, steps.tile_rows);
    const auto even = static_cast<std::uint64_t>((steps.rows + kSegments - 1) / kSegments);
    segment = std::max(chunk, static_cast<std::int64_t>(std::bit_ceil(even)));
    segments = (steps.rows + segment - 1) / segment;
  }
  // The first unit of work at `row`, which is the first row of a tile or the row past the last one.
  std::int64_t unit(std::int64_t row) const {
    return steps.split ? row * steps.blocks : (row + steps.tile_rows - 1) / steps.tile_rows;
  }
  cpu::FusedStepList steps;
  bool is_square;
  std::int64_t chunk, segment, segments;  // rows made at a time; rows reduced to one partial;
                                          // number of segments
};

struct ColumnsScratch {
  std::vector<std::byte> rows, tree, partials;
};

const FusedColumnsParams& columns_of(const KernelCall& call) {
  return params_as<FusedColumnsParams>(call.params);
}
const ColumnsPlan& plan_of(const KernelCall& call) {
  const FusedProgram& program = *columns_of(call).program;
  return static_cast<const ColumnsPlan&>(
      program.plan(DeviceKind::cpu, [](const FusedProgram& p) -> std::unique_ptr<const FusedPlan> {
        return std::make_unique<const ColumnsPlan>(p);
      }));
}

int columns_parts(const KernelCall& call, int workers) {
  const Cost& cost = columns_of(call).program->cost();
  const auto most = static_cast<std::int64_t>((cost.flops + cost.bytes) / kColumnsPartWork);
  return static_cast<int>(
      std::clamp<std::int64_t>(std::min(most, plan_of(call).segments), 1, workers));
}

std::int64_t columns_scratch(const KernelCall& call) {
  const ColumnsPlan& plan = plan_of(call);
  return plan.segments * plan.steps.cols *
         itemsize(cpu::reduce_partial_dtype(columns_of(call).type.dtype()));
}

// Reduces the segments of this part of the call. Writes one row of partial results per segment.
void reduce_segments(const KernelCall& call, void* partials) {
  const FusedColumnsParams& params = columns_of(call);
  const ColumnsPlan& plan = plan_of(call);
  const DType dtype = params.type.dtype();
  const Reduction op = *params.reduction->reduction;
  const std::int64_t rows = plan.steps.rows, cols = plan.steps.cols, pitch = cols * itemsize(dtype);
  const std::int64_t partial = cols * itemsize(cpu::reduce_partial_dtype(dtype));
  auto& scratch = kept_by_thread<ColumnsScratch>();
  scratch.rows.resize(static_cast<std::size_t>(plan.chunk * pitch));
  scratch.tree.resize(static_cast<std::size_t>(cpu::ColumnTree::bytes(dtype, plan.segment, cols)));
  // A sum of squares reads the operand itself: its rows come in eights, which the processor
  // prefetches together.
  const bool squares = plan.is_square && op == Reduction::sum;
  const auto* const operand = static_cast<const std::byte*>(call.in[0]);
  cpu::ColumnTree tree(op, dtype, cols, scratch.tree.data(), squares);
  const auto made = reinterpret_cast<std::uintptr_t>(scratch.rows.data());
  const auto [begin, end] = call.share(plan.segments);
  for (std::int64_t s = begin; s < end; ++s) {
    const std::int64_t last = std::min(rows, (s + 1) * plan.segment);
    if (squares) tree.add(operand + s * plan.segment * pitch, last - s * plan.segment);
    for (std::int64_t r = squares ? last : s * plan.segment; r < last; r += plan.chunk) {
      const std::int64_t n = std::min(plan.chunk, last - r);
      // The address of row 0 such that row r comes to lie at the start of scratch.rows.
      void* out[1] = {reinterpret_cast<void*>(made - static_cast<std::uintptr_t>(r * pitch))};
      cpu::run_fused_steps(plan.steps, call.in, out, plan.unit(r), plan.unit(r + n));
      tree.add(scratch.rows.data(), n);
    }
    tree.finish(static_cast<std::byte*>(partials) + s * partial);
  }
}

void reduce_partials(const KernelCall& call, const void* partials) {
  const FusedColumnsParams& params = columns_of(call);
  const ColumnsPlan& plan = plan_of(call);
  cpu::reduce_column_partials(*params.reduction->reduction, params.type.dtype(), partials,
                              plan.segments, plan.steps.cols, call.out[0]);
}

void run_columns(const KernelCall& call) {
  if (call.scratch) return reduce_segments(call, call.scratch);
  auto& partials = kept_by_thread<ColumnsScratch>().partials;  // without scratch, one thread does
                                                               // all the work
  partials.resize(static_cast<std::size_t>(columns_scratch(call)));
  reduce_segments(call, partials.data());
  reduce_partials(call, partials.data());
}
void finish_columns(const KernelCall& call) { reduce_partials(call, call.scratch); }

}  // namespace

void register_cpu_fused_columns_kernels() {
  fused_columns_p.kernel(DeviceKind::cpu) = {run_columns, columns_parts, columns_scratch,
                                             finish_columns};
}

}  // namespace shmap
