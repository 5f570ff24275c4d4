// `fused` on the CPU: runs a program's steps tile by tile.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "core/base/inline_vector.h"
#include "core/base/thread_kept.h"
#include "core/cpu/fused/fused_plan.h"
#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/elementwise/select.h"
#include "core/cpu/kernels/vector/non_temporal.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace cpu {

namespace {

// A thread's buffers; they grow and live as long as the thread.
class Scratch {
 public:
  std::byte* get(std::int64_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      memory_.reset(static_cast<std::byte*>(
          ::operator new(static_cast<std::size_t>(bytes), std::align_val_t(4096))));
      size_ = bytes;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t(4096)); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::int64_t size_ = 0;
};

// The current tile, or some of its columns.
struct At {
  std::byte* const* bases;
  int results;            // the base of result 0
  std::int64_t row, col;  // the first row and column
  std::int64_t rows, cols;

  std::byte* of(const FusedAddress& p) const {
    return bases[p.base] + p.offset + row * p.row_stride + col * p.col_stride;
  }
  // True if `p` is in a result that has the memory of an operand.
  bool overwrites(const FusedAddress& p) const {
    return std::find(bases + kFusedOperands, bases + results, bases[p.base]) != bases + results;
  }
};

const void* after(const void* p, std::int64_t bytes) {
  return static_cast<const std::byte*>(p) + bytes;
}

// Copies the rows [first, first + n) of the space from an operand whose rows repeat.
void repeat_rows(const FusedStepList::Repeat& x, const std::byte* from, std::byte* out,
                 std::int64_t first, std::int64_t n) {
  const auto [every, count] = x.rows;
  const auto size = [&](std::int64_t rows) { return static_cast<std::size_t>(rows * x.pitch); };
  // Rows that come again in this tile are copied from their first copy.
  const std::int64_t anew = std::min(n, every * count);
  std::int64_t done = 0;
  while (done < anew) {
    const std::int64_t row = first + done, own = row / every % count;
    const std::int64_t run = std::min(anew - done, every > 1 ? every - row % every : count - own);
    if (every > 1)
      fill(out + done * x.pitch, from + own * x.pitch, static_cast<int>(x.pitch), run);
    else
      std::memcpy(out + done * x.pitch, from + own * x.pitch, size(run));
    done += run;
  }
  for (std::int64_t more = 0; done < n; done += more) {
    more = std::min(done, n - done);
    std::memcpy(out + done * x.pitch, out, size(more));
  }
}

// A step with its addresses in the current block.
struct BoundStep {
  const FusedStep* step;
  std::byte *a, *b, *c, *out;
  bool around;  // the result is written past the caches
  const ChainOp* links = nullptr;
  ChainOp* moving = nullptr;  // the same operations, if some read operands that are not constant
  const FusedChainOp* chain = nullptr;
  const FusedDraw* draw = nullptr;
  std::int64_t element = 0;  // for a draw: the index of the block's first element among the key's
                             // elements
  const FusedStepList::Repeat* repeated = nullptr;
  std::int64_t first_row = 0;  // where rows repeat: the tile's first row

  BoundStep(const FusedStep& s, const At& at)
      : step(&s),
        a(at.of(s.a)),
        b(at.of(s.b)),
        c(at.of(s.c)),
        out(at.of(s.out)),
        around(s.around && !at.overwrites(s.out)) {}
  // Binds the chain's operations to the block; `of_list` has room for the operations of all chains.
  void bind_chain(const FusedStepList& list, const At& at, ChainOp* of_list) {
    if (step->bound) {
      links = list.bound_ops.data() + step->chain_begin;
      return;
    }
    links = moving = of_list + step->chain_begin;
    chain = list.chain_ops.data() + step->chain_begin;
    for (std::int32_t k = 0; k < step->chain_count; ++k) {
      const FusedChainOp& link = chain[k];
      moving[k] = {link.code, link.form, at.of(link.other)};
    }
  }
  void bind_draw(const FusedStepList& list, const At& at) {
    draw = &list.draws[static_cast<std::size_t>(step->drawn)];
    element = draw->each_row ? at.col : at.row * list.cols + at.col;
  }
  void bind_repeated(const FusedStepList& list, const At& at) {
    repeated = &list.repeats[static_cast<std::size_t>(step->repeated)];
    first_row = at.row;
  }
  void advance(std::int64_t cols) {
    element += cols;
    for (std::int32_t k = 0; moving && k < step->chain_count; ++k)
      moving[k].other = after(moving[k].other, chain[k].other.col_stride * cols);
    a += step->a.col_stride * cols;
    b += step->b.col_stride * cols;
    c += step->c.col_stride * cols;
    out += step->out.col_stride * cols;
  }
  // How many elements of a result that is written past the caches lie before `out` in its cache
  // line.
  std::int64_t elements_in_line() const {
    constexpr std::uintptr_t line = 64;
    const std::uintptr_t size = step->kind == FusedStep::store ? std::uintptr_t(step->itemsize) : 4;
    return around ? static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(out) % line / size)
                  : 0;
  }

  // Runs n elements from row r of the tile on.
  void run(std::int64_t r, std::int64_t n) const {
    const FusedStep& s = *step;
    if (s.kind == FusedStep::chain) return run_chain(r, n);
    run(a + r * s.a.tile_stride, b + r * s.b.tile_stride, c + r * s.c.tile_stride,
        out + r * s.out.tile_stride, n);
  }
  void run(const std::byte* a, const std::byte* b, const std::byte* c, std::byte* out,
           std::int64_t n) const {
    const FusedStep& s = *step;
    switch (s.kind) {
      case FusedStep::unary:
        return s.one(a, out, n);
      case FusedStep::binary:
        return s.two(a, s.a.scalar, b, s.b.scalar, out, n);
      case FusedStep::select:
        return select(a, s.a.scalar, c, s.c.scalar, b, s.b.scalar, out, s.itemsize, n);
      case FusedStep::clamp:
        return clamp(s.dtype, a, s.a.scalar, b, c, s.c.scalar, out, n);
      case FusedStep::expand_one:
        return fill(out, a, s.itemsize, n);
      case FusedStep::store:
        if (around) return store_non_temporal(out, a, n * s.itemsize);
        std::memcpy(out, a, static_cast<std::size_t>(n * s.itemsize));
        return;
      case FusedStep::chain:
        return s.chained(links, s.chain_count, a, out, around, n);
      default:
        return;
    }
  }
  // The chain's operations bound to row r of the tile; `room` has space for them.
  const ChainOp* links_of_row(std::int64_t r, ChainOp* room) const {
    if (!moving || r == 0) return links;
    for (std::int32_t k = 0; k < step->chain_count; ++k) {
      room[k] = links[k];
      room[k].other = after(room[k].other, r * chain[k].other.tile_stride);
    }
    return room;
  }
  void run_chain(std::int64_t r, std::int64_t n) const {
    const FusedStep& s = *step;
    ChainOp room[kMostChainOps];
    s.chained(links_of_row(r, room), s.chain_count, a + r * s.a.tile_stride,
              out + r * s.out.tile_stride, around, n);
  }
  void reduce_rows(std::int64_t rows, std::int64_t cols) const {
    const FusedStep& s = *step;
    ChainOp room[kMostChainOps];
    for (std::int64_t r = 0; r < rows; ++r) {
      s.folded(links_of_row(r, room), s.chain_count, a + r * s.a.tile_stride,
               reinterpret_cast<float*>(out + r * s.out.tile_stride), cols);
    }
  }
  void run_draw(std::int64_t rows, std::int64_t cols) const {
    const FusedStep& s = *step;
    // If there is one key, the rows of the tile have consecutive indices and are contiguous in
    // `out`.
    const std::int64_t keys = draw->each_row ? rows : 1, n = draw->each_row ? cols : rows * cols;
    threefry_blocks(draw->to,
                    {.key = a,
                     .key_step = s.a.tile_stride,
                     .first = draw->has_first ? b : nullptr,
                     .first_step = s.b.tile_stride,
                     .out = out,
                     .out_step = s.out.tile_stride,
                     .n = keys},
                    draw->block, element, n, s.itemsize);
  }
  // Runs the whole block.
  void run_full(std::int64_t rows, std::int64_t cols) const {
    const FusedStep& s = *step;
    if (s.kind == FusedStep::draw) return run_draw(rows, cols);
    if (s.kind == FusedStep::repeat_rows) return repeat_rows(*repeated, a, out, first_row, rows);
    if (s.kind == FusedStep::expand_row) return s.expand(a, out, rows, cols);
    if (s.kind == FusedStep::expand_col) {
      const std::int64_t bytes = cols * s.itemsize;
      for (std::int64_t r = 0; r < rows; ++r)
        std::memcpy(out + r * bytes, a, static_cast<std::size_t>(bytes));
      return;
    }
    if (!s.by_row) return run(a, b, c, out, rows * cols);
    for (std::int64_t r = 0; r < rows; ++r) run(r, cols);
  }
};

// The bound steps of the current stage; a thread keeps them from one run to the next.
struct BoundSteps {
  std::vector<BoundStep> steps;
  std::vector<ChainOp> links;
};

// Prefetches the operands of the next tile into the second-level cache, some lines at each step of
// the current tile.
class Prefetch {
 public:
  Prefetch(const FusedStepList& list, std::byte* const* bases) : list_(list), bases_(bases) {}

  // The next tile has elements [first, first + n) of the full operands.
  void aim(std::int64_t first, std::int64_t n) {
    first_ = first;
    n_ = n;
    operand_ = 0;
    at_ = 0;
  }
  void step() {
    std::int64_t left = list_.prefetch_bytes;
    while (left > 0 && operand_ < list_.prefetch.size()) {
      const FusedStepList::Prefetch& p = list_.prefetch[operand_];
      const std::byte* const from = bases_[p.base] + first_ * p.itemsize;
      const std::int64_t bytes = n_ * p.itemsize, end = std::min(bytes, at_ + left);
      std::int64_t at = at_;
      for (; at < end; at += 64) __builtin_prefetch(from + at, 0, 2);
      left -= at - at_;
      at_ = at;
      if (at < bytes) return;
      ++operand_;
      at_ = 0;
    }
  }

 private:
  const FusedStepList& list_;
  std::byte* const* bases_;
  std::size_t operand_ = ~std::size_t{0};
  std::int64_t first_ = 0, n_ = 0, at_ = 0;
};

}  // namespace

void run_fused_steps(const FusedStepList& list, std::span<const void* const> operands,
                     std::span<void* const> results, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  Scratch& scratch = kept_by_thread<Scratch>();
  InlineVector<std::byte*, 16> bases(kFusedOperands + operands.size() + results.size());
  std::byte** base = bases.data();
  *base++ = reinterpret_cast<std::byte*>(const_cast<std::uint64_t*>(list.constants.data()));
  *base++ = scratch.get(list.scratch);
  for (const void* p : operands) *base++ = static_cast<std::byte*>(const_cast<void*>(p));
  for (void* p : results) *base++ = static_cast<std::byte*>(p);

  At at{bases.data(), kFusedOperands + static_cast<int>(operands.size()), 0, 0, list.tile_rows,
        list.cols};
  for (std::size_t i = 0; i < list.prologue.size(); ++i) {
    const FusedStep& s = list.prologue[i];
    if (list.prologue_size[i] == 0) continue;
    BoundStep bound(s, at);
    if (s.kind == FusedStep::repeat_rows) bound.bind_repeated(list, at);
    if (s.kind == FusedStep::expand_col || s.kind == FusedStep::repeat_rows)
      bound.run_full(at.rows, at.cols);
    else
      bound.run(0, list.prologue_size[i]);
  }

  auto& [bound, links] = kept_by_thread<BoundSteps>();
  if (links.size() < list.chain_ops.size()) links.resize(list.chain_ops.size());
  Prefetch prefetch(list, bases.data());
  const std::int64_t blocks = list.split ? list.blocks : 1;
  const FusedStep* const steps = list.steps.data();
  const int stages = static_cast<int>(list.stages.size()) - 1;
  for (std::int64_t unit = begin; unit < end;) {
    const std::int64_t tile = unit / blocks, first = unit % blocks;
    const std::int64_t last = list.split ? std::min(blocks, first + end - unit) : list.blocks;
    unit += list.split ? last - first : 1;
    if (list.group_rows > 0) {
      const std::int64_t group = tile / list.group_tiles,
                         in_group = tile % list.group_tiles * list.tile_rows;
      at.row = group * list.group_rows + in_group;
      at.rows = std::min(list.tile_rows, list.group_rows - in_group);
    } else {
      at.row = tile * list.tile_rows;
      at.rows = std::min(list.tile_rows, list.rows - at.row);
    }
    for (const FusedStepList::Repeat& x : list.repeats) {
      if (!x.moves) continue;
      const auto* const whole = static_cast<const std::byte*>(
          operands[static_cast<std::size_t>(x.base - kFusedOperands)]);
      const std::int64_t row = at.row / x.rows.every % x.rows.count;
      bases[static_cast<std::size_t>(x.base)] = const_cast<std::byte*>(whole) + row * x.pitch;
    }
    const bool ahead = !list.prefetch.empty();
    if (ahead) {
      const std::int64_t next = at.row + at.rows;
      prefetch.aim(next * list.cols,
                   unit < end ? std::min(list.tile_rows, list.rows - next) * list.cols : 0);
    }
    for (int stage = 0; stage < stages; ++stage) {
      const FusedStep* const from = steps + list.stages[static_cast<std::size_t>(stage)];
      const FusedStep* const to = steps + list.stages[static_cast<std::size_t>(stage) + 1];
      if (from == to) continue;
      if (stage % 2 == 0) {
        at.col = 0;
        for (const FusedStep* s = from; s != to; ++s) {
          if (s->kind == FusedStep::reduce) {
            s->reducer(at.of(s->a), at.of(s->out), at.rows, list.cols, 1);
            if (ahead) prefetch.step();
          } else if (s->kind == FusedStep::reduce_chain) {
            BoundStep reduced(*s, at);
            reduced.bind_chain(list, at, links.data());
            reduced.reduce_rows(at.rows, list.cols);
            if (ahead) prefetch.step();
          } else if (s->kind == FusedStep::repeat_rows) {
            BoundStep copied(*s, at);
            copied.bind_repeated(list, at);
            copied.run_full(at.rows, 1);
          } else {
            BoundStep(*s, at).run(0, at.rows);
          }
        }
        continue;
      }
      at.col = first * list.block_cols;
      bound.clear();
      for (const FusedStep* s = from; s != to; ++s) {
        bound.emplace_back(*s, at);
        if (s->chain_count > 0) bound.back().bind_chain(list, at, links.data());
        if (s->drawn >= 0) bound.back().bind_draw(list, at);
        if (s->repeated >= 0) bound.back().bind_repeated(list, at);
      }
      // The first block ends where a cache line of the result ends that is written past the caches,
      // so that the other blocks consist of whole lines.
      std::int64_t block = list.block_cols;
      for (const BoundStep& s : bound)
        if (list.blocks > 1 && s.around) block = list.block_cols - s.elements_in_line();
      for (const std::int64_t end_col = std::min(list.cols, last * list.block_cols);
           at.col < end_col; at.col += at.cols, block = list.block_cols) {
        at.cols = std::min(block, end_col - at.col);
        for (BoundStep& s : bound) {
          s.run_full(at.rows, at.cols);
          if (at.col + at.cols < end_col) s.advance(at.cols);
          if (ahead) prefetch.step();
        }
      }
    }
  }
  if (list.stores_around) non_temporal_fence();
}

}  // namespace cpu

namespace {

struct CpuFusedPlan final : FusedPlan {
  explicit CpuFusedPlan(const FusedProgram& program) : steps(cpu::make_fused_steps(program)) {}
  cpu::FusedStepList steps;
};

const cpu::FusedStepList& steps_of(const Params& params) {
  const FusedProgram& program = *params_as<FusedParams>(params).program;
  const auto make = [](const FusedProgram& p) -> std::unique_ptr<const FusedPlan> {
    return std::make_unique<const CpuFusedPlan>(p);
  };
  return static_cast<const CpuFusedPlan&>(program.plan(DeviceKind::cpu, make)).steps;
}

// A thread is added only for more work than this, in flops and bytes.
constexpr double kPartWork = 1024 * 1024;

int fused_parts(const KernelCall& call, int workers) {
  const FusedProgram& program = *params_as<FusedParams>(call.params).program;
  const double work = program.cost().flops + program.cost().bytes;
  const std::int64_t units = steps_of(call.params).units;
  const std::int64_t most =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(work / kPartWork), 1, workers);
  return static_cast<int>(std::clamp<std::int64_t>(units, 1, most));
}

std::uint32_t overwrites(const Params& params, std::size_t result) {
  return steps_of(params).overwrites[result];
}

void run_fused(const KernelCall& call) {
  const cpu::FusedStepList& list = steps_of(call.params);
  const auto [begin, end] = call.share(list.units);
  cpu::run_fused_steps(list, call.in, call.out, begin, end);
}

}  // namespace

void register_cpu_fused_kernels() {
  fused_p.kernel(DeviceKind::cpu) = {
      .run = run_fused, .parts = fused_parts, .overwrites = overwrites};
  set_fused_ability(DeviceKind::cpu, {.reads_windows = true});
}

}  // namespace shmap
