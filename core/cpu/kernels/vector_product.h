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

}  // namespace shmap::cpu
