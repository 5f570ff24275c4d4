// dot_general on the CPU: a batch of matrix products. Operands whose dims are not in an order that
// a matrix product can read are brought into one through scratch memory of the thread, a batch item
// at a time.
#include <algorithm>
#include <vector>

#include "core/base/thread_kept.h"
#include "core/cpu/kernels/copy.h"
#include "core/cpu/kernels/gemm.h"
#include "core/ops/dot.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

using Strides = std::int64_t[kMaxRank];

void element_strides(const Shape& shape, Strides strides) {
  std::int64_t s = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = s;
    s *= shape[d];
  }
}

// A list of dims as one dim: its size, and its stride where the dims lie one within the other (else
// 0).
struct Merged {
  std::int64_t size = 1;
  std::int64_t stride = 1;
  bool whole = true;
};

Merged merge(const Shape& shape, const Strides strides, const IntList& dims) {
  Merged m;
  bool first = true;
  for (std::size_t i = dims.size(); i-- > 0;) {
    const auto d = static_cast<std::size_t>(dims[i]);
    if (shape[d] == 1) continue;
    if (first) {
      m.stride = strides[d];
      first = false;
    } else if (strides[d] != m.stride * m.size) {
      m.whole = false;
    }
    m.size *= shape[d];
  }
  if (first) m.stride = 0;  // of size 1: any stride fits
  return m;
}

// One operand as a matrix [free, contracted] for each batch item.
struct Side {
  const std::byte* data;
  const Shape& shape;
  Strides strides;
  IntList free, contracted, batch;
  std::int64_t rows = 1, inner = 1;
  int item;
  bool packed = false;      // not readable as it is
  bool transposed = false;  // stored [contracted, free]
  std::int64_t ld = 1;

  Side(const void* d, const ShapedArray& type, const IntList& free_dims,
       const IntList& contracted_dims, const IntList& batch_dims)
      : data(static_cast<const std::byte*>(d)),
        shape(type.dims()),
        free(free_dims),
        contracted(contracted_dims),
        batch(batch_dims),
        item(itemsize(type.dtype())) {
    element_strides(shape, strides);
    const Merged f = merge(shape, strides, free), c = merge(shape, strides, contracted);
    rows = f.size;
    inner = c.size;
    const bool unit_inner = c.stride == 1 || inner == 1, unit_rows = f.stride == 1 || rows == 1;
    if (!f.whole || !c.whole || (!unit_inner && !unit_rows)) {
      packed = true;
      ld = inner;
    } else if (unit_inner && (f.stride == 0 || f.stride >= inner)) {
      ld = std::max<std::int64_t>(f.stride, std::max<std::int64_t>(inner, 1));
    } else if (unit_rows && (c.stride == 0 || c.stride >= rows)) {
      transposed = true;
      ld = std::max<std::int64_t>(c.stride, std::max<std::int64_t>(rows, 1));
    } else {
      packed = true;
      ld = std::max<std::int64_t>(inner, 1);
    }
  }

  const std::byte* item_at(std::int64_t b) const {
    std::int64_t offset = 0;
    for (std::size_t i = batch.size(); i-- > 0;) {
      const auto d = static_cast<std::size_t>(batch[i]);
      offset += b % shape[d] * strides[d];
      b /= shape[d];
    }
    return data + offset * item;
  }

  // The item's matrix, copied to [free, contracted] where it has to be.
  const void* matrix(std::int64_t b, std::vector<std::byte>& scratch) const {
    if (!packed) return item_at(b);
    scratch.resize(static_cast<std::size_t>(rows * inner * item));
    cpu::StridedCopy copy;
    copy.itemsize = item;
    copy.src = item_at(b);
    copy.dst = scratch.data();
    for (const IntList* dims : {&free, &contracted}) {
      for (std::int64_t d : *dims) {
        copy.extent[copy.rank] = shape[static_cast<std::size_t>(d)];
        copy.src_stride[copy.rank++] = strides[d] * item;
      }
    }
    std::int64_t stride = item;
    for (int d = copy.rank; d-- > 0;) {
      copy.dst_stride[d] = stride;
      stride *= copy.extent[d];
    }
    cpu::copy_strided(copy);
    return scratch.data();
  }
};

struct Product {
  Side lhs, rhs;
  std::int64_t batch = 1;
  cpu::Gemm gemm;

  static IntList by_lhs_order(const DotParams& p, bool of_rhs) {
    // Contracted pairs in the order in which they lie in the left operand.
    std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
    for (std::size_t i = 0; i < p.lhs_contracting.size(); ++i)
      pairs.emplace_back(p.lhs_contracting[i], p.rhs_contracting[i]);
    std::sort(pairs.begin(), pairs.end());
    IntList out;
    for (const auto& [l, r] : pairs) out.push_back(of_rhs ? r : l);
    return out;
  }

  Product(const KernelCall& call, const DotParams& p)
      : lhs(call.in[0], call.in_types[0],
            free_dims(call.in_types[0].rank(), p.lhs_contracting, p.lhs_batch),
            by_lhs_order(p, false), p.lhs_batch),
        rhs(call.in[1], call.in_types[1],
            free_dims(call.in_types[1].rank(), p.rhs_contracting, p.rhs_batch),
            by_lhs_order(p, true), p.rhs_batch) {
    for (std::int64_t d : p.lhs_batch)
      batch *= call.in_types[0].dims()[static_cast<std::size_t>(d)];
    gemm.dtype = call.in_types[0].dtype();
    gemm.out = call.out_types[0].dtype();
    gemm.m = lhs.rows;
    gemm.n = rhs.rows;
    gemm.k = lhs.inner;
    gemm.trans_a = lhs.transposed;
    gemm.lda = lhs.ld;
    gemm.trans_b = !rhs.transposed;  // [free, contracted] of the right operand is its transpose
    gemm.ldb = rhs.ld;
    gemm.ldc = std::max<std::int64_t>(gemm.n, 1);
  }
  bool packs() const { return lhs.packed || rhs.packed; }
};

struct PackedOperands {  // kept for the next product of the thread
  std::vector<std::byte> left, right;
};

int dot_parts(const KernelCall& call, int workers) {
  const Product p(call, params_as<DotParams>(call.params));
  if (p.batch >= workers) return workers;
  // A part that had to pack would pack what the others pack too.
  if (p.packs() || p.batch == 0) return static_cast<int>(std::max<std::int64_t>(p.batch, 1));
  const int share = (workers + static_cast<int>(p.batch) - 1) / static_cast<int>(p.batch);
  return static_cast<int>(p.batch) * cpu::gemm_parts(p.gemm, share);
}

void run_product(const KernelCall& call, bool accumulate) {
  Product p(call, params_as<DotParams>(call.params));
  p.gemm.accumulate = accumulate;
  if (p.batch == 0 || p.gemm.m == 0 || p.gemm.n == 0) return;
  PackedOperands& packed = kept_by_thread<PackedOperands>();
  const std::int64_t item_bytes = p.gemm.m * p.gemm.n * itemsize(p.gemm.out);
  const auto set_item = [&](std::int64_t b) {
    p.gemm.a = p.lhs.matrix(b, packed.left);
    p.gemm.b = p.rhs.matrix(b, packed.right);
    p.gemm.c = static_cast<std::byte*>(call.out[0]) + b * item_bytes;
  };
  if (call.parts > p.batch) {
    const auto per_item = call.parts / static_cast<int>(p.batch);
    set_item(call.part / per_item);
    return cpu::gemm_part(p.gemm, call.part % per_item, per_item);
  }
  const auto [begin, end] = call.share(p.batch);
  for (std::int64_t b = begin; b < end; ++b) {
    set_item(b);
    cpu::gemm(p.gemm);
  }
}

void run_dot(const KernelCall& call) { run_product(call, /*accumulate=*/false); }
void add_dot(const KernelCall& call) { run_product(call, /*accumulate=*/true); }
bool adds_exactly(const KernelCall& call) {
  return cpu::gemm_accumulates_exactly(Product(call, params_as<DotParams>(call.params)).gemm);
}

}  // namespace

void register_cpu_dot_kernels() {
  Kernel& kernel = dot_general_p.kernel(DeviceKind::cpu);
  kernel = {run_dot, dot_parts};
  kernel.accumulate = add_dot;
  kernel.accumulates = adds_exactly;
}

}  // namespace shmap
