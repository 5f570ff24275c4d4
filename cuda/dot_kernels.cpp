// dot_general on CUDA: a batch of matrix products, by cuBLASLt or, of integers and bools, by an own
// kernel. Operands are read where they lie; those that no matrix product can read so are brought
// into another order in scratch memory first, all batch items at once; so are literals.
#include <algorithm>

#include "core/base/env.h"
#include "core/ops/dot_layout.h"
#include "core/runtime/kernel.h"
#include "cuda/call_operand.h"
#include "cuda/kernels/cublaslt_gemm.h"
#include "cuda/kernels/fill.h"
#include "cuda/kernels/int_gemm.h"

namespace shmap {

namespace {

// Batch dims that do not merge become calls of their own, up to so many; beyond, operands are
// copied so that they do.
constexpr std::int64_t kMostCalls = 32;
constexpr std::int64_t kScratchAlignment = 256;

// What one dot_general comes to.
struct Product {
  DotLayout layout;
  DotBatch groups;

  explicit Product(const KernelCall& call)
      : layout(call.in_types, params_as<DotParams>(call.params)), groups(layout.groups()) {
    if (cuda::is_literal(call, 0)) pack(layout.lhs);
    if (cuda::is_literal(call, 1)) pack(layout.rhs);
    for (DotSide* side : {&layout.lhs, &layout.rhs}) {
      if (groups.calls <= kMostCalls) break;
      pack(*side);
      groups = layout.groups();
    }
  }

  bool empty() const { return layout.batch == 0 || layout.m() == 0 || layout.n() == 0; }

  std::int64_t packed_bytes(const DotSide& side) const {
    if (!side.packed || empty()) return 0;
    const std::int64_t bytes = layout.batch * side.rows * side.inner * side.item;
    return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  }
  std::int64_t scratch_bytes() const { return packed_bytes(layout.lhs) + packed_bytes(layout.rhs); }

 private:
  static void pack(DotSide& side) {
    side.packed = true;
    side.transposed = false;
    side.ld = std::max<std::int64_t>(side.inner, 1);
  }
};

std::int64_t dot_scratch(const KernelCall& call) { return Product(call).scratch_bytes(); }

// Operand i, as a matrix product can read it.
const std::byte* readable(const DotSide& side, const KernelCall& call, std::size_t i,
                          std::byte* scratch) {
  if (!side.packed) return static_cast<const std::byte*>(call.in[i]);
  if (cuda::is_literal(call, i)) {
    cuda::fill(scratch, cuda::element_of(call, i), side.item, 1, call.native);
    return scratch;
  }
  BoxCopy copy = side.whole_copy();
  copy.src = call.in[i];
  copy.dst = scratch;
  device_ops(DeviceKind::cuda).copy_box(copy, 0, 1, call.native);
  return scratch;
}

// Where group `call` of the batch begins, in bytes.
std::int64_t start(const DotSide& side, const DotBatch& groups, std::int64_t call) {
  const std::int64_t item = call * groups.count;
  return (side.packed ? item * side.rows * side.inner : side.offset(item)) * side.item;
}

void multiply_floats(const Product& p, const KernelCall& call, const std::byte* a,
                     const std::byte* b) {
  const DotLayout& d = p.layout;
  cuda::LtGemm g;
  g.dtype = call.in_types[0].dtype();
  g.out = call.out_types[0].dtype();
  g.tf32 = env::flag(env::Var::tf32);
  g.trans_a = d.lhs.transposed;
  g.trans_b = !d.rhs.transposed;  // [free, contracted] is the transpose of what is wanted
  g.m = d.m();
  g.n = d.n();
  g.k = d.k();
  g.lda = d.lhs.ld;
  g.ldb = d.rhs.ld;
  g.ldc = g.n;
  g.batch = p.groups.count;
  g.stride_a = p.groups.lhs_stride;
  g.stride_b = p.groups.rhs_stride;
  g.stride_c = g.m * g.n;
  const std::int64_t result_bytes = g.batch * g.stride_c * itemsize(g.out);
  for (std::int64_t i = 0; i < p.groups.calls; ++i) {
    g.a = a + start(d.lhs, p.groups, i);
    g.b = b + start(d.rhs, p.groups, i);
    g.c = static_cast<std::byte*>(call.out[0]) + i * result_bytes;
    cuda::cublaslt_gemm(g, call.native);
  }
}

void multiply_integers(const Product& p, const KernelCall& call, const std::byte* a,
                       const std::byte* b) {
  const DotLayout& d = p.layout;
  const DType dtype = call.out_types[0].dtype();
  cuda::IntGemm g;
  g.m = d.m();
  g.n = d.n();
  g.k = d.k();
  g.batch = p.groups.count;
  g.a_row = d.lhs.transposed ? 1 : d.lhs.ld;
  g.a_column = d.lhs.transposed ? d.lhs.ld : 1;
  g.b_row = d.rhs.transposed ? d.rhs.ld : 1;
  g.b_column = d.rhs.transposed ? 1 : d.rhs.ld;
  g.c_row = g.n;
  g.a_item = p.groups.lhs_stride;
  g.b_item = p.groups.rhs_stride;
  g.c_item = g.m * g.n;
  for (std::int64_t i = 0; i < p.groups.calls; ++i) {
    g.a = a + start(d.lhs, p.groups, i);
    g.b = b + start(d.rhs, p.groups, i);
    g.c = static_cast<std::byte*>(call.out[0]) + i * g.batch * g.c_item * itemsize(dtype);
    cuda::int_gemm(g, itemsize(dtype), dtype == DType::bool_, call.native);
  }
}

void run_dot(const KernelCall& call) {
  const Product p(call);
  if (p.empty()) return;
  if (p.layout.k() == 0) {
    device_ops(DeviceKind::cuda).zero(call.out[0], call.out_types[0].nbytes(), call.native);
    return;
  }
  auto* scratch = static_cast<std::byte*>(call.scratch);
  const std::byte* a = readable(p.layout.lhs, call, 0, scratch);
  const std::byte* b = readable(p.layout.rhs, call, 1, scratch + p.packed_bytes(p.layout.lhs));
  if (is_floating(call.in_types[0].dtype())) {
    multiply_floats(p, call, a, b);
  } else {
    multiply_integers(p, call, a, b);
  }
}

}  // namespace

void register_cuda_dot_kernels() {
  Kernel& kernel = dot_general_p.kernel(DeviceKind::cuda);
  kernel.run = run_dot;
  kernel.scratch = dot_scratch;
}

}  // namespace shmap
