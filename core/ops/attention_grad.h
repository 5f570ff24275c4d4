// What attention is differentiated with, where it is one equation (attention.h): its derivative
// along tangents, and that one's transpose. Both compute the scores of each block again, from
// AttentionParams and from the sums that attention keeps; neither makes an array of them.
#pragma once
#include "core/ops/attention.h"

namespace shmap {

// Operands: attention's, its two results (with keeps_sums), then the tangents of those of q, k and
// v that params.tangents lists as 0, 1, 2. Result: the tangent of attention's first result. Linear
// in the tangents.
extern Primitive attention_tangent_p;

// Operands: attention's, its two results, the first one's cotangent. Results: the cotangents of q,
// k and v; those of k and v are summed over the batch dims along which they are the same.
extern Primitive attention_grad_p;

}  // namespace shmap
