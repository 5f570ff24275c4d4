#include "cuda/kernels/move/pad.h"

#include "cuda/kernels/elementwise/map.h"
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/launch/fast_div.h"

namespace shmap::cuda {
namespace {

// The dims from the innermost to the outermost.
template <class Index>
struct PadDims {
  std::int64_t rank = 0;
  FastDiv<Index> padded[kMaxRank], step[kMaxRank];
  std::int64_t low[kMaxRank], extent[kMaxRank], src_stride[kMaxRank];  // strides in items
};

// Computes for each item of dst its position in src, if it has one.
template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    pad_kernel(Index items, const T* src, Source<T> given, T* dst,
               const SHMAP_CONSTANT PadDims<Index> dims) {
  after_predecessor();
  const T value = with_value(given).value;
  for (Index i = blockIdx.x * Index{kThreads} + threadIdx.x; i < items;
       i += gridDim.x * Index{kThreads}) {
    Index rest = i;
    std::int64_t from = 0;
    bool inside = true;
    for (int d = 0; d < dims.rank; ++d) {
      const std::int64_t at = static_cast<std::int64_t>(dims.padded[d].split(rest)) - dims.low[d];
      inside = inside && at >= 0;
      Index item = inside ? static_cast<Index>(at) : Index{0};
      inside = inside && dims.step[d].split(item) == 0;
      inside = inside && static_cast<std::int64_t>(item) < dims.extent[d];
      from += static_cast<std::int64_t>(item) * dims.src_stride[d];
    }
    dst[i] = inside ? src[from] : value;
  }
}

// Merges dims without padding with the next outer dim, if that has no interior padding.
Pad joined(const Pad& p) {
  Pad result = p;
  result.rank = 0;
  for (int d = 0; d < p.rank; ++d) {
    const bool plain = p.low[d] == 0 && p.interior[d] == 0 && p.padded[d] == p.extent[d];
    const int last = result.rank - 1;
    if (plain && last >= 0 && result.interior[last] == 0) {
      result.extent[last] *= p.extent[d];
      result.padded[last] *= p.extent[d];
      result.low[last] *= p.extent[d];
    } else {
      result.extent[result.rank] = p.extent[d];
      result.padded[result.rank] = p.padded[d];
      result.low[result.rank] = p.low[d];
      result.interior[result.rank] = p.interior[d];
      ++result.rank;
    }
  }
  return result;
}

template <class T, class Index>
void run(const Pad& p, std::int64_t items, void* stream) {
  PadDims<Index> dims{};
  std::int64_t stride = 1;
  for (int d = p.rank - 1; d >= 0; --d, ++dims.rank) {
    dims.padded[dims.rank] = FastDiv<Index>(p.padded[d]);
    dims.step[dims.rank] = FastDiv<Index>(p.interior[d] + 1);
    dims.low[dims.rank] = p.low[d];
    dims.extent[dims.rank] = p.extent[d];
    dims.src_stride[dims.rank] = stride;
    stride *= p.extent[d];
  }
  launch("pad", pad_kernel<T, Index>, grid_for(items), dim3(kThreads), stream,
         static_cast<Index>(items), static_cast<const T*>(p.src), source_of<T>(p.value),
         static_cast<T*>(p.dst), dims);
}

}  // namespace

void pad(const Pad& given, void* stream) {
  const Pad p = joined(given);
  // The range of indices: of dst and, before the bounds check, positions of src down to -low.
  std::int64_t items = 1;
  bool small = true;
  for (int d = 0; d < p.rank; ++d) {
    items *= p.padded[d];
    const std::int64_t reach = p.padded[d] - (p.low[d] < 0 ? p.low[d] : 0);
    small = small && fits_32_bits(reach) && fits_32_bits(p.interior[d] + 1);
  }
  if (items <= 0) return;
  const bool known = with_bits(p.itemsize, [&]<class T>() {
    if (small && fits_32_bits(items))
      run<T, std::uint32_t>(p, items, stream);
    else
      run<T, std::int64_t>(p, items, stream);
  });
  check_launched("pad", known);
}

}  // namespace shmap::cuda
