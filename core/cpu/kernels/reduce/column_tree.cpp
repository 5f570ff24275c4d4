#include "core/cpu/kernels/reduce/column_tree.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/cpu/kernels/elementwise/cast.h"

namespace shmap::cpu {

namespace {

std::int64_t leaf_bytes(DType dtype, std::int64_t cols) {
  return (cols * itemsize(reduce_partial_dtype(dtype)) + 63) / 64 * 64;
}

}  // namespace

ColumnTree::ColumnTree(Reduction op, DType dtype, std::int64_t cols, void* memory, bool squares)
    : pair_(tree_kernel(op, reduce_partial_dtype(dtype), 2)),
      half_(dtype == DType::bf16),
      cols_(cols),
      row_bytes_(cols * itemsize(dtype)),
      leaf_bytes_(leaf_bytes(dtype, cols)),
      memory_(static_cast<std::byte*>(memory)) {
  if (squares) square_ = unary_kernel(UnaryOp::square, dtype);
  for (int i = 1; i < 4; ++i)
    group_[i] = squares ? square_tree_kernel(dtype, 1 << i)
                : half_ ? bf16_tree_kernel(op, 1 << i)
                        : tree_kernel(op, dtype, 1 << i);
}

std::int64_t ColumnTree::bytes(DType dtype, std::int64_t rows, std::int64_t cols) {
  const auto leaves = static_cast<std::uint64_t>((rows + 7) / 8);
  return (std::bit_width(leaves) + 2) * leaf_bytes(dtype, cols);
}

void ColumnTree::reduce_group(const std::byte* in, int count, std::byte* out) const {
  if (count == 1) {
    const DType dtype = DType::bf16;
    if (half_) return cast_kernel(dtype, DType::f32)(in, out, cols_);
    if (square_) return square_(in, out, cols_);
    std::memcpy(out, in, static_cast<std::size_t>(row_bytes_));
    return;
  }
  const void* group[8];
  for (int j = 0; j < count; ++j) group[j] = in + j * row_bytes_;
  group_[std::countr_zero(static_cast<unsigned>(count))](group, out, cols_);
}

void ColumnTree::add(const void* in, std::int64_t rows) {
  const auto* a = static_cast<const std::byte*>(in);
  for (; rows >= 8; rows -= 8, a += 8 * row_bytes_) {
    reduce_group(a, 8, at(depth_));
    add_leaf();
  }
  if (rows == 0) return;
  bool first = true;
  for (const int count : {4, 2, 1}) {  // the remaining rows form one leaf
    if (!(rows & count)) continue;
    reduce_group(a, count, at(depth_ + !first));
    if (!first) {
      const void* both[2] = {at(depth_), at(depth_ + 1)};
      pair_(both, at(depth_), cols_);
    }
    first = false;
    a += count * row_bytes_;
  }
  add_leaf();
}

void ColumnTree::add_leaf() {
  ++depth_;
  for (std::uint64_t bit = ++leaves_; bit % 2 == 0; bit /= 2) {
    --depth_;
    const void* both[2] = {at(depth_ - 1), at(depth_)};
    pair_(both, at(depth_ - 1), cols_);
  }
}

void ColumnTree::finish(void* out) {
  for (; depth_ > 1; --depth_) {
    const void* both[2] = {at(depth_ - 2), at(depth_ - 1)};
    pair_(both, at(depth_ - 2), cols_);
  }
  const std::int64_t size = half_ ? std::int64_t{sizeof(float)} : row_bytes_ / cols_;
  std::memcpy(out, at(0), static_cast<std::size_t>(cols_ * size));
  depth_ = 0;
  leaves_ = 0;
}

void reduce_column_partials(Reduction op, DType dtype, const void* partials, std::int64_t count,
                            std::int64_t cols, void* out) {
  const DType computed = reduce_partial_dtype(dtype);
  const std::int64_t size = itemsize(computed), leaf = LeafTree::kLeafBytes / size;
  alignas(64) std::byte result[LeafTree::kLeafBytes];
  for (std::int64_t j = 0; j < cols; j += leaf) {
    const std::int64_t m = std::min(leaf, cols - j);
    LeafTree tree(tree_kernel(op, computed, 2), static_cast<int>(size), m);
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(tree.leaf(), static_cast<const std::byte*>(partials) + (i * cols + j) * size,
                  static_cast<std::size_t>(m * size));
      tree.add();
    }
    tree.finish(result);
    cast_kernel(computed, dtype)(result, static_cast<std::byte*>(out) + j * itemsize(dtype), m);
  }
}

}  // namespace shmap::cpu
