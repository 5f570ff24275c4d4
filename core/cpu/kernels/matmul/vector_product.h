// Products of a matrix and a vector that read the matrix once. The blocked kernels, which are made
// to use each element often, reach a third of the memory's rate in such products, and less if they
// convert half types to f32 first.
#pragma once
#include "core/cpu/kernels/matmul/gemm.h"

namespace shmap::cpu {

// True if vector_product takes g: the dtype is a float, m or n is 1, and, if sums run across the
// matrix's rows, there are enough of them side by side. Always false on a CPU without AVX2.
bool is_vector_product(const Gemm& g);

// Computes the product on the calling thread; needs is_vector_product(g) and k > 0. Each result is
// the sum of all products of its row or column in an order that depends on k alone, so that cutting
// the matrix along the results changes no bit. Half types are added up in f32 and rounded once;
// with g.accumulate the whole sum is added to c once. Throws std::bad_alloc.
void vector_product(const Gemm& g);

// Computes a few long sums (a dot product is one) by several threads, with the bits of
// vector_product: each block of kSumBlock of k gives a partial sum of every result, and the partial
// sums are added in pairs. A partial sum is a double if the product is of f64, and else a float.
inline constexpr std::int64_t kSumBlock = 65536;
inline constexpr std::int64_t sum_block_count(std::int64_t k) {
  return (k + kSumBlock - 1) / kSumBlock;
}
// True if g is a vector product that is better cut along its sums than along its results.
bool has_long_sums(const Gemm& g);
// The bytes of all partial sums; requires has_long_sums(g).
std::int64_t long_sums_bytes(const Gemm& g);
// Writes the partial sums of blocks [begin, end). Throws std::bad_alloc.
void sum_blocks(const Gemm& g, std::int64_t begin, std::int64_t end, void* partials);
// Writes c from all partial sums, which it overwrites.
void finish_long_sums(const Gemm& g, void* partials);

// The dtype in which products of floats are summed: f64 for f64, else f32.
inline DType sum_type(const Gemm& g) { return g.dtype == f64 ? f64 : f32; }
// Adds all rows of partials[rows, n], of the sum type, into row 0, in pairs: the upper half of the
// rows is added to the lower half, again and again.
void add_in_pairs(const Gemm& g, void* partials, std::int64_t rows, std::int64_t n);

}  // namespace shmap::cpu
