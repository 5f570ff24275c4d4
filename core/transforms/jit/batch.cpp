#include "core/transforms/autodiff/derived.h"
#include "core/transforms/jit/jit.h"

namespace shmap {

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
