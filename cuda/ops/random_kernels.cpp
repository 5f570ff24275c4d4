// Random bits and keys on CUDA devices.
#include "core/ops/gamma_sample.h"
#include "core/ops/random.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/random/threefry.h"
#include "cuda/ops/call_operand.h"
#include "cuda/ops/literal_copy.h"

namespace shmap {

namespace {

// Operand i, which has one element for all results or one for each key.
cuda::Operand per_key(const KernelCall& call, std::size_t i) {
  if (call.in_types[i].size() == 1) return cuda::element_of(call, i);
  return {call.in[i], cuda::Operand::whole};
}

void run_fill(const KernelCall& call, const RandomBlock& block) {
  cuda::RandomFill fill;
  fill.dtype = call.out_types[0].dtype();
  fill.keys = call.in_types[0].size();
  if (fill.keys == 0) return;
  fill.size = call.out_types[0].size() / fill.keys;
  fill.rank = block.rank;
  for (int d = 0; d < block.rank; ++d) {
    fill.extent[d] = block.extent[d];
    fill.stride[d] = block.stride[d];
  }
  fill.key = per_key(call, 0);
  if (call.in.size() > 1) fill.first = per_key(call, 1);
  fill.out = call.out[0];
  cuda::random_fill(fill, call.native);
}

void run_bits(const KernelCall& call) {
  const auto& p = params_as<RandomBitsParams>(call.params);
  run_fill(call, RandomBlock(p.shape, p.of));
}
void run_split(const KernelCall& call) {
  run_fill(call, RandomBlock(params_as<RandomSplitParams>(call.params).shape, Shape()));
}
void run_fold_in(const KernelCall& call) {
  cuda::random_fold_in(cuda::operand_of(call, 0), cuda::operand_of(call, 1), call.out[0],
                       call.out_types[0].size(), call.native);
}
void run_pairs(const KernelCall& call) {
  cuda::threefry_pairs(cuda::operand_of(call, 0), cuda::operand_of(call, 1),
                       cuda::operand_of(call, 2), cuda::operand_of(call, 3), call.out[0],
                       call.out[1], call.out_types[0].size(), call.native);
}

}  // namespace

void register_cuda_random_kernels() {
  random_bits_p.kernel(DeviceKind::cuda) = {run_bits};
  random_split_p.kernel(DeviceKind::cuda) = {run_split};
  random_fold_in_p.kernel(DeviceKind::cuda) = {run_fold_in};
  threefry2x32_p.kernel(DeviceKind::cuda) = {run_pairs};
  for (Primitive* p : {&random_wrap_p, &random_unwrap_p, &random_gamma_sample_p})
    p->kernel(DeviceKind::cuda) = {cuda::run_literal_copy};
}

}  // namespace shmap
