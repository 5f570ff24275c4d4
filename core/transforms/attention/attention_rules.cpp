// The rules of attention and of its derivatives as equations: forward mode, reverse mode, vmap.
//
// Derivatives without a kernel are those of the loop over blocks of rows: derivatives with respect
// to the bias, and second derivatives.
#include <utility>
#include <vector>

#include "core/ops/attention_grad.h"
#include "core/ops/batch_rules.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"
#include "core/transforms/attention/attention_rows.h"
#include "shmap/jvp.h"
#include "shmap/linearize.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

using Arrays = std::vector<Array>;

const AttentionParams& params_of(const Params& params) {
  return params_as<AttentionParams>(params);
}

AttentionParams with(const AttentionParams& p, bool keeps_sums, Dims tangents = {}) {
  AttentionParams out = p;
  out.keeps_sums = keeps_sums;
  out.tangents = std::move(tangents);
  return out;
}

Arrays first_of(std::span<const Array> x, std::size_t count) {
  return Arrays(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(count));
}

// ---- attention as operations

// The batch dims of the scores: first the dims that k has, then the dims along which k is repeated.
struct BatchOrder {
  explicit BatchOrder(const AttentionParams& p) {
    const std::size_t batch = p.k_dims.size() - 2;
    for (const bool repeats : {false, true})
      for (std::size_t i = 0; i < batch; ++i)
        if ((p.k_dims[i] < 0) == repeats) (repeats ? shared : own).push_back(i);
    order = own;
    order.insert(order.end(), shared.begin(), shared.end());
    order.push_back(batch);
    order.push_back(batch + 1);
  }
  std::vector<std::size_t> own, shared, order;
};

Array in_order(const Array& x, const Dims& dims, const std::vector<std::size_t>& order,
               SourceLine source) {
  Dims permutation;
  for (std::size_t i : order)
    if (dims[i] >= 0) permutation.push_back(dims[i]);
  return bind_transpose(x, permutation, source);
}

class ByOperations {
 public:
  ByOperations(const AttentionParams& p, Types in, SourceLine source)
      : p_(p), order_(p), extents_(attention_extents(in, p)), source_(source) {
    const Shape& s = extents_.scores;
    const std::size_t batch = s.size() - 2;
    n_.batch = order_.own.empty() ? 1 : s[order_.own[0]];
    n_.groups = 1;
    for (std::size_t i = 1; i < order_.own.size(); ++i) n_.groups *= s[order_.own[i]];
    shared_ = 1;
    for (std::size_t i : order_.shared) shared_ *= s[i];
    n_.heads = n_.groups * shared_;
    n_.rows = s[batch];
    n_.columns = s[batch + 1];
    n_.depth = extents_.depth;
    n_.v_depth = extents_.v_depth;
  }

  // x: attention's operands.
  Array operator()(const Arrays& x) const {
    AttentionOperands made;
    made.q = bind_reshape(in_order(x[0], p_.q_dims, order_.order, source_),
                          {n_.batch, n_.groups, shared_, n_.rows, n_.depth}, source_);
    made.k = bind_reshape(in_order(x[1], p_.k_dims, order_.order, source_),
                          {n_.batch, n_.groups, n_.columns, n_.depth}, source_);
    made.v = bind_reshape(in_order(x[2], p_.v_dims, order_.order, source_),
                          {n_.batch, n_.groups, n_.columns, n_.v_depth}, source_);
    if (const int i = attention_bias(p_); i >= 0)
      made.bias = of_scores(x[static_cast<std::size_t>(i)], p_.bias_dims);
    if (const int i = attention_mask(p_); i >= 0)
      made.mask = of_scores(x[static_cast<std::size_t>(i)], p_.mask_dims);
    Array y = attention_rows(n_, made, p_.scale, p_.causal, source_);
    Shape shape;
    Dims back(std::vector<std::int64_t>(order_.order.size()));
    for (std::size_t at = 0; at < order_.order.size(); ++at) {
      const std::size_t i = order_.order[at];
      shape.push_back(i + 1 == order_.order.size() ? n_.v_depth : extents_.scores[i]);
      back[static_cast<std::size_t>(p_.out_dims[i])] = static_cast<std::int64_t>(at);
    }
    return bind_transpose(bind_reshape(y, shape, source_), back, source_);
  }

 private:
  // Reshapes x to [batch, groups, shared, rows, columns], with extent 1 along dims that x repeats.
  Array of_scores(const Array& x, const Dims& dims) const {
    Shape ones, full;
    const Array y = in_order(x, dims, order_.order, source_);
    for (std::size_t i : order_.order) ones.push_back(dims[i] < 0 ? 1 : extents_.scores[i]);
    full = ones;
    std::size_t at = 0;
    Shape merged;
    const auto merge = [&](std::size_t count) {
      bool any = false;
      for (std::size_t i = at; i < at + count; ++i) any |= dims[order_.order[i]] >= 0;
      std::int64_t size = 1;
      for (; count-- > 0; ++at) {
        if (any) full[at] = extents_.scores[order_.order[at]];
        size *= full[at];
      }
      merged.push_back(size);
    };
    const std::size_t own = order_.own.size();
    merge(own > 0 ? 1 : 0);
    merge(own > 0 ? own - 1 : 0);
    merge(order_.shared.size());
    merge(1);
    merge(1);
    return bind_reshape(broadcast_array(bind_reshape(y, ones, source_), full, source_), merged,
                        source_);
  }

  const AttentionParams& p_;
  BatchOrder order_;
  AttentionExtents extents_;
  SourceLine source_;
  AttentionSizes n_{};
  std::int64_t shared_ = 1;
};

Arrays types_and_all(const JvpCall& call, std::size_t count, std::vector<ShapedArray>* types) {
  for (std::size_t i = 0; i < count; ++i) types->push_back(call.type(i));
  return first_of(call.primals, count);
}

// Makes a function of the arrays with the numbers `which` from f, a function of all arrays of
// `all`; the other arrays become constants.
template <class F>
auto as_function_of(const std::vector<std::size_t>& which, const Arrays& all, const F& f) {
  return [&which, all, &f](Arrays moved) {
    Arrays x = all;
    for (std::size_t i = 0; i < moved.size(); ++i) x[which[i]] = moved[i];
    return f(x);
  };
}

std::vector<std::size_t> moving_operands(const JvpCall& call) {
  std::vector<std::size_t> moving;
  for (std::size_t i = 0; i < call.primals.size(); ++i)
    if (call.has_tangent(i)) moving.push_back(i);
  return moving;
}

// The derivative of f, a function of all primals, along the tangents of the primals `moving`; the
// other primals are constants.
template <class F>
auto along_tangents(const JvpCall& call, const std::vector<std::size_t>& moving, const F& f) {
  Arrays at, along;
  for (std::size_t i : moving) {
    at.push_back(call.primals[i]);
    along.push_back(call.tangents[i]);
  }
  const Arrays primals = first_of(call.primals, call.primals.size());
  return linearize(as_function_of(moving, primals, f), at).second(along);
}

// ---- forward mode

void jvp_attention(JvpCall& call) {
  const AttentionParams& p = params_of(call.params);
  std::vector<ShapedArray> types;
  const std::size_t count = call.primals.size();
  Arrays in = types_and_all(call, count, &types);
  const int bias = attention_bias(p);
  if (bias >= 0 && call.has_tangent(static_cast<std::size_t>(bias))) {
    call.run();
    call.tangents_out[0] =
        along_tangents(call, moving_operands(call), ByOperations(p, types, call.source));
    return;
  }
  const Arrays results = bind_all(attention_p, in, with(p, true), call.source);
  for (std::size_t i = 0; i < call.out.size(); ++i) call.out[i] = results[i];
  in = first_of(call.primals, count);
  in.insert(in.end(), results.begin(), results.end());
  Dims tangents;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!call.has_tangent(i)) continue;
    tangents.push_back(static_cast<std::int64_t>(i));
    in.push_back(call.tangents[i]);
  }
  if (tangents.empty()) return;
  call.tangents_out[0] =
      shmap::bind(attention_tangent_p, in, with(p, false, tangents), call.source);
}

bool moves(const JvpCall& call, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (call.has_tangent(i)) return true;
  return false;
}

void jvp_tangent(JvpCall& call) {
  const AttentionParams& p = params_of(call.params);
  const std::size_t count = attention_operands(p), first = count + 2;
  call.run();
  if (!moves(call, first)) {  // linear in the operands that have tangents
    Arrays in = first_of(call.primals, first);
    Dims tangents;
    for (std::size_t i = 0; i < p.tangents.size(); ++i) {
      if (!call.has_tangent(first + i)) continue;
      tangents.push_back(p.tangents[i]);
      in.push_back(call.tangents[first + i]);
    }
    call.tangents_out[0] =
        shmap::bind(attention_tangent_p, in, with(p, false, tangents), call.source);
    return;
  }
  std::vector<ShapedArray> types;
  types_and_all(call, count, &types);
  const ByOperations attend(p, types, call.source);
  const std::vector<std::size_t> tangents(p.tangents.begin(), p.tangents.end());
  call.tangents_out[0] = along_tangents(call, moving_operands(call), [&](const Arrays& x) {
    Arrays at, along;
    for (std::size_t i = 0; i < tangents.size(); ++i) {
      at.push_back(x[tangents[i]]);
      along.push_back(x[first + i]);
    }
    return linearize(as_function_of(tangents, first_of(x, count), attend), at).second(along);
  });
}

// The cotangents of q, k and v as a function of the operands and the result's cotangent.
Arrays pulled_back(const ByOperations& attend, const Arrays& x, std::size_t count,
                   const Array& cotangent) {
  const std::vector<std::size_t> qkv{0, 1, 2};
  const auto f = as_function_of(qkv, first_of(x, count), attend);
  return std::get<0>(vjp(f, first_of(x, 3)).second(cotangent));
}

void jvp_grad(JvpCall& call) {
  const AttentionParams& p = params_of(call.params);
  const std::size_t count = attention_operands(p), last = count + 2;
  call.run();
  if (!moves(call, last)) {
    Arrays in = first_of(call.primals, last);
    in.push_back(call.tangents[last]);
    const Arrays out = bind_all(attention_grad_p, in, call.params, call.source);
    for (std::size_t i = 0; i < 3; ++i) call.tangents_out[i] = out[i];
    return;
  }
  std::vector<ShapedArray> types;
  types_and_all(call, count, &types);
  const ByOperations attend(p, types, call.source);
  std::vector<std::size_t> moving = moving_operands(call);
  // The result and the sums depend on q, k and v and get no tangents of their own.
  std::erase_if(moving, [&](std::size_t i) { return i == count || i == count + 1; });
  if (moving.empty()) return;
  const Arrays out = along_tangents(
      call, moving, [&](const Arrays& all) { return pulled_back(attend, all, count, all[last]); });
  for (std::size_t i = 0; i < 3; ++i) call.tangents_out[i] = out[i];
}

// ---- reverse mode

void transpose_tangent(TransposeCall& call) {
  const AttentionParams& p = params_of(call.params);
  const std::size_t first = attention_operands(p) + 2;
  Arrays in = first_of(call.in, first);
  in.push_back(call.cotangents[0]);
  const Arrays bars = bind_all(attention_grad_p, in, with(p, false), call.source);
  for (std::size_t i = 0; i < p.tangents.size(); ++i)
    if (call.is_linear(first + i))
      call.out[first + i] = bars[static_cast<std::size_t>(p.tangents[i])];
}

void transpose_grad(TransposeCall& call) {
  const AttentionParams& p = params_of(call.params);
  const std::size_t last = attention_operands(p) + 2;
  Arrays in = first_of(call.in, last);
  Dims tangents;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!call.cotangents[i].node()) continue;
    tangents.push_back(static_cast<std::int64_t>(i));
    in.push_back(call.cotangents[i]);
  }
  call.out[last] = shmap::bind(attention_tangent_p, in, with(p, false, tangents), call.source);
}

// ---- vmap

// The dims of an operand after vmap: the batch dim comes first; -1 where the operand has none.
Dims with_batch(const Dims& dims, bool is_batched) {
  Dims out;
  out.push_back(is_batched ? 0 : -1);
  for (std::int64_t d : dims) out.push_back(d < 0 || !is_batched ? d : d + 1);
  return out;
}

// The batch dim becomes the first dim of every operand. Exceptions stay as they are: a bias or mask
// that is not batched and, if `shares`, k and v where neither is batched.
void batch(BatchCall& call, bool shares) {
  const AttentionParams& p = params_of(call.params);
  AttentionParams batched = p;
  Arrays in(call.in.size());
  const bool shared = shares && !call.is_batched(1) && !call.is_batched(2);
  const int bias = attention_bias(p), mask = attention_mask(p);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const int at = static_cast<int>(i);
    const bool repeats = ((i == 1 || i == 2) && shared) || at == bias || at == mask;
    in[i] = repeats && !call.is_batched(i) ? call.in[i] : with_batch_dim(call, i, 0);
  }
  batched.q_dims = with_batch(p.q_dims, true);
  batched.k_dims = with_batch(p.k_dims, !shared);
  batched.v_dims = with_batch(p.v_dims, !shared);
  batched.out_dims = with_batch(p.out_dims, true);
  if (bias >= 0)
    batched.bias_dims = with_batch(p.bias_dims, call.is_batched(static_cast<std::size_t>(bias)));
  if (mask >= 0)
    batched.mask_dims = with_batch(p.mask_dims, call.is_batched(static_cast<std::size_t>(mask)));
  give(call, in, batched, 0);
}

void batch_attention(BatchCall& call) { batch(call, true); }
// Tangents and cotangents of k and v are batched in any case.
void batch_derivative(BatchCall& call) { batch(call, false); }

}  // namespace

void register_attention_rules() {
  attention_p.jvp = jvp_attention;
  attention_p.transpose = Rule<TransposeFn>::none("it is not linear");
  attention_p.batching = batch_attention;
  attention_tangent_p.jvp = jvp_tangent;
  attention_tangent_p.transpose = transpose_tangent;
  attention_tangent_p.batching = batch_derivative;
  attention_grad_p.jvp = jvp_grad;
  attention_grad_p.transpose = transpose_grad;
  attention_grad_p.batching = batch_derivative;
}

}  // namespace shmap
