// The elementwise primitives on the CPU: each call hands its share of elements to one raw kernel.
#include "core/ops/elementwise.h"

#include <algorithm>
#include <atomic>

#include "core/cpu/kernels/binary.h"
#include "core/cpu/kernels/cast.h"
#include "core/cpu/kernels/compare.h"
#include "core/cpu/kernels/select.h"
#include "core/cpu/kernels/unary.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

constexpr std::int64_t kGrain =
    4096;  // elements: large enough to be worth a part, and parts share no cache line

int elementwise_parts(const KernelCall& call, int workers) {
  const std::int64_t n = call.out_types[0].size();
  return static_cast<int>(std::clamp<std::int64_t>(n / (16 * kGrain), 1, workers));
}

// This part's elements.
inline KernelCall::Share share(const KernelCall& call) {
  return call.share(call.out_types[0].size(), kGrain);
}

// The address of an operand or result, from the first element of the share on.
const void* at(const KernelCall& call, std::size_t i, std::int64_t begin) {
  if (call.in_types[i].rank() == 0) return call.in[i];
  return static_cast<const std::byte*>(call.in[i]) + begin * itemsize(call.in_types[i].dtype());
}
void* out_at(const KernelCall& call, std::int64_t begin) {
  return static_cast<std::byte*>(call.out[0]) + begin * itemsize(call.out_types[0].dtype());
}
// Whether operand i is a scalar beside an array result. With a scalar result no operand is.
bool is_scalar(const KernelCall& call, std::size_t i) {
  return call.in_types[i].rank() == 0 && call.out_types[0].rank() != 0;
}

// The raw kernel of an op for a dtype; looked up once.
template <auto op, class Fn>
Fn found_once(Fn (*find)(decltype(op), DType), DType dtype) {
  static constinit std::atomic<Fn> found[kDTypeCount] = {};
  std::atomic<Fn>& slot = found[static_cast<int>(dtype)];
  if (const Fn kernel = slot.load(std::memory_order_relaxed)) [[likely]]
    return kernel;
  const Fn kernel = find(op, dtype);
  slot.store(kernel, std::memory_order_relaxed);
  return kernel;
}

template <UnaryOp op>
void run_unary(const KernelCall& call) {
  const cpu::UnaryFn kernel = found_once<op>(cpu::unary_kernel, call.in_types[0].dtype());
  if (call.parts == 1) [[likely]]
    return kernel(call.in[0], call.out[0], call.out_types[0].size());
  const auto [begin, end] = share(call);
  kernel(at(call, 0, begin), out_at(call, begin), end - begin);
}

template <auto op, cpu::BinaryFn (*find)(decltype(op), DType)>
void run_binary(const KernelCall& call) {
  const cpu::BinaryFn kernel = found_once<op>(find, call.in_types[0].dtype());
  if (call.parts == 1) [[likely]] {
    return kernel(call.in[0], is_scalar(call, 0), call.in[1], is_scalar(call, 1), call.out[0],
                  call.out_types[0].size());
  }
  const auto [begin, end] = share(call);
  kernel(at(call, 0, begin), is_scalar(call, 0), at(call, 1, begin), is_scalar(call, 1),
         out_at(call, begin), end - begin);
}

void run_select_n(const KernelCall& call) {
  const auto [begin, end] = share(call);
  cpu::select(at(call, 0, begin), is_scalar(call, 0), at(call, 2, begin), is_scalar(call, 2),
              at(call, 1, begin), is_scalar(call, 1), out_at(call, begin),
              itemsize(call.out_types[0].dtype()), end - begin);
}

void run_clamp(const KernelCall& call) {
  const auto [begin, end] = share(call);
  cpu::clamp(call.out_types[0].dtype(), at(call, 0, begin), is_scalar(call, 0), at(call, 1, begin),
             at(call, 2, begin), is_scalar(call, 2), out_at(call, begin), end - begin);
}

void run_convert(const KernelCall& call) {
  const auto [begin, end] = share(call);
  const cpu::CastFn kernel = cpu::cast_kernel(call.in_types[0].dtype(), call.out_types[0].dtype());
  kernel(at(call, 0, begin), out_at(call, begin), end - begin);
}

void run_bitcast(const KernelCall& call) {  // only for literals: otherwise it is a view
  __builtin_memcpy(call.out[0], call.in[0], static_cast<std::size_t>(call.out_types[0].nbytes()));
}

void set(Primitive& p, KernelFn run) { p.kernel(DeviceKind::cpu) = {run, elementwise_parts}; }

}  // namespace

void register_cpu_elementwise_kernels() {
#define SHMAP_UNARY(name, domain, ...)                                                   \
  check_kernels(#name, Domain::domain,                                                   \
                [](DType t) { return cpu::unary_kernel(UnaryOp::name, t) != nullptr; }); \
  set(name##_p, run_unary<UnaryOp::name>);
#define SHMAP_BINARY(name, domain, ...)                                                    \
  check_kernels(#name, Domain::domain,                                                     \
                [](DType t) { return cpu::binary_kernel(BinaryOp::name, t) != nullptr; }); \
  set(name##_p, run_binary<BinaryOp::name, cpu::binary_kernel>);
#define SHMAP_COMPARE(name, domain, ...)                                                     \
  check_kernels(#name, Domain::domain,                                                       \
                [](DType t) { return cpu::compare_kernel(CompareOp::name, t) != nullptr; }); \
  set(name##_p, run_binary<CompareOp::name, cpu::compare_kernel>);
  SHMAP_UNARY_OPS(SHMAP_UNARY)
  SHMAP_PREDICATE_OPS(SHMAP_UNARY)
  SHMAP_BINARY_OPS(SHMAP_BINARY)
  SHMAP_COMPARE_OPS(SHMAP_COMPARE)
#undef SHMAP_UNARY
#undef SHMAP_BINARY
#undef SHMAP_COMPARE
  add_p.kernel(DeviceKind::cpu).adds = true;
  set(select_n_p, run_select_n);
  set(clamp_p, run_clamp);
  set(convert_element_type_p, run_convert);
  set(bitcast_convert_type_p, run_bitcast);
  set(stop_gradient_p, run_bitcast);
}

}  // namespace shmap
