// Kernels of which reductions and reducing collectives consist, for bool, integers, f32 and f64
// (callers widen the half types to f32). nullptr if the dtype has no such op.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/cpu/kernels/reduce/reduce.h"

namespace shmap::cpu {

// Reduces n >= 1 contiguous elements to one, in an order that depends on n alone.
using RunFn = void (*)(const void* in, std::int64_t n, void* out);
RunFn run_kernel(Reduction op, DType dtype);

// Writes one element, the result for no elements, of a dtype that has run_kernel(op, dtype).
void write_identity(Reduction op, DType dtype, void* out);

// Reduces in[rows, n] to out[rows]: each row as run_kernel would, but many rows at a time if they
// are shorter than short_row(dtype). n >= 1.
using RowsFn = void (*)(const void* in, std::int64_t rows, std::int64_t n, void* out);
RowsFn rows_kernel(Reduction op, DType dtype);
constexpr std::int64_t short_row(std::int64_t itemsize) { return itemsize == 8 ? 32 : 64; }
constexpr std::int64_t short_row(DType dtype) { return short_row(itemsize(dtype)); }

// out[i] = the balanced binary tree over in[0][i] … in[k - 1][i], neighbours first; k is 2, 4, 8
// or 16. `out` may be one of the inputs.
using TreeFn = void (*)(const void* const* in, void* out, std::int64_t n);
TreeFn tree_kernel(Reduction op, DType dtype, int k);
// A TreeFn from bf16 to f32, which widens elements as it reads them; for sum, prod, max and min.
TreeFn bf16_tree_kernel(Reduction op, int k);
// A TreeFn that adds the squares of the elements; for f32 and f64, else nullptr.
TreeFn square_tree_kernel(DType dtype, int k);

// Scratch memory of a thread for reductions, too large for the stack of a thread. Each member has
// one user at a time: no function that uses a member calls another one that uses it.
struct ReduceScratch {
  static constexpr std::int64_t kLeafBytes = 2048;  // a leaf has as many elements as fit
  static constexpr std::int64_t kPiece = 4096;      // elements of half types, widened at a time
  static constexpr int kDepth = 48;
  alignas(64) std::byte leaves[kDepth * kLeafBytes];  // for a LeafTree
  alignas(64) std::byte group[8][kLeafBytes];         // the rows that are combined to one leaf
  alignas(64) float piece[kPiece];
};
// The calling thread's scratch memory. Throws std::bad_alloc.
ReduceScratch& reduce_scratch();

// A balanced tree over leaves of m elements that arrive one after another. It uses the thread's
// buffers, so that there is one tree at a time. Neighbours are combined as soon as both exist. The
// number of leaves need not be a power of two: at the end the rest is combined from the last leaf
// back.
class LeafTree {
 public:
  static constexpr std::int64_t kLeafBytes = ReduceScratch::kLeafBytes;

  LeafTree(TreeFn pair, int itemsize, std::int64_t m);
  // The memory for the next leaf; call before add().
  void* leaf() { return buffers_ + depth_ * kLeafBytes; }
  void add();
  // Writes the result to `out`, which may be leaf() of the first leaf or an input of the last.
  // Needs at least one add() before.
  void finish(void* out);

 private:
  TreeFn pair_;
  std::int64_t m_, bytes_;
  std::int64_t depth_ = 0;  // number of buffers that hold a subtree
  std::uint64_t leaves_ = 0;
  std::byte* const buffers_ = reduce_scratch().leaves;
};

}  // namespace shmap::cpu
