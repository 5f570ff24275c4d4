// lax.scatter and its kin, in place: each window of `updates` is combined into `operand` at the
// start that one row of `indices` holds. All arrays are row-major and contiguous; the last dim of
// `indices` is the index vector. With `operand` a copy of the original this is lax.scatter_*.
//
// Windows are applied in row-major order of the scatter dims, also where they overlap: `set` leaves
// the last one, and floating-point sums have one order. f16 and bf16 are rounded after every
// addition.
#pragma once
#include <cstdint>

#include "core/cpu/kernels/gather.h"
#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::cpu {

enum class ScatterOp : std::uint8_t { set, add, mul, min, max };

struct ScatterDims {
  IntList update_window_dims;            // sorted
  IntList inserted_window_dims;          // sorted
  IntList scatter_dims_to_operand_dims;  // the operand dim of each entry of an index vector
  IntList operand_batching_dims, indices_batching_dims;
};

struct Scatter {
  ScatterOp op = ScatterOp::set;
  ScatterDims dims;
  DType dtype = f32;  // of operand and updates; bool_ adds as "or" and multiplies as "and"
  Shape operand_shape, indices_shape, updates_shape;
  DType index_dtype = i32;  // any integer type
  IndexMode mode = IndexMode::fill_or_drop;
  bool from_end = false;  // as Gather's
  void* operand = nullptr;
  const void* indices = nullptr;
  const void* updates = nullptr;
};

void scatter(const Scatter& s);
// Parts hold disjoint elements of `operand`, so that they may run at once and give the same bits.
int scatter_parts(const Scatter& s, int workers);
void scatter_part(const Scatter& s, int part, int parts);
// Copies what scatter_part of the same part will write to from `original` to s.operand: all parts
// together copy the whole array.
void copy_scatter_part(const Scatter& s, const void* original, int part, int parts);

}  // namespace shmap::cpu
