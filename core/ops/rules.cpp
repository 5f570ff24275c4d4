#include "core/ops/rules.h"

#include "core/ops/elementwise.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "shmap/ops.h"

namespace shmap {

bool is_differentiable(DType dtype) { return is_floating(dtype); }

std::int64_t view_whole(const ShapedArray&, const Params&, const ShapedArray&) { return 0; }

Array zeros_of(const ShapedArray& type, SourceLine source) {
  Array x;
  if (type.dtype() == DType::prng_key) {
    Shape words = type.dims();
    words.push_back(2);
    x = bind(random_wrap_p, zeros(words, DType::u32, source), no_params, source);
  } else {
    x = zeros(type.dims(), type.dtype(), source);
  }
  return type.axes().empty() ? x : cast_to_varying(x, type.axes(), source);
}

Array or_zeros(const Array& x, const ShapedArray& type, SourceLine source) {
  return x.node() ? x : zeros_of(type, source);
}

Array add_tangents(const Array& a, const Array& b, SourceLine source) {
  if (!a.node()) return b;
  if (!b.node()) return a;
  return bind(add_p, a, b, no_params, source);
}

Array unbroadcast(const Array& cotangent, const ShapedArray& operand, SourceLine source) {
  const ShapedArray& type = node_of(cotangent)->type;
  if (operand.rank() != 0 || type.rank() == 0) return cotangent;
  Dims all;
  for (int d = 0; d < type.rank(); ++d) all.push_back(d);
  return reduce(reduce_sum_p, cotangent, all, false, source);
}

void jvp_zero(JvpCall& call) { call.run(); }

void jvp_linear(JvpCall& call) {
  call.run();
  InlineVector<Array, 4> in(call.primals.size());
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = or_zeros(call.tangents[i], call.type(i), call.source);
  current_trace().process(call.primitive, in, call.params, call.tangents_out, call.source);
}

void jvp_bilinear(JvpCall& call) {
  call.run();
  for (std::size_t i = 0; i < 2; ++i) {
    if (!call.has_tangent(i)) continue;
    Array in[2] = {call.primals[0], call.primals[1]};
    in[i] = call.tangents[i];
    call.tangents_out[0] = add_tangents(
        call.tangents_out[0],
        shmap::bind(call.primitive, std::span<Array>(in), call.params, call.source), call.source);
  }
}

}  // namespace shmap
