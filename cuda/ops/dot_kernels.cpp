// dot_general, product and product_into on CUDA: a batch of matrix products, by cuBLASLt or, for
// small ones, integers and bools, by kernels of this library. Operands are read in place. Operands
// in an order that no matrix product can read, and literals, are first copied to scratch memory in
// a suitable order, all batch items at once.
#include <algorithm>

#include "core/base/env.h"
#include "core/ops/dot_layout.h"
#include "core/ops/product.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/elementwise/fill.h"
#include "cuda/kernels/matmul/cublaslt_gemm.h"
#include "cuda/kernels/matmul/int_gemm.h"
#include "cuda/kernels/matmul/small_gemm.h"
#include "cuda/kernels/move/copy.h"
#include "cuda/ops/call_operand.h"

namespace shmap {

namespace {

// Batch dims that cannot be merged become separate calls, up to this number; beyond it, operands
// are copied so that the dims can be merged.
constexpr std::int64_t kMostCalls = 32;
constexpr std::int64_t kScratchAlignment = 256;

// The layout of one dot_general, and the groups of its batch.
struct Product {
  DotLayout layout;
  DotBatch groups;

  Product(const KernelCall& call, Types factors, const DotParams& params)
      : layout(factors, params), groups(layout.groups()) {
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

std::int64_t dot_scratch(const KernelCall& call) {
  return Product(call, call.in_types, params_as<DotParams>(call.params)).scratch_bytes();
}
std::int64_t product_scratch(const KernelCall& call) {
  const auto& params = params_as<ProductParams>(call.params);
  return Product(call, factor_types(call.in_types, params), params.dot).scratch_bytes();
}

// The address of element `offset` of operand i, in a form that a matrix product can read.
const std::byte* readable(const DotSide& side, const KernelCall& call, std::size_t i,
                          std::byte* scratch, std::int64_t offset = 0) {
  const std::byte* src = static_cast<const std::byte*>(call.in[i]) + offset * side.item;
  if (!side.packed) return src;
  if (cuda::is_literal(call, i)) {
    cuda::fill(scratch, cuda::element_of(call, i), side.item, 1, call.native);
    return scratch;
  }
  StridedCopy copy = side.whole_copy();
  copy.src = src;
  copy.dst = scratch;
  device_ops(DeviceKind::cuda).copy_box(copy, 0, 1, call.native);
  return scratch;
}

// The byte offset of group `call` of the batch.
std::int64_t start(const DotSide& side, const DotBatch& groups, std::int64_t call) {
  const std::int64_t item = call * groups.count;
  return (side.packed ? item * side.rows * side.inner : side.offset(item)) * side.item;
}

// `like` has the destination of the results, and the operand that is added.
void multiply_floats(const Product& p, const KernelCall& call, const std::byte* a,
                     const std::byte* b, const cuda::LtGemm& like) {
  const DotLayout& d = p.layout;
  cuda::LtGemm g = like;
  g.dtype = call.in_types[0].dtype();
  g.out = call.out_types[0].dtype();
  g.tf32 = env::flag(env::Var::tf32);
  g.trans_a = d.lhs.transposed;
  g.trans_b = !d.rhs.transposed;  // rhs is [free, contracted], the transpose of op(B)
  g.m = d.m();
  g.n = d.n();
  g.k = d.k();
  g.lda = d.lhs.ld;
  g.ldb = d.rhs.ld;
  g.batch = p.groups.count;
  g.stride_a = p.groups.lhs_stride;
  g.stride_b = p.groups.rhs_stride;
  cuda::LtGemm whole = g;
  whole.batch = d.batch;
  const bool small = env::flag(env::Var::small_products) && cuda::is_small(whole);
  const std::int64_t group = g.batch * itemsize(g.out);
  for (std::int64_t i = 0; i < p.groups.calls; ++i) {
    g.a = a + start(d.lhs, p.groups, i);
    g.b = b + start(d.rhs, p.groups, i);
    g.c = static_cast<std::byte*>(like.c) + i * group * g.stride_c;
    if (like.d) g.d = static_cast<const std::byte*>(like.d) + i * group * g.stride_d;
    if (small)
      cuda::small_gemm(g, call.native);
    else
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
  const Product p(call, call.in_types, params_as<DotParams>(call.params));
  if (p.empty()) return;
  if (p.layout.k() == 0) {
    device_ops(DeviceKind::cuda).zero(call.out[0], call.out_types[0].nbytes(), call.native);
    return;
  }
  auto* scratch = static_cast<std::byte*>(call.scratch);
  const std::byte* a = readable(p.layout.lhs, call, 0, scratch);
  const std::byte* b = readable(p.layout.rhs, call, 1, scratch + p.packed_bytes(p.layout.lhs));
  if (is_floating(call.in_types[0].dtype())) {
    cuda::LtGemm whole;
    whole.c = call.out[0];
    whole.ldc = p.layout.n();
    whole.stride_c = p.layout.m() * p.layout.n();
    multiply_floats(p, call, a, b, whole);
  } else {
    multiply_integers(p, call, a, b);
  }
}

// Runs product, and product_into with its target as operand 2, for floats, and for sums with at
// least one term.
void run_product(const KernelCall& call) {
  const auto& params = params_as<ProductParams>(call.params);
  const auto factors = factor_types(call.in_types, params);
  const Product p(call, factors, params.dot);
  cuda::LtGemm g;
  g.ldc = p.layout.n();
  g.stride_c = p.layout.m() * p.layout.n();
  g.c = call.out[0];
  if (!params.place.is_whole()) {
    if (!params.whole && call.in[2] != call.out[0])
      cuda::copy_bytes(call.out[0], call.in[2], call.out_types[0].nbytes(), call.native);
    ProductStrides place;
    const int batch = static_cast<int>(params.dot.lhs_batch.size());
    const int left =
        factors[0].rank() - batch - static_cast<int>(params.dot.lhs_contracting.size());
    place_product(call.out_types[0].dims(), params.place.sizes, batch, left, &place);
    g.ldc = place.row;
    g.stride_c = place.item;
    g.c = static_cast<std::byte*>(call.out[0]) +
          params.place.offset(call.position) * itemsize(call.out_types[0].dtype());
  }
  if (params.adds) {
    g.d = params.place.is_whole() ? call.in[2] : g.c;
    g.ldd = g.ldc;
    g.stride_d = g.stride_c;
  }
  if (params.bias) g.bias = call.in.back();
  g.function = params.activation;
  auto* scratch = static_cast<std::byte*>(call.scratch);
  const std::byte* a = readable(p.layout.lhs, call, 0, scratch, params.lhs.offset(call.position));
  const std::byte* b = readable(p.layout.rhs, call, 1, scratch + p.packed_bytes(p.layout.lhs),
                                params.rhs.offset(call.position));
  multiply_floats(p, call, a, b, g);
}

}  // namespace

void register_cuda_dot_kernels() {
  dot_general_p.kernel(DeviceKind::cuda) = {.run = run_dot, .scratch = dot_scratch};
  for (Primitive* p : {&product_p, &product_into_p})
    p->kernel(DeviceKind::cuda) = {.run = run_product, .scratch = product_scratch};
}

}  // namespace shmap
