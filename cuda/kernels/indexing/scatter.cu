#include <string>

#include "cuda/kernels/indexing/gather.h"
#include "cuda/kernels/indexing/gather_plan.h"
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/sort/sort_lines.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

constexpr std::int64_t kMostEntries = std::int64_t{1} << 32;

// The dims of the updates that one loop covers; strides in items.
struct ScatterDims {
  std::int64_t rank = 0, count = 1;
  std::int64_t extent[kMaxRank] = {}, update[kMaxRank] = {}, operand[kMaxRank] = {};
  std::int64_t row[kMaxRank] = {};

  void add(const SlicePlanDim& d) {
    count *= d.extent;
    if (d.extent == 1) return;
    const std::int64_t last = rank - 1;
    if (last >= 0 && update[last] == d.extent * d.slices_stride &&
        operand[last] == d.extent * d.operand_stride && row[last] == d.extent * d.row_stride) {
      extent[last] *= d.extent;
      update[last] = d.slices_stride;
      operand[last] = d.operand_stride;
      row[last] = d.row_stride;
      return;
    }
    extent[rank] = d.extent;
    update[rank] = d.slices_stride;
    operand[rank] = d.operand_stride;
    row[rank++] = d.row_stride;
  }

  struct Offsets {
    std::int64_t update, operand, row;
  };
  SHMAP_FN Offsets at(std::int64_t i) const {
    Offsets p = {0, 0, 0};
    for (std::int64_t d = rank - 1; d >= 0; --d) {
      const std::int64_t above = i / extent[d], here = i - above * extent[d];
      p.update += here * update[d];
      p.operand += here * operand[d];
      p.row += here * row[d];
      i = above;
    }
    return p;
  }
};

// An entry is a set of update items that one index vector moves. Two entries go either to the same
// items of the operand or to disjoint ones. The items of an entry lie along dims in which the
// operand has only one position for them.
struct ScatterPlan {
  ScatterDims entries, items;
  SliceStarts starts;
  int key_bytes = 4;
  int bits = 1;  // of the keys: an entry's position, or all ones where it is dropped

  explicit ScatterPlan(const Scatter& s) {
    const SlicePlan plan(s.slices);
    starts = plan.starts;
    // The batch dims first: entries are added in their order.
    for (const bool window : {false, true}) {
      for (int d = 0; d < plan.rank; ++d)
        if (plan.dim[d].window == window) (plan.dim[d].moves ? entries : items).add(plan.dim[d]);
    }
    while (std::int64_t{1} << bits <= s.slices.operand_shape.num_elements()) ++bits;
    if (bits > 32) key_bytes = 8;
    if (entries.count < kMostEntries) return;
    throw ValueError("scatter: " + std::to_string(entries.count) +
                     " slices; at most 2^32 - 1 can be told apart: scatter parts of them in turn");
  }

  SortLines sort() const {
    SortLines sort;
    sort.key_bytes = key_bytes;
    sort.bits = bits;
    sort.lines = 1;
    sort.len = entries.count;
    return sort;
  }
};

template <class Key>
__global__ void __launch_bounds__(kThreads)
    place_entries(const SHMAP_CONSTANT ScatterDims entries, const SHMAP_CONSTANT SliceStarts starts,
                  Key nowhere, Key* keys, std::uint32_t* order) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       e < entries.count; e += step) {
    const ScatterDims::Offsets place = entries.at(e);
    std::int64_t to = place.operand;
    const bool inside = starts.add(place.row, to);
    keys[e] = inside ? static_cast<Key>(to) : nowhere;
    order[e] = static_cast<std::uint32_t>(e);
  }
}

template <ScatterKind op, class T>
SHMAP_FN T combined(T old, T term) {
  if constexpr (op == ScatterKind::set) return term;
  const auto a = scalar::widen(old), b = scalar::widen(term);
  if constexpr (op == ScatterKind::add) return scalar::narrow<T>(scalar::add(a, b));
  if constexpr (op == ScatterKind::mul) return scalar::narrow<T>(scalar::mul(a, b));
  if constexpr (op == ScatterKind::min) return scalar::narrow<T>(scalar::min(a, b));
  return scalar::narrow<T>(scalar::max(a, b));
}
template <ScatterKind op>
SHMAP_FN Boolean combined(Boolean old, Boolean term) {
  if constexpr (op == ScatterKind::set) return term;
  if constexpr (op == ScatterKind::add || op == ScatterKind::max)
    return {static_cast<unsigned char>(old.value | term.value)};
  return {static_cast<unsigned char>(old.value & term.value)};
}

// Each thread handles one item of an entry; the threads of the first of equal entries combine all
// of them.
template <class T, class Key, ScatterKind op>
__global__ void __launch_bounds__(kThreads)
    combine_entries(const SHMAP_CONSTANT ScatterDims entries,
                    const SHMAP_CONSTANT ScatterDims items, Key nowhere, const Key* keys,
                    const std::uint32_t* order, const T* updates, T literal, T* operand) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t n = entries.count * items.count;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += step) {
    std::int64_t p = i / items.count;
    const Key key = keys[p];
    if (key == nowhere || (p > 0 && keys[p - 1] == key)) continue;
    const ScatterDims::Offsets item = items.at(i - p * items.count);
    T* const to = operand + static_cast<std::int64_t>(key) + item.operand;
    T sum = *to;
    for (; p < entries.count && keys[p] == key; ++p) {
      const T term =
          updates != nullptr ? updates[entries.at(order[p]).update + item.update] : literal;
      sum = combined<op>(sum, term);
    }
    *to = sum;
  }
}

// For integers of 32 and 64 bits, whose sums do not depend on the order: all entries at once.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    add_words(const SHMAP_CONSTANT ScatterDims entries, const SHMAP_CONSTANT ScatterDims items,
              const SHMAP_CONSTANT SliceStarts starts, const Word* updates, Word literal,
              Word* operand) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t n = entries.count * items.count;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += step) {
    const std::int64_t e = i / items.count;
    const ScatterDims::Offsets entry = entries.at(e), item = items.at(i - e * items.count);
    std::int64_t to = entry.operand + item.operand;
    if (!starts.add(entry.row, to)) continue;
    atomicAdd(operand + to, updates != nullptr ? updates[entry.update + item.update] : literal);
  }
}

bool adds_in_any_order(const Scatter& s) {
  return s.op == ScatterKind::add && is_integer(s.dtype) && itemsize(s.dtype) >= 4;
}

template <class Word>
void run_words(const Scatter& s, const ScatterPlan& plan, void* stream) {
  launch("scatter", add_words<Word>, grid_for(plan.entries.count * plan.items.count),
         dim3(kThreads), stream, plan.entries, plan.items, plan.starts,
         static_cast<const Word*>(s.updates), static_cast<Word>(s.literal),
         static_cast<Word*>(s.operand));
}

std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

template <class Key>
void run(const Scatter& s, const ScatterPlan& plan, char* scratch, void* stream) {
  const std::int64_t n = plan.entries.count;
  const Key nowhere = static_cast<Key>((std::uint64_t{2} << (plan.bits - 1)) - 1);
  SortLines sort = plan.sort();
  auto* const keys = reinterpret_cast<Key*>(scratch);
  auto* const order = reinterpret_cast<std::uint32_t*>(scratch + rounded(n * plan.key_bytes));
  sort.keys = keys;
  sort.values = order;
  launch("scatter: places", place_entries<Key>, grid_for(n), dim3(kThreads), stream, plan.entries,
         plan.starts, nowhere, keys, order);
  const void* sorted = keys;
  if (n > 1) sorted = sort_lines(sort, reinterpret_cast<char*>(order) + rounded(n * 4), stream);
  const bool known = with_type(s.dtype, [&]<class T>() {
    T literal;
    __builtin_memcpy(&literal, &s.literal, sizeof(T));
    const auto with = [&](auto kernel) {
      launch("scatter", kernel, grid_for(n * plan.items.count), dim3(kThreads), stream,
             plan.entries, plan.items, nowhere, static_cast<const Key*>(sorted), order,
             static_cast<const T*>(s.updates), literal, static_cast<T*>(s.operand));
    };
    switch (s.op) {
      case ScatterKind::set:
        return with(combine_entries<T, Key, ScatterKind::set>);
      case ScatterKind::add:
        return with(combine_entries<T, Key, ScatterKind::add>);
      case ScatterKind::mul:
        return with(combine_entries<T, Key, ScatterKind::mul>);
      case ScatterKind::min:
        return with(combine_entries<T, Key, ScatterKind::min>);
      case ScatterKind::max:
        return with(combine_entries<T, Key, ScatterKind::max>);
    }
  });
  check_launched("scatter", known);
}

bool adds_nothing(const Scatter& s, const ScatterPlan& plan) {
  return plan.entries.count * plan.items.count == 0 || s.slices.operand_shape.num_elements() == 0;
}

}  // namespace

std::int64_t scatter_scratch(const Scatter& s) {
  const ScatterPlan plan(s);
  if (adds_nothing(s, plan) || adds_in_any_order(s)) return 0;
  const std::int64_t n = plan.entries.count;
  return rounded(n * plan.key_bytes) + rounded(n * 4) + sort_lines_scratch(plan.sort());
}

void scatter(const Scatter& s, void* scratch, void* stream) {
  if (s.dtype == DType::prng_key) throw TypeError("scatter: keys cannot be scattered on a GPU");
  const ScatterPlan plan(s);
  if (adds_nothing(s, plan)) return;
  if (adds_in_any_order(s)) {
    return itemsize(s.dtype) == 8 ? run_words<unsigned long long>(s, plan, stream)
                                  : run_words<unsigned>(s, plan, stream);
  }
  if (plan.key_bytes == 8)
    run<std::uint64_t>(s, plan, static_cast<char*>(scratch), stream);
  else
    run<std::uint32_t>(s, plan, static_cast<char*>(scratch), stream);
}

}  // namespace shmap::cuda
