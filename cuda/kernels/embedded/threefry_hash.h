// The hash threefry2x32 (20 rounds, as in JAX) of a count of 64 bits. Compiles as C++20, as CUDA
// and, as text, at run time.
#pragma once
#include "cuda/kernels/embedded/scalar.h"

namespace shmap::cuda {

// A key: an element of dtype prng_key. Also the two words of a hash.
struct Key {
  unsigned int word0, word1;
};

namespace scalar {

template <int r>
SHMAP_FN void threefry_round(Key& x) {
  x.word0 += x.word1;
  x.word1 = (x.word1 << r) | (x.word1 >> (32 - r));
  x.word1 ^= x.word0;
}
SHMAP_FN void threefry_first_four(Key& x) {
  threefry_round<13>(x);
  threefry_round<15>(x);
  threefry_round<26>(x);
  threefry_round<6>(x);
}
SHMAP_FN void threefry_other_four(Key& x) {
  threefry_round<17>(x);
  threefry_round<29>(x);
  threefry_round<16>(x);
  threefry_round<24>(x);
}
SHMAP_FN Key threefry(Key key, unsigned int count0, unsigned int count1) {
  const unsigned int k0 = key.word0, k1 = key.word1, k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  Key x = {count0 + k0, count1 + k1};
  threefry_first_four(x);
  x.word0 += k1;
  x.word1 += k2 + 1u;
  threefry_other_four(x);
  x.word0 += k2;
  x.word1 += k0 + 2u;
  threefry_first_four(x);
  x.word0 += k0;
  x.word1 += k1 + 3u;
  threefry_other_four(x);
  x.word0 += k1;
  x.word1 += k2 + 4u;
  threefry_first_four(x);
  x.word0 += k2;
  x.word1 += k0 + 5u;
  return x;
}

// The random bits at a flat index, as an unsigned type or as two words.
template <class T>
struct RandomBits {
  SHMAP_FN static T of(Key x) { return static_cast<T>(x.word0 ^ x.word1); }
};
template <>
struct RandomBits<unsigned long> {
  SHMAP_FN static unsigned long of(Key x) {
    return static_cast<unsigned long>(x.word0) << 32 | x.word1;
  }
};
template <>
struct RandomBits<Key> {
  SHMAP_FN static Key of(Key x) { return x; }
};
template <class T>
SHMAP_FN T random_bits(Key key, unsigned long index) {
  return RandomBits<T>::of(
      threefry(key, static_cast<unsigned int>(index >> 32), static_cast<unsigned int>(index)));
}

}  // namespace scalar
}  // namespace shmap::cuda
