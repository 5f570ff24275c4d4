// ColumnTree: the reduction of columns whose rows come some at a time, with the very bits that
// reduce_kernel gives for all of them: groups of eight rows are leaves of a balanced tree.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/cpu/kernels/reduce.h"
#include "core/cpu/kernels/reduce_parts.h"

namespace shmap::cpu {

class ColumnTree {
 public:
  // dtype: any but f16. Of `cols` columns, at least 64, and at most `rows` rows, in memory of
  // bytes() for these that the caller owns.
  ColumnTree(Reduction op, DType dtype, std::int64_t cols, void* memory);
  static std::int64_t bytes(DType dtype, std::int64_t rows, std::int64_t cols);

  // in[rows, cols] of the dtype: the next rows, a multiple of eight but for the last call.
  void add(const void* in, std::int64_t rows);
  // Writes out[cols] of reduce_partial_dtype; after at least one add().
  void finish(void* out);

 private:
  void reduce_group(const std::byte* in, int count, std::byte* out) const;
  void add_leaf();
  std::byte* at(std::int64_t i) const { return memory_ + i * leaf_bytes_; }

  TreeFn pair_;
  TreeFn group_[4] = {};  // of 1 << i rows; that of one row is a copy
  bool half_;
  std::int64_t cols_, row_bytes_, leaf_bytes_;
  std::byte* memory_;
  std::int64_t depth_ = 0;  // leaves' places that hold a subtree
  std::uint64_t leaves_ = 0;
};

// out[cols] of `dtype` from the ColumnTrees' results for rows [0, n), [n, 2 n), … of a power of two
// n of at least eight: partials[count, cols].
void reduce_column_partials(Reduction op, DType dtype, const void* partials, std::int64_t count,
                            std::int64_t cols, void* out);

}  // namespace shmap::cpu
