// reshape, transpose, rev, concatenate and pad on the CPU: strided copies.
#include <algorithm>
#include <cstring>

#include "core/cpu/kernels/move/copy.h"
#include "core/cpu/kernels/move/copy_short.h"
#include "core/cpu/kernels/move/pad.h"
#include "core/ops/call_copies.h"
#include "core/ops/concatenate_slices.h"
#include "core/ops/shape_params.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

template <StridedCopy (*make)(const KernelCall&)>
void run_copy(const KernelCall& call) {
  if (call.out_types[0].size() == 0) return;
  cpu::copy_strided_part(make(call), call.part, call.parts);
}
template <StridedCopy (*make)(const KernelCall&)>
int parts_of_copy(const KernelCall& call, int workers) {
  return call.out_types[0].size() == 0 ? 1 : cpu::copy_parts(make(call), workers);
}

void run_reshape(const KernelCall& call) {  // only for literals: otherwise it is a view
  std::memcpy(call.out[0], call.in[0], static_cast<std::size_t>(call.out_types[0].nbytes()));
}

// True if each operand is contiguous in the result.
bool joins_whole(const KernelCall& call) {
  const auto dim = static_cast<std::size_t>(params_as<ConcatenateParams>(call.params).dimension);
  const Shape& to = call.out_types[0].dims();
  return std::all_of(to.begin(), to.begin() + dim, [](std::int64_t e) { return e == 1; });
}

// Returns the kernel for operands whose elements alternate in the result (a stack along the last
// dim), or null if they do not or there is no kernel for so many operands.
cpu::WeaveFn weave_of(const KernelCall& call) {
  const auto dim = static_cast<std::size_t>(params_as<ConcatenateParams>(call.params).dimension);
  const Shape& to = call.out_types[0].dims();
  const auto one = [](std::int64_t e) { return e == 1; };
  if (!std::all_of(to.begin() + dim + 1, to.end(), one)) return nullptr;
  for (const ShapedArray& in : call.in_types)
    if (in.dims()[dim] != 1) return nullptr;
  return cpu::weave_kernel(itemsize(call.out_types[0].dtype()),
                           static_cast<std::int64_t>(call.in.size()));
}

void run_concatenate(const KernelCall& call) {
  std::int64_t at = 0;
  if (const cpu::WeaveFn weave = weave_of(call); weave != nullptr) {
    const std::int64_t n = call.in_types[0].size(), item = itemsize(call.out_types[0].dtype());
    const std::int64_t begin = n * call.part / call.parts, end = n * (call.part + 1) / call.parts;
    const char* rows[cpu::kShortRows];
    for (std::size_t i = 0; i < call.in.size(); ++i)
      rows[i] = static_cast<const char*>(call.in[i]) + begin * item;
    const auto row_bytes = static_cast<std::int64_t>(call.in.size()) * item;
    return weave(rows, static_cast<char*>(call.out[0]) + begin * row_bytes, end - begin);
  }
  if (call.parts == 1 && joins_whole(call)) {
    for (std::size_t i = 0; i < call.in.size(); ++i) {
      const std::int64_t bytes = call.in_types[i].nbytes();
      cpu::copy_bytes(static_cast<std::byte*>(call.out[0]) + at, call.in[i], bytes);
      at += bytes;
    }
    return;
  }
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    if (call.in_types[i].size() == 0) continue;
    const StridedCopy copy = concatenate_copy(call, i, at);
    cpu::copy_strided_part(copy, call.part, call.parts);
    at += copy.src_stride[0];
  }
}

int concatenate_parts(const KernelCall& call, int workers) {
  int parts = 1;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    if (call.in_types[i].size() == 0) continue;
    parts = std::max(parts, cpu::copy_parts(concatenate_copy(call, i, 0), workers));
  }
  return parts;
}

// Calls f for each operand, with its slice of the result as a copy.
template <class F>
void each_joined_slice(const KernelCall& call, F f) {
  const auto dim =
      static_cast<std::size_t>(params_as<ConcatenateSlicesParams>(call.params).dimension);
  std::int64_t at = 0;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const StridedCopy copy = concatenate_slice_copy(call, i, at);
    at += copy.extent[dim];
    f(copy);
  }
}

void run_concatenate_slices(const KernelCall& call) {
  each_joined_slice(
      call, [&](const StridedCopy& copy) { cpu::copy_strided_part(copy, call.part, call.parts); });
}

int concatenate_slices_parts(const KernelCall& call, int workers) {
  int parts = 1;
  each_joined_slice(call, [&](const StridedCopy& copy) {
    parts = std::max(parts, cpu::copy_parts(copy, workers));
  });
  return parts;
}

cpu::Pad pad_of(const KernelCall& call) {
  return {padding_of(call), call.in[0], call.in[1], call.out[0]};
}

void run_pad(const KernelCall& call) { cpu::pad_part(pad_of(call), call.part, call.parts); }
int pad_parts(const KernelCall& call, int workers) { return cpu::pad_parts(pad_of(call), workers); }

}  // namespace

void register_cpu_shape_kernels() {
  constexpr DeviceKind cpu = DeviceKind::cpu;
  reshape_p.kernel(cpu) = {run_reshape, nullptr};
  transpose_p.kernel(cpu) = {run_copy<transpose_copy>, parts_of_copy<transpose_copy>};
  rev_p.kernel(cpu) = {run_copy<rev_copy>, parts_of_copy<rev_copy>};
  concatenate_p.kernel(cpu) = {run_concatenate, concatenate_parts};
  concatenate_slices_p.kernel(cpu) = {run_concatenate_slices, concatenate_slices_parts};
  pad_p.kernel(cpu) = {run_pad, pad_parts};
}

}  // namespace shmap
