// The derivatives of attention as one equation (attention.h): its derivative along tangents, and
// the transpose of that derivative. Both compute the scores of each block again, from the operands
// and the sums that attention keeps; neither stores an array of scores.
#pragma once
#include "core/ops/attention.h"

namespace shmap {

// Operands: attention's operands, its two results (with keeps_sums), then the tangents of those of
// q, k and v that params.tangents lists as 0, 1, 2. Result: the tangent of attention's first
// result. Linear in the tangents.
extern Primitive attention_tangent_p;

// Operands: attention's operands, its two results, the cotangent of the first result. Results: the
// cotangents of q, k and v; those of k and v are summed over the batch dims along which k and v are
// the same.
extern Primitive attention_grad_p;

}  // namespace shmap
