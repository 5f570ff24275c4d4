#include "cuda/kernels/move/copy.h"

#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/launch/fast_div.h"
#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/move/copy_plan.h"

namespace shmap::cuda {
namespace {

struct alignas(16) Item16 {
  std::uint64_t words[2];
};

template <class F>
void with_item(int itemsize, F&& f) {
  if (!with_bits(itemsize, f)) f.template operator()<Item16>();
}

// The dims in the order in which a kernel walks over them.
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

// Copies one item for each thread.
template <class Item, class Index>
__global__ void __launch_bounds__(kThreads)
    copy_items(Index items, const char* src, char* dst, const SHMAP_CONSTANT Walk<Index> dims) {
  after_predecessor();
  for (Index i = blockIdx.x * Index{kThreads} + threadIdx.x; i < items;
       i += gridDim.x * Index{kThreads}) {
    const char* from = src;
    char* to = dst;
    dims.move(i, from, to);
    *reinterpret_cast<Item*>(to) = *reinterpret_cast<const Item*>(from);
  }
}

// The same between several pairs of addresses; each pair has a row of blocks.
constexpr int kMostBoxes = 64;
struct BoxAddresses {
  const char* src[kMostBoxes];
  char* dst[kMostBoxes];
};
template <class Item, class Index>
__global__ void __launch_bounds__(kThreads)
    copy_items_of_boxes(Index items, const SHMAP_CONSTANT BoxAddresses boxes,
                        const SHMAP_CONSTANT Walk<Index> dims) {
  after_predecessor();
  for (Index i = blockIdx.x * Index{kThreads} + threadIdx.x; i < items;
       i += gridDim.x * Index{kThreads}) {
    const char* from = boxes.src[blockIdx.y];
    char* to = boxes.dst[blockIdx.y];
    dims.move(i, from, to);
    *reinterpret_cast<Item*>(to) = *reinterpret_cast<const Item*>(from);
  }
}

// Exchanges two dims: rows of src run along y, rows of dst along x. A block moves square tiles of
// items through shared memory, so that both sides are accessed in rows.
template <class Index>
struct Tiles {
  std::int64_t x, y;                // extents
  std::int64_t src_x, dst_y;        // the other two strides are one item
  FastDiv<Index> along_x, along_y;  // number of tiles
};

template <class Item>
inline constexpr int kTile = sizeof(Item) <= 2 ? 64 : 32;

template <class Item, class Index>
__global__ void __launch_bounds__(kThreads)
    copy_tiles(Index count, const char* src, char* dst, Tiles<Index> tiles,
               const SHMAP_CONSTANT Walk<Index> outer) {
  after_predecessor();
  constexpr int kSide = kTile<Item>, kRows = kThreads / kSide;
  __shared__ Item tile[kSide][kSide + 1];  // one more column, so that neighbouring rows begin in
                                           // different banks
  const int lane = static_cast<int>(threadIdx.x) % kSide;
  const int row = static_cast<int>(threadIdx.x) / kSide;
  for (Index t = blockIdx.x; t < count; t += gridDim.x) {
    Index others = t;
    const std::int64_t x0 = std::int64_t{tiles.along_x.split(others)} * kSide;
    const std::int64_t y0 = std::int64_t{tiles.along_y.split(others)} * kSide;
    const char* from = src;
    char* to = dst;
    outer.move(others, from, to);
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

// The same for items of two bytes, two of which form a word on both sides: extents are even, and
// all addresses are multiples of words. A thread transposes squares of two by two items.
template <class Index>
__global__ void __launch_bounds__(kThreads)
    copy_tiles_of_pairs(Index count, const char* src, char* dst, Tiles<Index> tiles,
                        const SHMAP_CONSTANT Walk<Index> outer) {
  after_predecessor();
  constexpr int kSide = kTile<std::uint16_t>, kWords = kSide / 2, kWarps = kThreads / kWords;
  __shared__ std::uint32_t words[kSide][kWords + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWords;
  const int warp = static_cast<int>(threadIdx.x) / kWords;
  // Row 2 lane (first half of the lanes) and row 2 lane + 1 (second half) begin in different banks;
  // for the other half of the rows the roles are exchanged.
  const int second = lane >= kWords / 2 ? 1 : 0;
  for (Index t = blockIdx.x; t < count; t += gridDim.x) {
    Index others = t;
    const std::int64_t x0 = std::int64_t{tiles.along_x.split(others)} * kSide;
    const std::int64_t y0 = std::int64_t{tiles.along_y.split(others)} * kSide;
    const char* from = src;
    char* to = dst;
    outer.move(others, from, to);
    SHMAP_UNROLL
    for (int i = warp; i < kWords; i += kWarps) {
      const std::int64_t x = x0 + 2 * i, y = y0 + 2 * lane;
      if (x >= tiles.x || y >= tiles.y) continue;
      const char* const at = from + x * tiles.src_x + 2 * y;
      const auto left = *reinterpret_cast<const std::uint32_t*>(at);
      const auto right = *reinterpret_cast<const std::uint32_t*>(at + tiles.src_x);
      const std::uint32_t upper = (left & 0xffffu) | right << 16;
      const std::uint32_t lower = left >> 16 | (right & 0xffff0000u);
      words[2 * lane + second][i] = second != 0 ? lower : upper;
      words[2 * lane + 1 - second][i] = second != 0 ? upper : lower;
    }
    __syncthreads();
    SHMAP_UNROLL
    for (int k = warp; k < kSide; k += kWarps) {
      const std::int64_t x = x0 + 2 * lane, y = y0 + k;
      if (x < tiles.x && y < tiles.y)
        *reinterpret_cast<std::uint32_t*>(to + y * tiles.dst_y + 2 * x) = words[k][lane];
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

// The dim along which src is contiguous, if dst is contiguous along another dim and both are long
// enough for tiles; 0 if there is none.
int tiled_dim(const CopyPlan& plan) {
  constexpr std::int64_t kShortest = 8;  // tiles would be mostly empty
  if (plan.rank < 2 || plan.itemsize > 8 || plan.dst_stride[0] != plan.itemsize) return 0;
  if (plan.src_stride[0] == plan.itemsize || plan.extent[0] < kShortest) return 0;
  for (int d = 1; d < plan.rank; ++d)
    if (plan.src_stride[d] == plan.itemsize && plan.extent[d] >= kShortest) return d;
  return 0;
}

// True if every two neighbouring items of two bytes can be accessed as one word.
bool in_pairs(const CopyPlan& plan, int y) {
  std::uint64_t all = reinterpret_cast<std::uintptr_t>(plan.src) |
                      reinterpret_cast<std::uintptr_t>(plan.dst) |
                      static_cast<std::uint64_t>(2 * plan.extent[0]) |
                      static_cast<std::uint64_t>(2 * plan.extent[y]);
  for (int d = 0; d < plan.rank; ++d) {
    if (d != 0) all |= static_cast<std::uint64_t>(plan.dst_stride[d]);
    if (d != y) all |= static_cast<std::uint64_t>(plan.src_stride[d]);
  }
  return plan.itemsize == 2 && all % 4 == 0;
}

template <class Item>
void run_tiles(const CopyPlan& plan, int y, void* stream) {
  const auto tiles_of = [](std::int64_t n) { return (n + kTile<Item> - 1) / kTile<Item>; };
  const std::int64_t along_x = tiles_of(plan.extent[0]), along_y = tiles_of(plan.extent[y]);
  std::int64_t count = along_x * along_y;
  for (int d = 1; d < plan.rank; ++d)
    if (d != y) count *= plan.extent[d];
  with_index(count, [&]<class Index>(Index) {
    Tiles<Index> tiles;
    tiles.x = plan.extent[0];
    tiles.y = plan.extent[y];
    tiles.src_x = plan.src_stride[0];
    tiles.dst_y = plan.dst_stride[y];
    tiles.along_x = FastDiv<Index>(along_x);
    tiles.along_y = FastDiv<Index>(along_y);
    Walk<Index> outer{};
    for (int d = 1; d < plan.rank; ++d)
      if (d != y) outer.add(plan, d);
    const auto run = [&](const char* name, auto kernel) {
      launch(name, kernel, grid_for(count, 1), dim3(kThreads), stream, static_cast<Index>(count),
             plan.src, plan.dst, tiles, outer);
    };
    if constexpr (sizeof(Item) == 2) {
      if (in_pairs(plan, y)) return run("copy_tiles_of_pairs", copy_tiles_of_pairs<Index>);
    }
    run("copy_tiles", copy_tiles<Item, Index>);
  });
}

// Copies up to kMostBoxes boxes.
void run_boxes(const CopyPlan& plan, const void* const* src, void* const* dst, int n,
               void* stream) {
  BoxAddresses boxes{};
  for (int i = 0; i < n; ++i) {
    boxes.src[i] = static_cast<const char*>(src[i]);
    boxes.dst[i] = static_cast<char*>(dst[i]);
  }
  with_item(plan.itemsize, [&]<class Item>() {
    with_index(plan.items, [&]<class Index>(Index) {
      Walk<Index> dims{};
      for (int d = 0; d < plan.rank; ++d) dims.add(plan, d);
      dim3 grid = grid_for(plan.items);
      grid.y = static_cast<unsigned>(n);
      launch("copy_items_of_boxes", copy_items_of_boxes<Item, Index>, grid, dim3(kThreads), stream,
             static_cast<Index>(plan.items), boxes, dims);
    });
  });
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
  if (plan.contiguous()) return copy_bytes(plan.dst, plan.src, plan.items * plan.itemsize, stream);
  const int y = tiled_dim(plan);
  if (y == 0) return run_items(plan, stream);
  const bool known =
      with_bits(plan.itemsize, [&]<class Item>() { run_tiles<Item>(plan, y, stream); });
  check_launched("copy_strided", known);
}

void copy_strided_boxes(const StridedCopy& box, const void* const* src, void* const* dst, int n,
                        void* stream) {
  for (int d = 0; d < box.rank; ++d)
    if (box.extent[d] == 0) return;
  // A plan depends on the alignment of the addresses, here of all of them together.
  StridedCopy copy = box;
  std::uintptr_t from = 0, to = 0;
  for (int i = 0; i < n; ++i) {
    from |= reinterpret_cast<std::uintptr_t>(src[i]);
    to |= reinterpret_cast<std::uintptr_t>(dst[i]);
  }
  copy.src = reinterpret_cast<const void*>(from);
  copy.dst = reinterpret_cast<void*>(to);
  const CopyPlan plan = plan_copy(copy);
  if (tiled_dim(plan) != 0) {
    for (int i = 0; i < n; ++i) {
      copy.src = src[i];
      copy.dst = dst[i];
      copy_strided(copy, stream);
    }
    return;
  }
  for (int i = 0; i < n; i += kMostBoxes)
    run_boxes(plan, src + i, dst + i, n - i < kMostBoxes ? n - i : kMostBoxes, stream);
}

}  // namespace shmap::cuda
