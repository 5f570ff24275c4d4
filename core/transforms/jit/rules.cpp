#include "core/transforms/jit/rules.h"

#include "core/transforms/autodiff/derived.h"
#include "core/transforms/jit/jit.h"

namespace shmap {

namespace {

template <class Arrays>
void append(std::vector<Array>& to, const Arrays& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// Appends the arrays that are not empty.
void append_given(std::vector<Array>& to, std::span<const Array> more) {
  for (const Array& x : more)
    if (x.node()) to.push_back(x);
}

}  // namespace

void jvp_jit(JvpCall& call) {
  const JaxprRef& jaxpr = params_as<JitParams>(call.params).jaxpr;
  const std::vector<bool> active = given_mask(call.tangents);
  const std::size_t n = call.out.size();
  std::vector<Array> derivatives;
  std::shared_ptr<const void> kept;
  std::vector<bool> active_out;
  if (!call.linear) {
    const auto program = derived_jvp(jaxpr, active);
    std::vector<Array> in = program->consts;
    append(in, call.primals);
    append_given(in, call.tangents);
    std::vector<Array> out =
        bind_all(call.primitive, in, JitParams(program->jaxpr, call.params.mesh()), call.source);
    std::move(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(n), call.out.begin());
    derivatives.assign(out.begin() + static_cast<std::ptrdiff_t>(n), out.end());
    active_out = program->active_out;
  } else {
    const auto program = derived_linearization(jaxpr, active);
    std::vector<Array> in = program->primal_consts, out;
    append(in, call.primals);
    {
      TraceScope scope(call.parent);
      out =
          bind_all(call.primitive, in, JitParams(program->primal, call.params.mesh()), call.source);
    }
    std::move(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(n), call.out.begin());
    std::vector<Array> operands(out.begin() + static_cast<std::ptrdiff_t>(n), out.end());
    append_given(operands, call.tangents);
    active_out = program->active_out;
    if (!program->linear->outs.empty())
      derivatives = bind_all(call.primitive, operands,
                             JitParams(program->linear, call.params.mesh()), call.source);
  }
  for (std::size_t o = 0, next = 0; o < n; ++o)
    if (active_out[o]) call.tangents_out[o] = std::move(derivatives[next++]);
}

void transpose_jit(TransposeCall& call) {
  const JaxprRef& jaxpr = params_as<JitParams>(call.params).jaxpr;
  std::vector<bool> linear = given_mask(call.in);
  linear.flip();
  const auto program = derived_transpose(jaxpr, linear, given_mask(call.cotangents));
  if (program->jaxpr->outs.empty()) return;
  std::vector<Array> in = program->consts;
  append_given(in, call.in);
  append_given(in, call.cotangents);
  std::vector<Array> out =
      bind_all(call.primitive, in, JitParams(program->jaxpr, call.params.mesh()), call.source);
  for (std::size_t i = 0, next = 0; i < call.in.size(); ++i)
    if (program->active_out[i]) call.out[i] = std::move(out[next++]);
}

void batch_jit(BatchCall& call) {
  std::vector<bool> batched;
  for (std::size_t i = 0; i < call.in.size(); ++i) batched.push_back(call.is_batched(i));
  const auto program = derived_batch(params_as<JitParams>(call.params).jaxpr, call.size, batched);
  std::vector<Array> in = program->consts;
  for (std::size_t i = 0; i < call.in.size(); ++i)
    in.push_back(batched[i] ? with_batch_dim(call, i, 0) : call.in[i]);
  give(call, in, JitParams(program->jaxpr, call.params.mesh()), 0);
  for (std::size_t o = 0; o < call.out.size(); ++o)
    if (!program->batched_out[o]) call.out_dims[o] = -1;
}

}  // namespace shmap
