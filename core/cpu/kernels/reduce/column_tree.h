// ColumnTree: reduces the columns of an array whose rows come some at a time; bit for bit the
// result of reduce_kernel for all rows. Groups of eight rows are the leaves of a balanced tree.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/cpu/kernels/elementwise/unary.h"
#include "core/cpu/kernels/reduce/reduce.h"
#include "core/cpu/kernels/reduce/reduce_loops.h"

namespace shmap::cpu {

class ColumnTree {
 public:
  // dtype: any but f16. `cols` >= 64 columns. `memory`: bytes(dtype, rows, cols) bytes for the
  // largest number of rows; owned by the caller. squares: the elements are squared as they are
  // read; for sums of f32 and f64.
  ColumnTree(Reduction op, DType dtype, std::int64_t cols, void* memory, bool squares = false);
  static std::int64_t bytes(DType dtype, std::int64_t rows, std::int64_t cols);

  // in[rows, cols] of the dtype: the next rows; a multiple of eight except in the last call.
  void add(const void* in, std::int64_t rows);
  // Writes out[cols] of reduce_partial_dtype. Needs at least one add() before.
  void finish(void* out);

 private:
  void reduce_group(const std::byte* in, int count, std::byte* out) const;
  void add_leaf();
  std::byte* at(std::int64_t i) const { return memory_ + i * leaf_bytes_; }

  TreeFn pair_;
  TreeFn group_[4] = {};  // kernels for 1 << i rows; a single row is copied
  UnaryFn square_ = nullptr;
  bool half_;
  std::int64_t cols_, row_bytes_, leaf_bytes_;
  std::byte* memory_;
  std::int64_t depth_ = 0;  // number of leaves in memory that hold a subtree
  std::uint64_t leaves_ = 0;
};

// Computes out[cols] of `dtype` from partials[count, cols], the results of ColumnTrees for rows [0,
// n), [n, 2 n), …, where n is a power of two and at least eight.
void reduce_column_partials(Reduction op, DType dtype, const void* partials, std::int64_t count,
                            std::int64_t cols, void* out);

}  // namespace shmap::cpu
