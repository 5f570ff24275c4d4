// dot_general on the CPU: a batch of matrix products, and product_into, which adds them to a term.
// Operands whose dims are in an order that a matrix product cannot read are copied to scratch
// memory of the thread, one batch item at a time.
#include <algorithm>
#include <cstring>

#include "core/base/thread_kept.h"
#include "core/cpu/kernels/matmul/divided_sums.h"
#include "core/cpu/kernels/matmul/gemm.h"
#include "core/cpu/kernels/matmul/gemm_engines.h"
#include "core/ops/dot_layout.h"
#include "core/ops/product.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

struct PackedOperands {  // kept for the thread's next product
  cpu::GemmScratch left, right;
  // Frees the copies of large matrices, beside whose products an allocation takes little time.
  void trim() {
    constexpr std::size_t most = std::size_t{32} << 20;
    left.trim(most);
    right.trim(most);
  }
};

// The CPU's matrix product of one batch item.
struct Product {
  DotLayout layout;
  const KernelCall& call;
  cpu::Gemm gemm;

  explicit Product(const KernelCall& c) : Product(c, params_as<DotParams>(c.params)) {}
  Product(const KernelCall& c, const DotParams& params)
      : layout(c.in_types.first(2), params), call(c) {
    gemm.dtype = call.in_types[0].dtype();
    gemm.out = call.out_types[0].dtype();
    gemm.m = layout.m();
    gemm.n = layout.n();
    gemm.k = layout.k();
    gemm.trans_a = layout.lhs.transposed;
    gemm.lda = layout.lhs.ld;
    gemm.trans_b = !layout.rhs.transposed;  // rhs is [free, contracted], the transpose of op(B)
    gemm.ldb = layout.rhs.ld;
    gemm.ldc = std::max<std::int64_t>(gemm.n, 1);
  }

  void set_item(std::int64_t b, PackedOperands& packed) {
    gemm.a = matrix(layout.lhs, call.in[0], b, packed.left);
    gemm.b = matrix(layout.rhs, call.in[1], b, packed.right);
    gemm.c = static_cast<std::byte*>(call.out[0]) + b * gemm.m * gemm.n * itemsize(gemm.out);
  }
  // From an item to the next one of its group; no operand is packed.
  void next_item(const DotBatch& groups) {
    gemm.a = static_cast<const std::byte*>(gemm.a) + groups.lhs_stride * layout.lhs.item;
    gemm.b = static_cast<const std::byte*>(gemm.b) + groups.rhs_stride * layout.rhs.item;
    gemm.c = static_cast<std::byte*>(gemm.c) + gemm.m * gemm.n * itemsize(gemm.out);
  }

 private:
  // The item's matrix, copied to [free, contracted] if necessary.
  static const void* matrix(const DotSide& side, const void* data, std::int64_t b,
                            cpu::GemmScratch& scratch) {
    const void* item = static_cast<const std::byte*>(data) + side.offset(b) * side.item;
    if (!side.packed) return item;
    StridedCopy copy = side.item_copy();
    copy.src = item;
    copy.dst = scratch.get(static_cast<std::size_t>(side.rows * side.inner * side.item));
    device_ops(DeviceKind::cpu).copy_box(copy, 0, 1, nullptr);
    return copy.dst;
  }
};

// Called by the thread that enqueues, before a worker may run the product, to open the library that
// the product uses. A worker could otherwise open it while another thread exits the process, which
// would destroy the library's new static objects.
cpu::Gemm prepared(const Product& p) {
  (void)cpu::gemm_engine(p.gemm);
  return p.gemm;
}

int parts_of(const Product& p, int workers) {
  prepared(p);
  const std::int64_t batch = p.layout.batch;
  if (batch >= workers) return workers;
  // Items that must be packed are not split: every part would pack the same operands.
  if (p.layout.packs() || batch == 0) return static_cast<int>(std::max<std::int64_t>(batch, 1));
  const int share = (workers + static_cast<int>(batch) - 1) / static_cast<int>(batch);
  return static_cast<int>(batch) * cpu::gemm_parts(p.gemm, share);
}

int dot_parts(const KernelCall& call, int workers) { return parts_of(Product(call), workers); }

// For products whose parts divide the sums: the bytes of one item's partial results.
std::int64_t item_scratch(const Product& p) {
  return cpu::sum_pieces(p.gemm) > 1 ? (cpu::partial_results_bytes(p.gemm) + 63) / 64 * 64 : 0;
}

std::int64_t dot_scratch(const KernelCall& call) {
  const Product p(call);
  if (call.parts <= p.layout.batch) return 0;
  return p.layout.batch * item_scratch(p);
}

// Computes the part's share of the pieces of all items.
void run_pieces(const KernelCall& call, Product& p, PackedOperands& packed) {
  const std::int64_t pieces = cpu::sum_pieces(p.gemm), bytes = item_scratch(p);
  const auto [begin, end] = call.share(p.layout.batch * pieces);
  for (std::int64_t unit = begin; unit < end;) {
    const std::int64_t b = unit / pieces, first = unit % pieces;
    const std::int64_t last = std::min(pieces, first + end - unit);
    p.set_item(b, packed);
    cpu::run_sum_pieces(p.gemm, first, last, static_cast<std::byte*>(call.scratch) + b * bytes);
    unit += last - first;
  }
}

void finish_dot(const KernelCall& call) {
  Product p(call);
  const std::int64_t bytes = item_scratch(p);
  const std::int64_t item = p.gemm.m * p.gemm.n * itemsize(p.gemm.out);
  for (std::int64_t b = 0; b < p.layout.batch; ++b) {
    p.gemm.c = static_cast<std::byte*>(call.out[0]) + b * item;
    cpu::finish_sum_pieces(p.gemm, static_cast<std::byte*>(call.scratch) + b * bytes);
  }
}

// Copies the term of product_into to the block that g writes.
void copy_term(const KernelCall& call, const cpu::Gemm& g) {
  const std::int64_t size = itemsize(g.out), row = g.n * size, step = g.ldc * size;
  auto* const to = static_cast<std::byte*>(g.c);
  const auto* const from =
      static_cast<const std::byte*>(call.in[2]) + (to - static_cast<const std::byte*>(call.out[0]));
  const bool whole = row == step;
  const std::int64_t pieces = whole ? 1 : g.m, bytes = whole ? g.m * row : row;
  for (std::int64_t i = 0; i < pieces; ++i)
    std::memcpy(to + i * step, from + i * step, static_cast<std::size_t>(bytes));
}

// What the result's memory holds before the product is computed: nothing, what the product is added
// to, or nothing where it is added to a copy of operand 2.
enum class Before : std::uint8_t { nothing, summand, term };

// Computes items [begin, end), of which small ones take about as long as the choice of a kernel and
// the place of an item.
void multiply_items(const KernelCall& call, Product& p, PackedOperands& packed, Before before,
                    std::int64_t begin, std::int64_t end) {
  const cpu::GemmFn run = cpu::gemm_of(p.gemm);
  const DotBatch groups = p.layout.groups();
  for (std::int64_t b = begin; b < end; ++b) {
    if (b == begin || p.layout.packs() || b % groups.count == 0) {
      p.set_item(b, packed);
    } else {
      p.next_item(groups);
    }
    if (before == Before::term) copy_term(call, p.gemm);
    run(p.gemm);
  }
}

void multiply(const KernelCall& call, Product& p, PackedOperands& packed, Before before) {
  const std::int64_t batch = p.layout.batch;
  if (call.scratch) return run_pieces(call, p, packed);
  if (call.parts > batch) {
    const auto per_item = call.parts / static_cast<int>(batch);
    p.set_item(call.part / per_item, packed);
    if (before == Before::term)
      copy_term(call, cpu::gemm_part_block(p.gemm, call.part % per_item, per_item));
    return cpu::gemm_part(p.gemm, call.part % per_item, per_item);
  }
  const auto [begin, end] = call.share(batch);
  multiply_items(call, p, packed, before, begin, end);
}

void run_product(const KernelCall& call, const DotParams& params, Before before) {
  Product p(call, params);
  p.gemm.accumulate = before != Before::nothing;
  if (p.layout.batch == 0 || p.gemm.m == 0 || p.gemm.n == 0) return;
  PackedOperands& packed = kept_by_thread<PackedOperands>();
  multiply(call, p, packed, before);
  packed.trim();
}

void run_dot(const KernelCall& call) {
  run_product(call, params_as<DotParams>(call.params), Before::nothing);
}
void add_dot(const KernelCall& call) {
  run_product(call, params_as<DotParams>(call.params), Before::summand);
}
bool adds_exactly(const KernelCall& call) {
  return cpu::gemm_accumulates_exactly(prepared(Product(call)));
}

// product_into, as the pass add_into_products makes it: the whole result is a term and the product,
// which accumulates exactly.
const DotParams& added(const KernelCall& call) { return params_as<ProductParams>(call.params).dot; }
void run_added(const KernelCall& call) { run_product(call, added(call), Before::term); }
int added_parts(const KernelCall& call, int workers) {
  return parts_of(Product(call, added(call)), workers);
}
// The term may be a factor too, which the product reads while it writes the result.
std::uint32_t overwrites_nothing(const Params&, std::size_t) { return 0; }

}  // namespace

void register_cpu_dot_kernels() {
  Kernel& kernel = dot_general_p.kernel(DeviceKind::cpu);
  kernel = {run_dot, dot_parts, dot_scratch, finish_dot};
  kernel.accumulate = add_dot;
  kernel.accumulates = adds_exactly;
  Kernel& into = product_into_p.kernel(DeviceKind::cpu);
  into = {run_added, added_parts};
  into.overwrites = overwrites_nothing;
}

}  // namespace shmap
