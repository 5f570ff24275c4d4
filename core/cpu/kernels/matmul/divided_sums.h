// Products of few results and long sums. Cut along the results alone, they would leave most threads
// without work, so their sums are divided into pieces: a piece of k is a product of its own, which
// gives partial results, and the partial results are added in pairs. The pieces depend on dtype,
// sizes and layout, never on the number of threads, and gemm() divides the same products in the
// same way: values have the same bits whoever computes which pieces.
#pragma once
#include "core/cpu/kernels/matmul/gemm.h"

namespace shmap::cpu {

// Shorter sums are not divided; pieces have at least half as many terms.
inline constexpr std::int64_t kShortestDivided = 3072;

// The number of pieces of a product with k >= kShortestDivided.
std::int64_t count_sum_pieces(const Gemm& g);
// The number of pieces into which the sums of g are divided; 1 if they are not.
inline std::int64_t sum_pieces(const Gemm& g) {
  return g.k < kShortestDivided ? 1 : count_sum_pieces(g);
}

// The bytes of the partial results of all pieces. This and the functions below require that
// sum_pieces(g) > 1. A partial result is a double if the product is of f64, and else a float.
std::int64_t partial_results_bytes(const Gemm& g);
// Writes the partial results of pieces [begin, end). Throws std::bad_alloc.
void run_sum_pieces(const Gemm& g, std::int64_t begin, std::int64_t end, void* partials);
// Writes c from all partial results, which it overwrites; half types are rounded once. With
// g.accumulate it adds the whole sums to c.
void finish_sum_pieces(const Gemm& g, void* partials);

// Computes the whole product on the calling thread. Throws std::bad_alloc.
void divided_product(const Gemm& g);

}  // namespace shmap::cpu
