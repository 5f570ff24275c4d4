// The primitives of random numbers: threefry2x32, the counter-based generator of Salmon et al.
// ("Parallel random numbers: as easy as 1, 2, 3", SC 2011), as JAX uses it. A key is one element of
// dtype prng_key: two words, the first of which comes first in memory.
//
// The value at flat index i of an array of random bits depends only on the key and on i: it is the
// hash of the two words of i (JAX's partitionable mode). Therefore any block of the array can be
// computed without the rest, and counts are never stored.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

// RandomBitsParams. Operands: keys and, to compute a block, the flat index of its first element
// (i64, a scalar or one for each key). Result: for each key an array of `shape`.
extern Primitive random_bits_p;
// RandomSplitParams. Operand: keys. Result: for each key new keys of `shape`; key i is the hash of
// i.
extern Primitive random_split_p;
// Operands: keys and u32 numbers, of one shape or scalars. Result: for each number its hash, a new
// key.
extern Primitive random_fold_in_p;
// Conversions of words u32[..., 2] to keys [...] and back: views.
extern Primitive random_wrap_p;
extern Primitive random_unwrap_p;
// The hash. Operands: two words of a key and two words of a count, u32, of one shape or scalars.
// Two results.
extern Primitive threefry2x32_p;

struct RandomBitsParams : ParamsOf<RandomBitsParams> {
  std::int64_t bit_width = 32;  // 8, 16, 32 or 64
  // the shape of the whole array, where a block is computed; otherwise empty
  Shape of;
  Shape shape;
  void visit(ParamVisitor& v) const override {
    v.value("bit_width", bit_width);
    if (!of.empty()) v.value("of", of);
    v.value("shape", shape);
  }
};
struct RandomSplitParams : ParamsOf<RandomSplitParams> {
  Shape shape;
  void visit(ParamVisitor& v) const override { v.value("shape", shape); }
};

// Maps indices of a block to flat indices of the whole array: element i of the block is element
// first + index(i) of the array. Dims that are whole are merged.
struct RandomBlock {
  RandomBlock(const Shape& shape, const Shape& of);

  int rank = 1;                                          // at least 1
  std::int64_t extent[kMaxRank] = {1};                   // of the block
  std::int64_t stride[kMaxRank] = {1};                   // in the whole array; the last one is 1
  std::int64_t run() const { return extent[rank - 1]; }  // the elements of a contiguous run
  std::int64_t index(std::int64_t i) const {
    std::int64_t at = 0;
    for (int d = rank; d-- > 0; i /= extent[d]) at += i % extent[d] * stride[d];
    return at;
  }
};

// Binds random_bits for a whole array; keys may have any rank.
Array bind_random_bits(Array keys, std::int64_t bit_width, const Shape& shape, SourceLine source);

}  // namespace shmap
