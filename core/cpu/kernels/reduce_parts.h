// The kernels that reductions and reducing collectives are put together from; bool, integers, f32
// and f64 (the half types are widened to f32 by their callers). nullptr where the dtype has no such
// op.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/cpu/kernels/reduce.h"

namespace shmap::cpu {

// One element from n >= 1 contiguous ones, in an order that depends on n alone.
using RunFn = void (*)(const void* in, std::int64_t n, void* out);
RunFn run_kernel(Reduction op, DType dtype);

// Writes one element, the reduction of no elements; of a dtype that has run_kernel(op, dtype).
void write_identity(Reduction op, DType dtype, void* out);

// in[rows, n] -> out[rows]: each row as run_kernel would, many rows at a time. 1 <= n <
// short_row(dtype).
using RowsFn = void (*)(const void* in, std::int64_t rows, std::int64_t n, void* out);
RowsFn rows_kernel(Reduction op, DType dtype);
constexpr std::int64_t short_row(DType dtype) { return itemsize(dtype) == 8 ? 32 : 64; }

// out[i] = the balanced binary tree over in[0][i] … in[k - 1][i], neighbours first; k is 2, 4 or 8.
// `out` may be one of the inputs.
using TreeFn = void (*)(const void* const* in, void* out, std::int64_t n);
TreeFn tree_kernel(Reduction op, DType dtype, int k);
// The same from bf16 to f32, widened as it is read; sum, prod, max and min.
TreeFn bf16_tree_kernel(Reduction op, int k);

// What a thread keeps for reductions, which would be too large for the stack of a small thread.
// Each part is for one use at a time: a kernel hands it to no other.
struct ReduceScratch {
  static constexpr std::int64_t kLeafBytes = 2048;  // as many elements as fit in it are a leaf
  static constexpr std::int64_t kPiece = 4096;      // elements of half types, widened at a time
  static constexpr int kDepth = 48;
  alignas(64) std::byte leaves[kDepth * kLeafBytes];  // of a LeafTree
  alignas(64) std::byte group[8][kLeafBytes];         // what is combined to one leaf
  alignas(64) float piece[kPiece];
};
// The calling thread's. Throws std::bad_alloc.
ReduceScratch& reduce_scratch();

// A balanced tree over leaves that come one after another, of m elements each in the thread's
// buffers, so one tree at a time: neighbours are combined as soon as both are there. The leaves
// need not be a power of two; those left over are combined from the last one back.
class LeafTree {
 public:
  static constexpr std::int64_t kLeafBytes = ReduceScratch::kLeafBytes;

  LeafTree(TreeFn pair, int itemsize, std::int64_t m);
  // Where the next leaf is to be written, before add().
  void* leaf() { return buffers_ + depth_ * kLeafBytes; }
  void add();
  // Writes the result to `out`, which may be leaf() of the first leaf or an input of the last;
  // after at least one add().
  void finish(void* out);

 private:
  TreeFn pair_;
  std::int64_t m_, bytes_;
  std::int64_t depth_ = 0;  // buffers that hold a subtree
  std::uint64_t leaves_ = 0;
  std::byte* const buffers_ = reduce_scratch().leaves;
};

}  // namespace shmap::cpu
