// lax.scatter and its kin, in place: each window of `updates` is combined into `operand` at the
// start that one row of `indices` holds (core/base/slices.h). With `operand` a copy of the original
// this is lax.scatter_*.
//
// Windows are applied in row-major order of the scatter dims, also where they overlap: `set` leaves
// the last one, and floating-point sums have one order. f16 and bf16 are rounded after every
// addition.
#pragma once
#include <cstdint>

#include "core/base/slices.h"

namespace shmap::cpu {

struct Scatter : Slices {
  ScatterKind op = ScatterKind::set;
  DType dtype = f32;  // of operand and updates; bool_ adds as "or" and multiplies as "and"
  void* operand = nullptr;
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
