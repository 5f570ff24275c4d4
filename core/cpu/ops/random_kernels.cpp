// Random bits and keys on the CPU.
#include <algorithm>
#include <cstring>

#include "core/cpu/kernels/random/threefry.h"
#include "core/cpu/ops/random_block.h"
#include "core/ops/gamma_sample.h"
#include "core/ops/random.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

constexpr std::int64_t kRandomGrain = 4096;  // elements
constexpr std::int64_t kPart = 16384;        // fewer elements are not worth another thread

int hash_parts(const KernelCall& call, int workers) {
  return static_cast<int>(std::clamp<std::int64_t>(call.out_types[0].size() / kPart, 1, workers));
}

// Computes this part's share of the results of all keys, each of which gives the elements of
// `block`.
void run_hash(const KernelCall& call, const RandomBlock& block) {
  const DType dtype = call.out_types[0].dtype();
  const std::int64_t size = call.out_types[0].size(), keys = call.in_types[0].size();
  if (size == 0) return;
  const std::int64_t each = size / keys;
  const bool around = call.out_types[0].nbytes() >= cpu::kThreefryAroundBytes;
  const auto* key = static_cast<const std::uint32_t*>(call.in[0]);
  const auto* first = call.in.size() > 1 ? static_cast<const std::int64_t*>(call.in[1]) : nullptr;
  const bool one_first = first && call.in_types[1].rank() == 0;
  const auto [begin, end] = call.share(size, kRandomGrain);
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t k = i / each, at = i % each;
    // Whole keys together, or what this part has of one key.
    const std::int64_t whole = at == 0 ? (end - i) / each : 0;
    const std::int64_t n = whole > 0 ? each : std::min(end - i, each - at);
    cpu::threefry_blocks(
        dtype,
        {.key = reinterpret_cast<const std::byte*>(key + 2 * k),
         .key_step = 2 * sizeof *key,
         .first = reinterpret_cast<const std::byte*>(one_first || !first ? first : first + k),
         .first_step = one_first ? 0 : std::int64_t{sizeof *first},
         .out = static_cast<std::byte*>(call.out[0]) + i * itemsize(dtype),
         .out_step = each * itemsize(dtype),
         .n = std::max<std::int64_t>(whole, 1)},
        block, at, n, itemsize(dtype), around);
    i += std::max<std::int64_t>(whole, 1) * n;
  }
}

void run_bits(const KernelCall& call) {
  const auto& p = params_as<RandomBitsParams>(call.params);
  run_hash(call, RandomBlock(p.shape, p.of));
}
void run_split(const KernelCall& call) {
  run_hash(call, RandomBlock(params_as<RandomSplitParams>(call.params).shape, Shape()));
}

void run_fold_in(const KernelCall& call) {
  const auto [begin, end] = call.share(call.out_types[0].size(), kRandomGrain);
  const auto* key = static_cast<const std::uint32_t*>(call.in[0]);
  const auto* data = static_cast<const std::uint32_t*>(call.in[1]);
  auto* out = static_cast<std::uint32_t*>(call.out[0]);
  const std::int64_t next_key = call.in_types[0].rank() == 0 ? 0 : 2;
  const std::int64_t next_data = call.in_types[1].rank() == 0 ? 0 : 1;
  constexpr std::int64_t kTogether = 256;
  std::int64_t counts[kTogether];
  for (std::int64_t i = begin; i < end; i += kTogether) {
    const std::int64_t n = std::min(kTogether, end - i);
    for (std::int64_t j = 0; j < n; ++j) counts[j] = data[(i + j) * next_data];
    cpu::threefry_each(DType::prng_key,
                       {.key = reinterpret_cast<const std::byte*>(key + i * next_key),
                        .key_step = next_key * std::int64_t{sizeof *key},
                        .first = reinterpret_cast<const std::byte*>(counts),
                        .first_step = sizeof *counts,
                        .out = reinterpret_cast<std::byte*>(out + 2 * i),
                        .out_step = 2 * sizeof *out,
                        .n = n},
                       0);
  }
}

void run_pairs(const KernelCall& call) {
  const auto [begin, end] = call.share(call.out_types[0].size(), kRandomGrain);
  const std::uint32_t* in[4];
  unsigned one = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const bool scalar = call.in_types[i].rank() == 0;
    in[i] = static_cast<const std::uint32_t*>(call.in[i]) + (scalar ? 0 : begin);
    one |= static_cast<unsigned>(scalar) << i;
  }
  cpu::threefry_pairs(in[0], in[1], in[2], in[3], one,
                      static_cast<std::uint32_t*>(call.out[0]) + begin,
                      static_cast<std::uint32_t*>(call.out[1]) + begin, end - begin);
}

void run_view(const KernelCall& call) {  // only for literals: otherwise it is a view
  std::memcpy(call.out[0], call.in[0], static_cast<std::size_t>(call.out_types[0].nbytes()));
}

}  // namespace

void register_cpu_random_kernels() {
  constexpr DeviceKind cpu = DeviceKind::cpu;
  random_bits_p.kernel(cpu) = {run_bits, hash_parts};
  random_split_p.kernel(cpu) = {run_split, hash_parts};
  random_fold_in_p.kernel(cpu) = {run_fold_in, hash_parts};
  threefry2x32_p.kernel(cpu) = {run_pairs, hash_parts};
  for (Primitive* p : {&random_wrap_p, &random_unwrap_p, &random_gamma_sample_p})
    p->kernel(cpu) = {run_view};
}

}  // namespace shmap
