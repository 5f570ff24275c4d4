// Reductions on the CPU: any set of dims, as one or more reductions of [outer, reduced, inner].
#include "core/ops/reduce.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/reduce/arg_reduce.h"
#include "core/cpu/kernels/reduce/reduce.h"
#include "core/ops/lines.h"
#include "core/ops/reduce_groups.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

constexpr std::int64_t kPartElements = 64 * 1024;   // fewer elements are not worth another thread
constexpr std::int64_t kScratchBytes = 256 * 1024;  // bytes of partial results, which stay in the
                                                    // cache
constexpr std::int64_t kCallElements = 4096;        // fewer elements are not worth a call of a raw
                                                    // kernel
constexpr std::int64_t kSmallSlab = 16 * 1024;      // elements that stay in the nearest cache
constexpr int kGroups = ReduceGroups::kMost;

using Groups = ReduceGroups;

template <class Byte>
Byte* at(Byte* p, std::int64_t i, DType t) {
  return p + i * itemsize(t);
}
const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }
std::byte* bytes(void* p) { return static_cast<std::byte*>(p); }

// A reduction of several runs of dims. Takes some lines of kept[1] at a time: reduces their inner
// runs to partial results, then reduces these along the outermost run. If the dims below the
// outermost run have few elements, reduces the outermost run first. The grouping of lines, and so
// the order of additions, depends on the extents alone.
class NestedReduction {
 public:
  NestedReduction(Reduction op, DType dtype, const Groups& groups)
      : op_(op), dtype_(dtype), partial_(cpu::reduce_partial_dtype(dtype)), groups_(groups) {
    for (int g = groups.count; g >= 0; --g) {
      const bool last = g == groups.count;
      kept_from_[g] = groups.kept[g] * (last ? 1 : kept_from_[g + 1]);
      reduced_from_[g] = last ? 1 : groups.reduced[g] * reduced_from_[g + 1];
    }
    for (int g = 0; g + 1 < groups.count; ++g) {
      const std::int64_t line_in = line_out(g) * reduced_from_[g + 1];
      const std::int64_t partials = groups.reduced[g] * line_out(g) * itemsize(partial_);
      const std::int64_t lines = groups.kept[g + 1];
      if (lines * line_in <= kSmallSlab) {
        chunk_[g] = lines;
        outer_first_[g] = true;
        continue;
      }
      // A chunk has enough lines to be worth a call, else a sixteenth of them, so that there are
      // parts to share.
      const std::int64_t wanted = std::max((lines + 15) / 16, kCallElements / line_in);
      chunk_[g] = std::clamp<std::int64_t>(std::min(kScratchBytes / partials, wanted), 1, lines);
    }
  }

  // Units of work: chunks of the lines of each slab.
  std::int64_t units() const { return groups_.kept[0] * chunks(); }
  void run(const std::byte* in, std::byte* out, std::int64_t begin, std::int64_t end) {
    const std::int64_t slab = reduced_from_[0] * kept_from_[1];
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t i = unit / chunks(), first = unit % chunks() * chunk_[0];
      const std::int64_t n = std::min(chunk_[0], groups_.kept[1] - first) * line_out(0);
      std::byte* const to = at(out, i * kept_from_[1] + first * line_out(0), dtype_);
      if (partial_ == dtype_) {
        reduce_chunk(0, at(in, i * slab, dtype_), dtype_, to, first);
      } else {
        result_.resize(static_cast<std::size_t>(n * itemsize(partial_)));
        reduce_chunk(0, at(in, i * slab, dtype_), dtype_, result_.data(), first);
        cpu::cast_kernel(partial_, dtype_)(result_.data(), to, n);
      }
    }
  }

 private:
  std::int64_t chunks() const { return (groups_.kept[1] + chunk_[0] - 1) / chunk_[0]; }
  std::int64_t line_out(int g) const { return kept_from_[g + 2]; }

  // Reduces the chunk of lines from `first` on. in: a slab [reduced[g], kept[g + 1], the rest] of
  // dtype t; out: of the partial dtype.
  void reduce_chunk(int g, const std::byte* in, DType t, std::byte* out, std::int64_t first) {
    const std::int64_t rows = groups_.reduced[g], lines = groups_.kept[g + 1];
    const std::int64_t n = std::min(chunk_[g], lines - first), width = n * line_out(g);
    const std::int64_t line_in = line_out(g) * reduced_from_[g + 1];
    std::vector<std::byte>& scratch = scratch_[g];
    if (outer_first_[g]) {
      scratch.resize(static_cast<std::size_t>(lines * line_in * itemsize(partial_)));
      cpu::reduce_to_partials(op_, t, in, scratch.data(), 1, rows, lines * line_in);
      reduce_lines(g + 1, scratch.data(), partial_, out, lines);
      return;
    }
    scratch.resize(static_cast<std::size_t>(rows * width * itemsize(partial_)));
    for (std::int64_t r = 0; r < rows; ++r) {
      reduce_lines(g + 1, at(in, (r * lines + first) * line_in, t), t,
                   at(scratch.data(), r * width, partial_), n);
    }
    cpu::reduce_kernel(op_, partial_)(scratch.data(), out, 1, rows, width);
  }

  // in: [n, reduced[g], kept[g + 1], the rest] of dtype t; out: of the partial dtype.
  void reduce_lines(int g, const std::byte* in, DType t, std::byte* out, std::int64_t n) {
    if (g + 1 == groups_.count) {
      cpu::reduce_to_partials(op_, t, in, out, n, groups_.reduced[g], groups_.kept[g + 1]);
      return;
    }
    const std::int64_t slab = reduced_from_[g] * kept_from_[g + 1];
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t first = 0; first < groups_.kept[g + 1]; first += chunk_[g]) {
        reduce_chunk(g, at(in, i * slab, t), t,
                     at(out, i * kept_from_[g + 1] + first * line_out(g), partial_), first);
      }
    }
  }

  Reduction op_;
  DType dtype_, partial_;
  const Groups& groups_;
  std::int64_t kept_from_[kGroups];     // kept_from_[g]: product of kept[g], kept[g + 1], …
  std::int64_t reduced_from_[kGroups];  // the product of reduced[g], …
  std::int64_t chunk_[kGroups] = {};    // lines that are reduced together
  bool outer_first_[kGroups] = {};
  std::vector<std::byte> scratch_[kGroups], result_;
};

// The inner elements are the columns. If there are at least this many, the order of a column's
// additions does not depend on the columns reduced with it (reduce_some_columns needs 64).
constexpr std::int64_t kManyColumns = 256;
// The number of columns that a part takes at a time: some pages if there are many columns.
std::int64_t column_grain(std::int64_t inner) { return inner >= 1024 ? 512 : 128; }

int parts_of(const ShapedArray& in, std::int64_t units, int workers) {
  const std::int64_t most = std::clamp<std::int64_t>(in.size() / kPartElements, 1, workers);
  return static_cast<int>(std::clamp<std::int64_t>(units, 1, most));
}

std::int64_t column_chunks(std::int64_t inner) {
  return (inner + column_grain(inner) - 1) / column_grain(inner);
}

Groups groups_of(const KernelCall& call) {
  return Groups(call.in_types[0].dims(), params_as<ReduceParams>(call.params).axes);
}

// True for a few long runs: parts reduce blocks of the runs, then the blocks' results are reduced.
bool by_blocks(const Groups& groups) {
  return groups.count == 1 && groups.kept[1] == 1 && groups.kept[0] < 64 &&
         groups.reduced[0] >= 2 * cpu::kReduceBlock;
}

int reduce_parts(const KernelCall& call, int workers) {
  const Groups groups = groups_of(call);
  if (call.in_types[0].size() == 0) return 1;
  if (groups.count == 0) return parts_of(call.in_types[0], workers, workers);
  if (groups.count > 1) {
    const NestedReduction nested(Reduction::sum, call.in_types[0].dtype(), groups);
    return parts_of(call.in_types[0], nested.units(), workers);
  }
  const std::int64_t inner = groups.kept[1];
  const std::int64_t each = by_blocks(groups)       ? cpu::reduce_block_count(groups.reduced[0])
                            : inner >= kManyColumns ? column_chunks(inner)
                                                    : 1;
  const std::int64_t units = groups.kept[0] * each;
  return parts_of(call.in_types[0], units, workers);
}

std::int64_t reduce_scratch(const KernelCall& call) {
  const Groups groups = groups_of(call);
  if (call.in_types[0].size() == 0 || !by_blocks(groups)) return 0;
  return groups.kept[0] * cpu::reduce_block_count(groups.reduced[0]) *
         itemsize(cpu::reduce_partial_dtype(call.in_types[0].dtype()));
}

template <Reduction op>
void run_blocks(const KernelCall& call, const Groups& groups) {
  const DType dtype = call.in_types[0].dtype();
  const std::int64_t n = groups.reduced[0], blocks = cpu::reduce_block_count(n);
  const auto [begin, end] = call.share(groups.kept[0] * blocks);
  for (std::int64_t unit = begin; unit < end;) {
    const std::int64_t i = unit / blocks, first = unit % blocks;
    const std::int64_t last = std::min(blocks, first + end - unit);
    cpu::reduce_blocks(op, dtype, at(bytes(call.in[0]), i * n, dtype), n, first, last,
                       at(bytes(call.scratch), i * blocks, cpu::reduce_partial_dtype(dtype)));
    unit += last - first;
  }
}

template <Reduction op>
void finish_reduce(const KernelCall& call) {
  const Groups groups = groups_of(call);
  const DType dtype = call.in_types[0].dtype();
  const std::int64_t blocks = cpu::reduce_block_count(groups.reduced[0]);
  for (std::int64_t i = 0; i < groups.kept[0]; ++i) {
    cpu::reduce_partials(op, dtype,
                         at(bytes(call.scratch), i * blocks, cpu::reduce_partial_dtype(dtype)),
                         blocks, at(bytes(call.out[0]), i, dtype));
  }
}

template <Reduction op>
void run_reduce(const KernelCall& call) {
  const DType dtype = call.in_types[0].dtype();
  const std::int64_t results = call.out_types[0].size();
  if (results == 0) return;
  const std::byte* in = bytes(call.in[0]);
  std::byte* out = bytes(call.out[0]);
  if (call.in_types[0].size() == 0) {
    std::uint64_t identity = 0;
    cpu::reduce_identity(op, dtype, &identity);
    cpu::fill(out, &identity, itemsize(dtype), results);
    return;
  }
  const Groups groups = groups_of(call);
  if (call.scratch) return run_blocks<op>(call, groups);
  if (groups.count == 0) {
    const auto [begin, end] = call.share(results, 64);
    std::memcpy(at(out, begin, dtype), at(in, begin, dtype),
                static_cast<std::size_t>((end - begin) * itemsize(dtype)));
    return;
  }
  if (groups.count > 1) {
    NestedReduction nested(op, dtype, groups);
    const auto [begin, end] = call.share(nested.units());
    nested.run(in, out, begin, end);
    return;
  }
  const std::int64_t reduced = groups.reduced[0], inner = groups.kept[1];
  if (inner < kManyColumns || call.parts == 1) {
    const auto [begin, end] = call.share(groups.kept[0]);
    cpu::reduce_kernel(op, dtype)(at(in, begin * reduced * inner, dtype),
                                  at(out, begin * inner, dtype), end - begin, reduced, inner);
    return;
  }
  const std::int64_t chunks = column_chunks(inner), grain = column_grain(inner);
  const auto [begin, end] = call.share(groups.kept[0] * chunks);
  for (std::int64_t unit = begin; unit < end;) {
    const std::int64_t i = unit / chunks, first = unit % chunks;
    const std::int64_t last = std::min(chunks, first + end - unit);
    cpu::reduce_some_columns(op, dtype, at(in, i * reduced * inner, dtype),
                             at(out, i * inner, dtype), reduced, inner, first * grain,
                             std::min(last * grain, inner));
    unit += last - first;
  }
}

Lines searched_lines(const KernelCall& call) {
  return {call.in_types[0].dims(), params_as<ArgReduceParams>(call.params).axes[0]};
}

template <ArgReduction op>
void run_arg_reduce(const KernelCall& call) {
  const Lines lines = searched_lines(call);
  if (lines.empty()) return;
  const DType in = call.in_types[0].dtype(), out = call.out_types[0].dtype();
  const auto [begin, end] = call.share(lines.outer);
  cpu::arg_reduce_kernel(op, in, out)(at(bytes(call.in[0]), begin * lines.length * lines.inner, in),
                                      at(bytes(call.out[0]), begin * lines.inner, out), end - begin,
                                      lines.length, lines.inner);
}

int arg_reduce_parts(const KernelCall& call, int workers) {
  return parts_of(call.in_types[0], searched_lines(call).outer, workers);
}

template <Reduction op>
void set(Primitive& p) {
  p.kernel(DeviceKind::cpu) = {run_reduce<op>, reduce_parts, reduce_scratch, finish_reduce<op>};
}
template <ArgReduction op>
void set(Primitive& p) {
  check_kernels(p.name, Domain::plain, {DType::i32, DType::i64}, [](DType in, DType index) {
    return cpu::arg_reduce_kernel(op, in, index) != nullptr;
  });
  p.kernel(DeviceKind::cpu) = {run_arg_reduce<op>, arg_reduce_parts};
}

}  // namespace

void register_cpu_reduce_kernels() {
#define SHMAP_SET(name, domain, primitive)                                                  \
  check_kernels(#primitive, Domain::domain,                                                 \
                [](DType t) { return cpu::reduce_kernel(Reduction::name, t) != nullptr; }); \
  set<Reduction::name>(primitive##_p);
  SHMAP_REDUCTIONS(SHMAP_SET)
#undef SHMAP_SET
  set<ArgReduction::argmax>(argmax_p);
  set<ArgReduction::argmin>(argmin_p);
}

}  // namespace shmap
