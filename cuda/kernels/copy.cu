#include "cuda/kernels/copy.h"

#include "cuda/kernels/copy_plan.h"
#include "cuda/kernels/dispatch.h"
#include "cuda/kernels/fast_div.h"
#include "cuda/kernels/launch.h"

namespace shmap::cuda {
namespace {

struct alignas(16) Item16 {
  std::uint64_t words[2];
};

template <class F>
void with_item(int itemsize, F&& f) {
  if (!with_bits(itemsize, f)) f.template operator()<Item16>();
}

// Dims as a kernel walks over them.
template <class Index>
struct Walk {
  std::int64_t rank;
  FastDiv<Index> extent[CopyPlan::kMaxDims];
  std::int64_t dst_stride[CopyPlan::kMaxDims];
  std::int64_t src_stride[CopyPlan::kMaxDims];

  void add(const CopyPlan& plan, int d) {
    extent[rank] = FastDiv<Index>(plan.extent[d]);
    dst_stride[rank] = plan.dst_stride[d];
    src_stride[rank] = plan.src_stride[d];
    ++rank;
  }
  // Moves both addresses to item `index`.
  __device__ __forceinline__ void move(Index index, const char*& src, char*& dst) const {
    for (int d = 0; d < rank; ++d) {
      const Index at = d + 1 < rank ? extent[d].split(index) : index;
      src += static_cast<std::int64_t>(at) * src_stride[d];
      dst += static_cast<std::int64_t>(at) * dst_stride[d];
    }
  }
};

// An item a thread.
template <class Item, class Index>
__global__ void __launch_bounds__(kThreads)
    copy_items(Index items, const char* src, char* dst, const SHMAP_CONSTANT Walk<Index> dims) {
  for (Index i = blockIdx.x * Index{kThreads} + threadIdx.x; i < items;
       i += gridDim.x * Index{kThreads}) {
    const char* from = src;
    char* to = dst;
    dims.move(i, from, to);
    *reinterpret_cast<Item*>(to) = *reinterpret_cast<const Item*>(from);
  }
}

// Two dims change places: rows of src run along y, those of dst along x. A block takes square tiles
// of items through shared memory, so that both sides are touched in rows.
template <class Item>
inline constexpr int kTile = sizeof(Item) <= 2 ? 64 : 32;

struct Tiles {
  std::int64_t x, y;              // extents
  std::int64_t src_x, dst_y;      // the strides that are not an item's
  std::int64_t along_x, along_y;  // numbers of tiles
};

template <class Item>
__global__ void __launch_bounds__(kThreads)
    copy_tiles(std::int64_t count, const char* src, char* dst, Tiles tiles,
               const SHMAP_CONSTANT Walk<std::int64_t> outer) {
  constexpr int kSide = kTile<Item>, kRows = kThreads / kSide;
  __shared__ Item tile[kSide][kSide + 1];  // a column more: neighbouring rows begin in other banks
  const int lane = static_cast<int>(threadIdx.x) % kSide;
  const int row = static_cast<int>(threadIdx.x) / kSide;
  for (std::int64_t t = blockIdx.x; t < count; t += gridDim.x) {
    const std::int64_t tile_x = t % tiles.along_x, others = t / tiles.along_x;
    const std::int64_t x0 = tile_x * kSide, y0 = others % tiles.along_y * kSide;
    const char* from = src;
    char* to = dst;
    outer.move(others / tiles.along_y, from, to);
    for (int k = row; k < kSide; k += kRows) {
      if (x0 + k < tiles.x && y0 + lane < tiles.y)
        tile[k][lane] = reinterpret_cast<const Item*>(from + (x0 + k) * tiles.src_x)[y0 + lane];
    }
    __syncthreads();
    for (int k = row; k < kSide; k += kRows) {
      if (y0 + k < tiles.y && x0 + lane < tiles.x)
        reinterpret_cast<Item*>(to + (y0 + k) * tiles.dst_y)[x0 + lane] = tile[lane][k];
    }
    __syncthreads();
  }
}

void run_items(const CopyPlan& plan, void* stream) {
  with_item(plan.itemsize, [&]<class Item>() {
    with_index(plan.items, [&]<class Index>(Index) {
      Walk<Index> dims{};
      for (int d = 0; d < plan.rank; ++d) dims.add(plan, d);
      launch("copy_items", copy_items<Item, Index>, grid_for(plan.items), dim3(kThreads), stream,
             static_cast<Index>(plan.items), plan.src, plan.dst, dims);
    });
  });
}

// The dim along which src is contiguous, where dst is along another and both are long enough for
// tiles; 0 where there is none.
int tiled_dim(const CopyPlan& plan) {
  constexpr std::int64_t kShortest = 8;  // tiles would be mostly empty
  if (plan.rank < 2 || plan.itemsize > 8 || plan.dst_stride[0] != plan.itemsize) return 0;
  if (plan.src_stride[0] == plan.itemsize || plan.extent[0] < kShortest) return 0;
  for (int d = 1; d < plan.rank; ++d)
    if (plan.src_stride[d] == plan.itemsize && plan.extent[d] >= kShortest) return d;
  return 0;
}

template <class Item>
void run_tiles(const CopyPlan& plan, int y, void* stream) {
  Tiles tiles;
  tiles.x = plan.extent[0];
  tiles.y = plan.extent[y];
  tiles.src_x = plan.src_stride[0];
  tiles.dst_y = plan.dst_stride[y];
  tiles.along_x = (tiles.x + kTile<Item> - 1) / kTile<Item>;
  tiles.along_y = (tiles.y + kTile<Item> - 1) / kTile<Item>;
  Walk<std::int64_t> outer{};
  std::int64_t count = tiles.along_x * tiles.along_y;
  for (int d = 1; d < plan.rank; ++d) {
    if (d == y) continue;
    outer.add(plan, d);
    count *= plan.extent[d];
  }
  launch("copy_tiles", copy_tiles<Item>, grid_for(count, 1), dim3(kThreads), stream, count,
         plan.src, plan.dst, tiles, outer);
}

}  // namespace

void copy_bytes(void* dst, const void* src, std::int64_t bytes, void* stream) {
  if (bytes <= 0) return;
  const cudaError_t status = cudaMemcpyAsync(dst, src, static_cast<std::size_t>(bytes),
                                             cudaMemcpyDefault, static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) throw_launch_error("cudaMemcpyAsync", static_cast<int>(status));
}

void zero_bytes(void* dst, std::int64_t bytes, void* stream) {
  if (bytes <= 0) return;
  const cudaError_t status =
      cudaMemsetAsync(dst, 0, static_cast<std::size_t>(bytes), static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) throw_launch_error("cudaMemsetAsync", static_cast<int>(status));
}

void copy_strided(const StridedCopy& copy, void* stream) {
  for (int d = 0; d < copy.rank; ++d)
    if (copy.extent[d] == 0) return;
  const CopyPlan plan = plan_copy(copy);
  if (plan.contiguous())
    copy_bytes(plan.dst, plan.src, plan.items * plan.itemsize, stream);
  else if (const int y = tiled_dim(plan))
    with_bits(plan.itemsize, [&]<class Item>() { run_tiles<Item>(plan, y, stream); });
  else
    run_items(plan, stream);
}

}  // namespace shmap::cuda
