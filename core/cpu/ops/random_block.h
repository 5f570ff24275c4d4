// The numbers of a block of an array of random bits (core/ops/random.h), for one thread.
#pragma once
#include <cstdint>

#include "core/cpu/kernels/threefry.h"
#include "core/ops/random.h"

namespace shmap::cpu {

// What elements of an unsigned dtype, or of prng_key, are made of.
ThreefryOut threefry_out(DType dtype);

// Elements [at, at + n) of the block, whose element 0 is element `first` of the whole array, each
// of `itemsize` bytes. `key`: two words. `around`: see threefry_bits.
void threefry_block(ThreefryOut to, const std::uint32_t* key, const RandomBlock& block,
                    std::int64_t first, std::int64_t at, std::byte* out, std::int64_t n,
                    int itemsize, bool around = false);

}  // namespace shmap::cpu
