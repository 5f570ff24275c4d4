#include "core/ops/shape_rules.h"

#include <algorithm>

#include "core/base/inline_vector.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"

namespace shmap {

namespace {

bool holds(const IntList& list, std::int64_t v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

Array bind_pad(Array x, Array value, const PadParams& params, SourceLine source) {
  return bind(pad_p, std::move(x), std::move(value), params, source);
}

}  // namespace

// Sums over repeated elements; dims that the broadcast added are removed.
void transpose_broadcast(TransposeCall& call) {
  const auto& p = params_as<BroadcastParams>(call.params);
  const Shape& from = call.in_types[0].dims();
  Dims summed;
  for (int d = 0; d < p.shape.rank(); ++d)
    if (!holds(p.dims, d)) summed.push_back(d);
  for (std::size_t d = 0; d < p.dims.size(); ++d)
    if (from[d] != p.shape[static_cast<std::size_t>(p.dims[d])]) summed.push_back(p.dims[d]);
  std::sort(&summed[0], &summed[0] + summed.size());
  Array x = reduce(reduce_sum_p, call.cotangents[0], summed, false, call.source);
  call.out[0] = bind_reshape(std::move(x), from, call.source);
}

void transpose_reshape(TransposeCall& call) {
  call.out[0] = bind_reshape(call.cotangents[0], call.in_types[0].dims(), call.source);
}

void transpose_transpose(TransposeCall& call) {
  const Dims& permutation = params_as<TransposeParams>(call.params).permutation;
  Dims inverse = permutation;
  for (std::size_t d = 0; d < permutation.size(); ++d)
    inverse[static_cast<std::size_t>(permutation[d])] = static_cast<std::int64_t>(d);
  call.out[0] = bind_transpose(call.cotangents[0], inverse, call.source);
}

void transpose_rev(TransposeCall& call) {
  call.out[0] = bind(rev_p, call.cotangents[0], call.params, call.source);
}

void transpose_concatenate(TransposeCall& call) {
  const auto dim = static_cast<int>(params_as<ConcatenateParams>(call.params).dimension);
  std::int64_t at = 0;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const std::int64_t end = at + call.in_types[i].dims()[static_cast<std::size_t>(dim)];
    if (call.is_linear(i)) call.out[i] = slice_dim(call.cotangents[0], dim, at, end, call.source);
    at = end;
  }
}

// The cotangent at the operand's positions is the operand's; the sum of all others is the padding
// value's.
void transpose_pad(TransposeCall& call) {
  const auto& p = params_as<PadParams>(call.params);
  const Array& ct = call.cotangents[0];
  const ShapedArray &type = call.in_types[0], &padded = node_of(ct)->type;
  const DType dtype = padded.dtype();
  if (call.is_linear(0)) {
    PadParams back;
    Dims zero, limit, stride;
    bool moved = false, between = false;
    for (std::size_t d = 0; d < p.low.size(); ++d) {
      back.low.push_back(-p.low[d]);
      back.high.push_back(-p.high[d]);
      back.interior.push_back(0);
      zero.push_back(0);
      limit.push_back(padded.dims()[d] - p.low[d] - p.high[d]);
      stride.push_back(p.interior[d] + 1);
      moved = moved || p.low[d] != 0 || p.high[d] != 0;
      between = between || p.interior[d] != 0;
    }
    Array x = ct;
    if (moved) x = bind_pad(std::move(x), scalar_of(dtype, 0, call.source), back, call.source);
    if (between) x = bind_slice(std::move(x), zero, limit, stride, call.source);
    call.out[0] = std::move(x);
  }
  if (call.is_linear(1)) {
    // The sum uses a mask. Subtracting the operand's part from the total would cancel digits.
    const ShapedArray mask_type(type.dims(), DType::bool_, false, padded.axes());
    const Array is_padding =
        bind_pad(zeros_of(mask_type, call.source), Array(true), p, call.source);
    Array in[] = {is_padding, scalar_of(dtype, 0, call.source), ct};
    Dims all;
    for (int d = 0; d < padded.rank(); ++d) all.push_back(d);
    call.out[1] =
        reduce(reduce_sum_p, bind(select_n_p, in, no_params, call.source), all, false, call.source);
  }
}

// ---- slices

void jvp_linear_in(JvpCall& call, std::size_t linear) {
  call.run();
  InlineVector<Array, 8> in(call.primals.size());
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = i < linear ? or_zeros(call.tangents[i], call.type(i), call.source) : call.primals[i];
  current_trace().process(call.primitive, in, call.params, call.tangents_out, call.source);
}

void jvp_dynamic_slice(JvpCall& call) { jvp_linear_in(call, 1); }
void jvp_dynamic_update_slice(JvpCall& call) { jvp_linear_in(call, 2); }

// Zeros, with the cotangent at the slice's position.
void transpose_slice(TransposeCall& call) {
  const auto& p = params_as<SliceParams>(call.params);
  const Shape &from = call.in_types[0].dims(), &to = call.out_types[0].dims();
  PadParams pad;
  for (std::size_t d = 0; d < to.size(); ++d) {
    const std::int64_t covered = to[d] > 0 ? (to[d] - 1) * p.strides[d] + 1 : 0;
    pad.low.push_back(p.start_indices[d]);
    pad.high.push_back(from[d] - p.start_indices[d] - covered);
    pad.interior.push_back(to[d] > 1 ? p.strides[d] - 1 : 0);
  }
  const Array zero = scalar_of(call.out_types[0].dtype(), 0, call.source);
  call.out[0] = bind_pad(call.cotangents[0], zero, pad, call.source);
}

void transpose_dynamic_slice(TransposeCall& call) {
  InlineVector<Array, 8> in(call.in.size() + 1);
  in[0] = zeros_of(call.in_types[0], call.source);
  in[1] = call.cotangents[0];
  for (std::size_t i = 1; i < call.in.size(); ++i) in[i + 1] = call.in[i];
  call.out[0] = bind(dynamic_update_slice_p, in, no_params, call.source);
}

// The operand's cotangent is zero at the update's position; the cotangent there is the update's.
void transpose_dynamic_update_slice(TransposeCall& call) {
  const Array& ct = call.cotangents[0];
  if (call.is_linear(0)) {
    InlineVector<Array, 8> in(call.in.size());
    in[0] = ct;
    in[1] = zeros_of(call.in_types[1], call.source);
    for (std::size_t i = 2; i < call.in.size(); ++i) in[i] = call.in[i];
    call.out[0] = bind(dynamic_update_slice_p, in, no_params, call.source);
  }
  if (call.is_linear(1)) {
    InlineVector<Array, 8> in(call.in.size() - 1);
    in[0] = ct;
    for (std::size_t i = 2; i < call.in.size(); ++i) in[i - 1] = call.in[i];
    DynamicSliceParams params;
    params.slice_sizes = call.in_types[1].dims();
    call.out[1] = bind(dynamic_slice_p, in, params, call.source);
  }
}

}  // namespace shmap
