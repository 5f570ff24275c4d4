// The assignment of a reduction to blocks and threads. It depends on the extents and the element
// size alone, and determines the order in which a result is combined.
#pragma once
#include <cstdint>

#include "cuda/kernels/embedded/scalar.h"
#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/reduce/reduce.h"

namespace shmap::cuda {

// The runs with their strides, in elements.
struct ReduceLayout {
  std::int64_t count;
  std::int64_t results = 1, elements = 1;  // elements that go into each result
  std::int64_t kept[ReduceRuns::kMost] = {}, kept_stride[ReduceRuns::kMost] = {};
  std::int64_t reduced[ReduceRuns::kMost] = {}, reduced_stride[ReduceRuns::kMost] = {};

  explicit ReduceLayout(const ReduceRuns& runs) : count(runs.count) {
    std::int64_t stride = 1;
    for (std::int64_t g = count; g >= 0; --g) {
      kept[g] = runs.kept[g];
      kept_stride[g] = stride;
      stride *= kept[g];
      results *= kept[g];
      if (g == 0) break;
      reduced[g - 1] = runs.reduced[g - 1];
      reduced_stride[g - 1] = stride;
      stride *= reduced[g - 1];
      elements *= reduced[g - 1];
    }
  }

  // The offset of the first element of a result.
  SHMAP_FN std::int64_t kept_offset(std::int64_t result) const {
    std::int64_t offset = 0;
    for (std::int64_t g = count; g > 0; --g) {
      const std::int64_t above = result / kept[g];
      offset += (result - above * kept[g]) * kept_stride[g];
      result = above;
    }
    return offset + result * kept_stride[0];
  }
};

// Iterates over the elements of a result, a fixed number at a time, without divisions.
struct ReduceCursor {
  std::int64_t offset = 0;

  SHMAP_FN ReduceCursor(const ReduceLayout& l, std::int64_t first, std::int64_t step) {
    for (std::int64_t g = l.count - 1; g >= 0; --g) {
      index_[g] = first % l.reduced[g];
      step_[g] = step % l.reduced[g];
      first /= l.reduced[g];
      step /= l.reduced[g];
      offset += index_[g] * l.reduced_stride[g];
    }
  }
  SHMAP_FN void advance(const ReduceLayout& l) {
    std::int64_t carry = 0;
    for (std::int64_t g = l.count - 1; g >= 0; --g) {
      std::int64_t moved = step_[g] + carry;
      carry = index_[g] + moved >= l.reduced[g] ? 1 : 0;
      if (carry != 0) moved -= l.reduced[g];
      index_[g] += moved;
      offset += moved * l.reduced_stride[g];
    }
  }

 private:
  std::int64_t index_[ReduceRuns::kMost], step_[ReduceRuns::kMost];
};

struct ReducePlan {
  bool rows = false;                  // each result is one contiguous run: reduce_rows
  bool along = false;                 // neighbouring threads share a result
  int width = 1, depth = 1;           // results of a block, threads of a result
  std::int64_t tiles = 1;             // blocks for each part
  std::int64_t parts = 1, chunk = 0;  // parts of each result's elements, and elements of a part

  ReducePlan(const ReduceLayout& l, int itemsize) {
    const std::int64_t inner = l.kept[l.count];
    along = inner == 1;
    rows = along && l.count == 1;
    std::int64_t at_once = 1;  // elements that a thread takes at a time
    if (along) {
      at_once = rows ? 16 / itemsize : 1;
      // A warp for each row, fewer threads for short rows; a block where each of its threads has
      // several loads.
      const std::int64_t loads = (l.elements + at_once - 1) / at_once;
      depth = loads >= 8 * kThreads ? kThreads : 1;
      while (depth < 32 && depth < loads) depth *= 2;
      width = kThreads / depth;
    } else {
      // At least 128 contiguous bytes; several rows at a time where rows are shorter.
      const std::int64_t wanted = itemsize >= 4 ? 32 : 128 / itemsize;
      width = static_cast<int>(inner < 32 ? inner : l.results < wanted ? l.results : wanted);
      depth = kThreads / width;
    }
    spread(l, at_once);
  }

  // The plan for partial results [parts, results].
  static ReducePlan of_partials(const ReduceLayout& l) {
    ReducePlan plan(l, 4);
    plan.parts = 1;
    plan.chunk = l.elements;
    return plan;
  }

  dim3 grid() const {
    dim3 grid = grid_of("reduce", tiles);
    grid.y = static_cast<unsigned>(parts);
    return grid;
  }

 private:
  static constexpr std::int64_t kWantedBlocks = 1024;  // several for each multiprocessor of any GPU
  static constexpr std::int64_t kLeastLoads = 16;      // of a thread, for a part to be worthwhile

  void spread(const ReduceLayout& l, std::int64_t at_once) {
    tiles = (l.results + width - 1) / width;
    const std::int64_t step = depth * at_once;  // of all threads of a result
    const std::int64_t steps = (l.elements + step - 1) / step;
    if (tiles < kWantedBlocks) {
      parts = kWantedBlocks / tiles;
      if (parts > steps / kLeastLoads) parts = steps / kLeastLoads;
      if (parts < 1) parts = 1;
    }
    chunk = (steps + parts - 1) / parts * step;
    parts = (l.elements + chunk - 1) / chunk;
  }
};

}  // namespace shmap::cuda
