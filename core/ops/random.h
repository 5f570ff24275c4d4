// The primitives of random numbers: threefry2x32, the counter-based generator of Salmon et al.
// ("Parallel random numbers: as easy as 1, 2, 3", SC 2011), in the use that JAX makes of it. A key
// is one element of dtype prng_key: its two words, in memory the first one first.
//
// What stands at flat index i of an array of random bits depends on the key and on i alone: it is
// the hash of the two words of i (JAX's partitionable mode). So any block of the array can be made
// without the rest of it, and no counts are ever stored.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

// RandomBitsParams. Operands: keys, and where a block is made the flat index of its first element
// (i64, a scalar or one for each key). Result: for each key an array of `shape`.
extern Primitive random_bits_p;
// RandomSplitParams: keys. Result: for each key new keys of `shape`, at i the hash of i.
extern Primitive random_split_p;
// Keys and u32 numbers, of one shape or scalars: the hash of each number.
extern Primitive random_fold_in_p;
// u32[..., 2] as keys [...], and back: views.
extern Primitive random_wrap_p;
extern Primitive random_unwrap_p;
// The hash itself: two words of a key and two of a count, u32, of one shape or scalars; two
// results.
extern Primitive threefry2x32_p;

struct RandomBitsParams : ParamsOf<RandomBitsParams> {
  std::int64_t bit_width = 32;  // 8, 16, 32 or 64
  Shape of;                     // of the whole array where a block of it is made; else empty
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

// Where the elements of a block stand in the whole array: element i of the block is element
// first + index(i) of the whole one. Dims that are whole are put together.
struct RandomBlock {
  RandomBlock(const Shape& shape, const Shape& of);

  int rank = 1;                                          // at least 1
  std::int64_t extent[kMaxRank] = {1};                   // of the block
  std::int64_t stride[kMaxRank] = {1};                   // in the whole array; the last one is 1
  std::int64_t run() const { return extent[rank - 1]; }  // neighbours here and there
  std::int64_t index(std::int64_t i) const {
    std::int64_t at = 0;
    for (int d = rank; d-- > 0; i /= extent[d]) at += i % extent[d] * stride[d];
    return at;
  }
};

// Binds random_bits of a whole array; keys of rank 0 or more.
Array bind_random_bits(Array keys, std::int64_t bit_width, const Shape& shape, SourceLine source);

}  // namespace shmap
