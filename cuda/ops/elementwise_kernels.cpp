// The elementwise primitives on CUDA devices: each call enqueues one raw kernel.
#include "core/ops/elementwise.h"

#include "core/runtime/kernel.h"
#include "cuda/kernels/elementwise/elementwise.h"
#include "cuda/ops/call_operand.h"
#include "cuda/ops/literal_copy.h"

namespace shmap {

namespace {

using cuda::operand_of;

template <UnaryOp op>
void run_unary(const KernelCall& call) {
  const cuda::UnaryFn kernel = cuda::unary_kernel(op, call.in_types[0].dtype());
  kernel(operand_of(call, 0), call.out[0], call.out_types[0].size(), call.native);
}

template <auto op, cuda::BinaryFn (*find)(decltype(op), DType)>
void run_binary(const KernelCall& call) {
  const cuda::BinaryFn kernel = find(op, call.in_types[0].dtype());
  kernel(operand_of(call, 0), operand_of(call, 1), call.out[0], call.out_types[0].size(),
         call.native);
}

void run_select_n(const KernelCall& call) {
  cuda::select(operand_of(call, 0), operand_of(call, 1), operand_of(call, 2), call.out[0],
               itemsize(call.out_types[0].dtype()), call.out_types[0].size(), call.native);
}

void run_clamp(const KernelCall& call) {
  cuda::clamp(call.out_types[0].dtype(), operand_of(call, 0), operand_of(call, 1),
              operand_of(call, 2), call.out[0], call.out_types[0].size(), call.native);
}

void run_convert(const KernelCall& call) {
  const DType from = call.in_types[0].dtype(), to = call.out_types[0].dtype();
  cuda::cast_kernel(from, to)(operand_of(call, 0), call.out[0], call.out_types[0].size(),
                              call.native);
}

void set(Primitive& p, KernelFn run) { p.kernel(DeviceKind::cuda) = {run}; }

}  // namespace

void register_cuda_elementwise_kernels() {
#define SHMAP_UNARY(name, domain, ...)                                                    \
  check_kernels(#name, Domain::domain,                                                    \
                [](DType t) { return cuda::unary_kernel(UnaryOp::name, t) != nullptr; }); \
  set(name##_p, run_unary<UnaryOp::name>);
#define SHMAP_BINARY(name, domain, ...)                                                     \
  check_kernels(#name, Domain::domain,                                                      \
                [](DType t) { return cuda::binary_kernel(BinaryOp::name, t) != nullptr; }); \
  set(name##_p, run_binary<BinaryOp::name, cuda::binary_kernel>);
#define SHMAP_COMPARE(name, domain, ...)                                                      \
  check_kernels(#name, Domain::domain,                                                        \
                [](DType t) { return cuda::compare_kernel(CompareOp::name, t) != nullptr; }); \
  set(name##_p, run_binary<CompareOp::name, cuda::compare_kernel>);
  SHMAP_UNARY_OPS(SHMAP_UNARY)
  SHMAP_PREDICATE_OPS(SHMAP_UNARY)
  SHMAP_BINARY_OPS(SHMAP_BINARY)
  SHMAP_COMPARE_OPS(SHMAP_COMPARE)
#undef SHMAP_UNARY
#undef SHMAP_BINARY
#undef SHMAP_COMPARE
  set(select_n_p, run_select_n);
  set(clamp_p, run_clamp);
  check_kernels("convert_element_type", Domain::plain, dtypes_of(Domain::plain),
                [](DType from, DType to) { return cuda::cast_kernel(from, to) != nullptr; });
  set(convert_element_type_p, run_convert);
  set(bitcast_convert_type_p, cuda::run_literal_copy);
  set(stop_gradient_p, cuda::run_literal_copy);
}

}  // namespace shmap
