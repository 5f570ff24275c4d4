// Transposition of dot_general: a product of the cotangent with the other operand.
#include <algorithm>
#include <vector>

#include "core/ops/dot.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/ops/shape_rules.h"
#include "shmap/error.h"

namespace shmap {

namespace {

// The dims of one operand of the product.
struct Side {
  const Dims &contracting, &batch;
  Dims free;
};

Side side_of(const DotParams& p, const TransposeCall& call, std::size_t i) {
  const Dims& contracting = i == 0 ? p.lhs_contracting : p.rhs_contracting;
  const Dims& batch = i == 0 ? p.lhs_batch : p.rhs_batch;
  return {contracting, batch, free_dims(call.in_types[i].rank(), contracting, batch)};
}

Array cotangent_of(const TransposeCall& call, std::size_t i) {
  const auto& p = params_as<DotParams>(call.params);
  const Side mine = side_of(p, call, i), other = side_of(p, call, 1 - i);
  // The dims of the cotangent: batch dims, free dims of lhs, free dims of rhs.
  Dims ct_batch, ct_mine, ct_other;
  std::int64_t at = 0;
  for (std::size_t d = 0; d < mine.batch.size(); ++d) ct_batch.push_back(at++);
  for (std::size_t k = 0; k < 2; ++k) {
    Dims& dims = k == i ? ct_mine : ct_other;
    for (std::size_t d = 0; d < (k == i ? mine : other).free.size(); ++d) dims.push_back(at++);
  }
  // The product has the other operand's contracted dims in that operand's order; this order maps
  // them to this operand's dims.
  std::vector<std::size_t> order(other.contracting.size());
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return other.contracting[a] < other.contracting[b];
  });
  const auto permutation = [&](bool cotangent_first) {
    std::vector<std::int64_t> dims(mine.batch.begin(), mine.batch.end());
    const auto contracted = [&] {
      for (std::size_t k : order) dims.push_back(mine.contracting[k]);
    };
    if (!cotangent_first) contracted();
    dims.insert(dims.end(), mine.free.begin(), mine.free.end());
    if (cotangent_first) contracted();
    std::vector<std::int64_t> inverse(dims.size());
    for (std::size_t d = 0; d < dims.size(); ++d)
      inverse[static_cast<std::size_t>(dims[d])] = static_cast<std::int64_t>(d);
    return Dims(inverse);
  };
  // Chooses the order of the two factors whose product has its dims in this operand's order, so
  // that no transposition moves data.
  const bool cotangent_first = is_identity(permutation(true)) || !is_identity(permutation(false));
  DotParams back;
  (cotangent_first ? back.lhs_batch : back.rhs_batch) = ct_batch;
  (cotangent_first ? back.rhs_batch : back.lhs_batch) = other.batch;
  (cotangent_first ? back.lhs_contracting : back.rhs_contracting) = ct_other;
  (cotangent_first ? back.rhs_contracting : back.lhs_contracting) = other.free;
  // Where the result is wider than the operands, the other operand is widened to the cotangent's
  // dtype, and the product is rounded to the operand's dtype once.
  const DType dtype = call.in_types[i].dtype();
  Array ct = call.cotangents[0];
  Array y = convert(call.in[1 - i], node_of(ct)->type.dtype(), call.source);
  Array x = cotangent_first ? bind_dot(std::move(ct), std::move(y), back, call.source)
                            : bind_dot(std::move(y), std::move(ct), back, call.source);
  x = bind_transpose(std::move(x), permutation(cotangent_first), call.source);
  return convert(std::move(x), dtype, call.source);
}

}  // namespace

void transpose_dot(TransposeCall& call) {
  if (call.is_linear(0) && call.is_linear(1)) {
    throw TypeError(
        "dot_general cannot be transposed in both operands at once: it is linear in each, and not "
        "in both together; transpose the function in one of them" +
        at_line(call.source));
  }
  for (std::size_t i = 0; i < 2; ++i)
    if (call.is_linear(i)) call.out[i] = cotangent_of(call, i);
}

}  // namespace shmap
