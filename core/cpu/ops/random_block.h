// Random bits for a block of an array (core/ops/random.h), for one thread.
#pragma once
#include <cstdint>

#include "core/cpu/kernels/random/threefry.h"
#include "core/ops/random.h"

namespace shmap::cpu {

// Writes elements [at, at + n) of the block, each of `itemsize` bytes; the block's element 0 is
// element `first` of the whole array. `key`: two words. `around`: see threefry_bits.
void threefry_block(DType to, const std::uint32_t* key, const RandomBlock& block,
                    std::int64_t first, std::int64_t at, std::byte* out, std::int64_t n,
                    int itemsize, bool around = false);

// The same elements for each of several keys: `keys.first` are the elements' indices in the whole
// array of the block's element 0, and `keys.out` the first element of each key's.
void threefry_blocks(DType to, ThreefryKeys keys, const RandomBlock& block, std::int64_t at,
                     std::int64_t n, int itemsize, bool around = false);

}  // namespace shmap::cpu
