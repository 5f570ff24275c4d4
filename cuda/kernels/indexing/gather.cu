#include "cuda/kernels/indexing/gather.h"

#include "cuda/kernels/indexing/gather_plan.h"
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/launch/fast_div.h"
#include "cuda/kernels/launch/launch.h"

namespace shmap::cuda {
namespace {

struct alignas(16) Items16 {
  std::uint64_t words[2];
};

// The plan's dims, in units of one or several items; dims that are adjacent are merged.
struct GatherUnits {
  std::int64_t rank = 0, units = 1;
  std::int64_t extent[kMaxRank] = {}, operand_stride[kMaxRank] = {}, row_stride[kMaxRank] = {};
  SliceStarts starts;
};

// Divisors for all dims except the outermost.
template <class Index>
struct GatherDivisors {
  FastDiv<Index> extent[kMaxRank];
};

template <class Unit, class Index>
__global__ void __launch_bounds__(kThreads)
    take_units(const SHMAP_CONSTANT GatherUnits g,
               const SHMAP_CONSTANT GatherDivisors<Index> divisors, const Unit* operand, Unit fill,
               Unit* out) {
  after_predecessor();
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  const Index units = static_cast<Index>(g.units);
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < units; i += step) {
    std::int64_t from = 0, row = 0;
    Index rest = i;
    for (std::int64_t d = g.rank - 1; d >= 0; --d) {
      const auto at = static_cast<std::int64_t>(d > 0 ? divisors.extent[d].split(rest) : rest);
      from += at * g.operand_stride[d];
      row += at * g.row_stride[d];
    }
    const bool inside = g.starts.add(row, from);
    out[i] = inside && operand != nullptr ? operand[from] : fill;
  }
}

GatherUnits make_units(const SlicePlan& plan, int itemsize, const void* operand, const void* out,
                       int* unit) {
  GatherUnits g;
  g.starts = plan.starts;
  for (int d = 0; d < plan.rank; ++d) {
    const SlicePlanDim& next = plan.dim[d];
    g.units *= next.extent;
    if (next.extent == 1) continue;
    const std::int64_t last = g.rank - 1;
    if (last >= 0 && g.operand_stride[last] == next.extent * next.operand_stride &&
        g.row_stride[last] == next.extent * next.row_stride) {
      g.extent[last] *= next.extent;
      g.operand_stride[last] = next.operand_stride;
      g.row_stride[last] = next.row_stride;
      continue;
    }
    g.extent[g.rank] = next.extent;
    g.operand_stride[g.rank] = next.operand_stride;
    g.row_stride[g.rank++] = next.row_stride;
  }
  *unit = itemsize;
  const std::int64_t inner = g.rank - 1;
  if (inner < 0 || g.operand_stride[inner] != 1 || g.row_stride[inner] != 0) return g;
  std::uint64_t items = static_cast<std::uint64_t>(g.extent[inner]);
  for (std::int64_t d = 0; d < inner; ++d) items |= static_cast<std::uint64_t>(g.operand_stride[d]);
  for (std::int64_t k = 0; k < g.starts.size; ++k)
    if (g.starts.last[k] != 0) items |= static_cast<std::uint64_t>(g.starts.stride[k]);
  const std::uint64_t bits = items * static_cast<unsigned>(itemsize) |
                             reinterpret_cast<std::uintptr_t>(operand) |
                             reinterpret_cast<std::uintptr_t>(out);
  int bytes = 16;
  while (bytes > itemsize && bits % static_cast<unsigned>(bytes) != 0) bytes /= 2;
  const int joined = bytes / itemsize;
  g.units /= joined;
  g.extent[inner] /= joined;
  for (std::int64_t d = 0; d < inner; ++d) g.operand_stride[d] /= joined;
  // Along a dim in which the slices have only one position, a start is 0 or is out of bounds.
  for (std::int64_t k = 0; k < g.starts.size; ++k) g.starts.stride[k] /= joined;
  *unit = bytes;
  return g;
}

template <class Unit>
void launch_take(const GatherUnits& g, const void* operand, Unit fill, void* out, void* stream) {
  with_index(g.units, [&](auto index) {
    using Index = decltype(index);
    GatherDivisors<Index> divisors;
    for (std::int64_t d = 0; d < g.rank; ++d) divisors.extent[d] = FastDiv<Index>(g.extent[d]);
    launch("gather", take_units<Unit, Index>, grid_for(g.units), dim3(kThreads), stream, g,
           divisors, static_cast<const Unit*>(operand), fill, static_cast<Unit*>(out));
  });
}

}  // namespace

void gather(const Slices& slices, int itemsize, const void* operand, std::uint64_t fill, void* out,
            void* stream) {
  int unit = 0;
  const GatherUnits g = make_units(SlicePlan(slices), itemsize, operand, out, &unit);
  if (g.units == 0) return;
  for (int bits = 8 * itemsize; bits < 64; bits *= 2) {  // repeats the item over a whole word
    fill &= (std::uint64_t{1} << bits) - 1;
    fill |= fill << bits;
  }
  if (unit == 16) return launch_take(g, operand, Items16{{fill, fill}}, out, stream);
  const bool known = with_bits(
      unit, [&]<class Unit>() { launch_take(g, operand, static_cast<Unit>(fill), out, stream); });
  check_launched("gather", known);
}

}  // namespace shmap::cuda
