// Random bits and keys by the hash threefry2x32, enqueued on a stream.
#pragma once
#include <cstdint>

#include "cuda/kernels/launch/operand.h"
#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::cuda {

// For each of `keys` keys an array of `size` elements. The flat index of element i in the whole
// array is first + the sum over dims of (coordinate of i) * stride; with one dim it is first + i.
struct RandomFill {
  DType dtype = DType::u32;  // u8, u16, u32, u64, or prng_key: both words of each hash
  std::int64_t keys = 1, size = 0;
  int rank = 1;  // at least 1, the last dim's stride 1
  std::int64_t extent[kMaxRank] = {}, stride[kMaxRank] = {};
  Operand key;    // `whole`: one for each key; `scalar`, `literal`: one key
  Operand first;  // i64; as `key`; data null: 0
  void* out = nullptr;
};
void random_fill(const RandomFill& fill, void* stream);

// out[i] = the hash of (0, data[i]) under key[i], as a key.
void random_fold_in(Operand key, Operand data, void* out, std::int64_t n, void* stream);

// out0[i], out1[i] = the hash of (x0[i], x1[i]) under (k0[i], k1[i]); all are u32.
void threefry_pairs(Operand k0, Operand k1, Operand x0, Operand x1, void* out0, void* out1,
                    std::int64_t n, void* stream);

}  // namespace shmap::cuda
