// Products of a matrix and a vector in one pass over the matrix, which is all that they read once:
// the blocked kernels, made to use each element often, reach a third of the memory's rate in them,
// and less where they first bring half types into f32.
#pragma once
#include "core/cpu/kernels/gemm.h"

namespace shmap::cpu {

// Whether g is one that vector_product takes: of floats, m or n is 1, and, where sums run across
// the matrix's rows, there are enough of them side by side. Never on a CPU without AVX2.
bool is_vector_product(const Gemm& g);

// The product on the calling thread, is_vector_product(g) and k > 0. Each result is the sum of all
// products of its row or column in an order that depends on k alone, not on its neighbours, so that
// cutting the matrix along the results changes no bit; half types are added up in f32 and rounded
// once; with g.accumulate the whole sum is added to c once. Throws std::bad_alloc.
void vector_product(const Gemm& g);

// A few long sums (a dot product is one) by several threads, with the very bits of vector_product:
// each block of kSumBlock of the k gives a partial sum of every result, and these are added in
// pairs. A partial is a double where the product is of f64, and a float otherwise.
inline constexpr std::int64_t kSumBlock = 65536;
inline constexpr std::int64_t sum_block_count(std::int64_t k) {
  return (k + kSumBlock - 1) / kSumBlock;
}
// Whether g is a vector product that is better cut along its sums than along its results.
bool has_long_sums(const Gemm& g);
// Bytes of all partials of has_long_sums(g).
std::int64_t long_sums_bytes(const Gemm& g);
// Writes the partials of blocks [begin, end). Throws std::bad_alloc.
void sum_blocks(const Gemm& g, std::int64_t begin, std::int64_t end, void* partials);
// Writes c from all partials, which it overwrites.
void finish_long_sums(const Gemm& g, void* partials);

}  // namespace shmap::cpu
