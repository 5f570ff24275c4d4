// lax.scatter and its kin, in place: each window of `updates` is combined into `operand` at the
// start that one row of `indices` holds (core/base/slices.h). With `operand` a copy of the original
// this is lax.scatter_*.
//
// Windows are applied in row-major order of the scatter dims, also where they overlap: `set` leaves
// the last one, and floating-point sums have one order. f16 and bf16 are rounded after every
// addition. Where many single elements are added to few (a histogram), the updates are cut into
// blocks: the first block is added to the operand, and then the sums of each further block. The
// number of blocks depends on the shapes alone.
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
// Parts write disjoint elements of `operand`, so that they may run at once and give the same bits.
int scatter_parts(const Scatter& s, int workers);
void scatter_part(const Scatter& s, int part, int parts);
// The number of blocks into which the updates are cut; 1 if they are added one by one. Several
// blocks run in one of two ways, with the same bits. Either part 0 of scatter_part does them all.
// Or calls of scatter_to_sums, which may run at once, compute the sums of the blocks [begin, end),
// and then one call of add_scatter_sums adds the sums up and writes s.operand. `sums` has room for
// the operand once for each block; the sums of block 0 start from `original`.
std::int64_t scatter_block_count(const Scatter& s);
void scatter_to_sums(const Scatter& s, const void* original, std::int64_t begin, std::int64_t end,
                     void* sums);
void add_scatter_sums(const Scatter& s, const void* sums);
// Copies from `original` to s.operand the elements to which scatter_part of the same part will
// write. All parts together copy the whole array.
void copy_scatter_part(const Scatter& s, const void* original, int part, int parts);

}  // namespace shmap::cpu
