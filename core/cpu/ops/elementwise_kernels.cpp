// The elementwise primitives on the CPU: each call hands its share of elements to one raw kernel.
#include "core/ops/elementwise.h"

#include <algorithm>
#include <atomic>

#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/elementwise/compare.h"
#include "core/cpu/kernels/elementwise/select.h"
#include "core/cpu/kernels/elementwise/unary.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

constexpr std::int64_t kGrain =
    4096;  // elements: enough to be worth a part, and a multiple of a cache line

int elementwise_parts(const KernelCall& call, int workers) {
  const std::int64_t n = call.out_types[0].size();
  return static_cast<int>(std::clamp<std::int64_t>(n / (16 * kGrain), 1, workers));
}

// True if operand i is a scalar and the result is an array.
bool is_scalar(const KernelCall& call, std::size_t i) {
  return call.in_types[i].rank() == 0 && call.out_types[0].rank() != 0;
}

// The raw kernel of an op for a dtype; looked up once. (The look-up is not inlined, since its
// registers would be saved in each call.)
template <class Op, class Fn>
[[gnu::noinline]] Fn look_up(Fn (*find)(Op, DType), Op op, DType dtype, std::atomic<Fn>& slot) {
  const Fn kernel = find(op, dtype);
  slot.store(kernel, std::memory_order_relaxed);
  return kernel;
}
template <auto op, class Fn>
Fn found_once(Fn (*find)(decltype(op), DType), DType dtype) {
  static constinit std::atomic<Fn> found[kDTypeCount] = {};
  std::atomic<Fn>& slot = found[static_cast<int>(dtype)];
  if (const Fn kernel = slot.load(std::memory_order_relaxed)) [[likely]]
    return kernel;
  return look_up(find, op, dtype, slot);
}

// Functors for the elementwise primitives. The constructor looks up what the calls on all devices
// share; the call operator computes n elements from the given addresses on.

template <UnaryOp op>
struct Unary {
  static constexpr std::size_t kOperands = 1;
  explicit Unary(const KernelCall& call)
      : kernel(found_once<op>(cpu::unary_kernel, call.in_types[0].dtype())) {}
  void operator()(const void* const* in, void* out, std::int64_t n) const { kernel(in[0], out, n); }
  cpu::UnaryFn kernel;
};

template <auto op, cpu::BinaryFn (*find)(decltype(op), DType)>
struct Binary {
  static constexpr std::size_t kOperands = 2;
  explicit Binary(const KernelCall& call)
      : kernel(found_once<op>(find, call.in_types[0].dtype())),
        scalar{is_scalar(call, 0), is_scalar(call, 1)} {}
  void operator()(const void* const* in, void* out, std::int64_t n) const {
    kernel(in[0], scalar[0], in[1], scalar[1], out, n);
  }
  cpu::BinaryFn kernel;
  bool scalar[2];
};

struct SelectN {
  static constexpr std::size_t kOperands = 3;
  explicit SelectN(const KernelCall& call)
      : scalar{is_scalar(call, 0), is_scalar(call, 1), is_scalar(call, 2)},
        bytes(itemsize(call.out_types[0].dtype())) {}
  void operator()(const void* const* in, void* out, std::int64_t n) const {
    cpu::select(in[0], scalar[0], in[2], scalar[2], in[1], scalar[1], out, bytes, n);
  }
  bool scalar[3];
  int bytes;
};

struct Clamp {
  static constexpr std::size_t kOperands = 3;
  explicit Clamp(const KernelCall& call)
      : dtype(call.out_types[0].dtype()), scalar{is_scalar(call, 0), is_scalar(call, 2)} {}
  void operator()(const void* const* in, void* out, std::int64_t n) const {
    cpu::clamp(dtype, in[0], scalar[0], in[1], in[2], scalar[1], out, n);
  }
  DType dtype;
  bool scalar[2];  // for the lower and the upper limit
};

struct Convert {
  static constexpr std::size_t kOperands = 1;
  explicit Convert(const KernelCall& call)
      : kernel(cpu::cast_kernel(call.in_types[0].dtype(), call.out_types[0].dtype())) {}
  void operator()(const void* const* in, void* out, std::int64_t n) const { kernel(in[0], out, n); }
  cpu::CastFn kernel;
};

// Runs one of several parts. Not inlined, since its registers would be saved in each call of
// run_elementwise().
template <class Op>
[[gnu::noinline]] void run_part(const KernelCall& call) {
  const ShapedArray& made = call.out_types[0];
  const auto [begin, end] = call.share(made.size(), kGrain);
  const void* in[Op::kOperands];
  for (std::size_t i = 0; i < Op::kOperands; ++i) {
    const ShapedArray& read = call.in_types[i];
    const std::int64_t skipped = read.rank() == 0 ? 0 : begin * itemsize(read.dtype());
    in[i] = static_cast<const std::byte*>(call.in[i]) + skipped;
  }
  const Op op(call);
  op(in, static_cast<std::byte*>(call.out[0]) + begin * itemsize(made.dtype()), end - begin);
}

template <class Op>
void run_elementwise(const KernelCall& call) {
  if (call.parts != 1) [[unlikely]]
    return run_part<Op>(call);
  const Op op(call);
  op(call.in.data(), call.out[0], call.out_types[0].size());
}

template <class Op>
void run_each(const KernelCall& call, std::span<const DeviceAddresses> devices) noexcept {
  static_assert(Op::kOperands <= DeviceAddresses::kIn);
  const Op op(call);
  const std::int64_t n = call.out_types[0].size();
  for (const DeviceAddresses& device : devices) op(device.in, device.out, n);
}

void run_bitcast(const KernelCall& call) {  // only for literals: otherwise it is a view
  __builtin_memcpy(call.out[0], call.in[0], static_cast<std::size_t>(call.out_types[0].nbytes()));
}

template <class Op>
void set_elementwise(Primitive& p) {
  p.kernel(DeviceKind::cpu) = {
      .run = run_elementwise<Op>, .parts = elementwise_parts, .each = run_each<Op>};
}

}  // namespace

void register_cpu_elementwise_kernels() {
#define SHMAP_UNARY(name, domain, ...)                                                   \
  check_kernels(#name, Domain::domain,                                                   \
                [](DType t) { return cpu::unary_kernel(UnaryOp::name, t) != nullptr; }); \
  set_elementwise<Unary<UnaryOp::name>>(name##_p);
#define SHMAP_BINARY(name, domain, ...)                                                    \
  check_kernels(#name, Domain::domain,                                                     \
                [](DType t) { return cpu::binary_kernel(BinaryOp::name, t) != nullptr; }); \
  set_elementwise<Binary<BinaryOp::name, cpu::binary_kernel>>(name##_p);
#define SHMAP_COMPARE(name, domain, ...)                                                     \
  check_kernels(#name, Domain::domain,                                                       \
                [](DType t) { return cpu::compare_kernel(CompareOp::name, t) != nullptr; }); \
  set_elementwise<Binary<CompareOp::name, cpu::compare_kernel>>(name##_p);
  SHMAP_UNARY_OPS(SHMAP_UNARY)
  SHMAP_PREDICATE_OPS(SHMAP_UNARY)
  SHMAP_BINARY_OPS(SHMAP_BINARY)
  SHMAP_COMPARE_OPS(SHMAP_COMPARE)
#undef SHMAP_UNARY
#undef SHMAP_BINARY
#undef SHMAP_COMPARE
  add_p.kernel(DeviceKind::cpu).adds = true;
  set_elementwise<SelectN>(select_n_p);
  set_elementwise<Clamp>(clamp_p);
  check_kernels("convert_element_type", Domain::plain, dtypes_of(Domain::plain),
                [](DType from, DType to) { return cpu::cast_kernel(from, to) != nullptr; });
  set_elementwise<Convert>(convert_element_type_p);
  bitcast_convert_type_p.kernel(DeviceKind::cpu) = {run_bitcast};
  stop_gradient_p.kernel(DeviceKind::cpu) = {run_bitcast};
}

}  // namespace shmap
