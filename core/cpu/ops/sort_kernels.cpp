// Sorting and top_k on the CPU.
#include <algorithm>
#include <vector>

#include "core/cpu/kernels/sort/sort.h"
#include "core/ops/call_sorts.h"
#include "core/ops/sort.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

// Sorts by operand `key` and moves the other operands along. Reads the operands in the first pass,
// the results in later passes.
struct Pass {
  cpu::SortPass sort;
  std::vector<cpu::SortPayload> payloads;

  Pass(const Sort& s, std::size_t key, bool first) {
    sort.dtype = s.operands[key].dtype;
    sort.outer = s.outer;
    sort.len = s.len;
    sort.inner = s.inner;
    sort.keys = first ? s.operands[key].in : s.operands[key].out;
    sort.sorted = s.operands[key].out;
    for (std::size_t i = 0; i < s.operands.size(); ++i) {
      const SortOperand& other = s.operands[i];
      if (i != key)
        payloads.push_back({itemsize(other.dtype), first ? other.in : other.out, other.out});
    }
    sort.payloads = payloads;
  }
};

int sort_parts(const KernelCall& call, int workers) {
  const SortCall sorts(call);
  const std::int64_t lines = std::max<std::int64_t>(1, sorts.sort.outer * sorts.sort.inner);
  if (sorts.sort.num_keys > 1) workers = static_cast<int>(std::min<std::int64_t>(workers, lines));
  return cpu::sort_parts(Pass(sorts.sort, 0, true).sort, workers);
}

// With several keys, sorts by the last key first, since each pass is stable. A part has the same
// whole lines in every pass.
void run_sort(const KernelCall& call) {
  const SortCall sorts(call);
  const auto keys = static_cast<std::size_t>(sorts.sort.num_keys);
  for (std::size_t key = keys; key-- > 0;)
    cpu::sort_part(Pass(sorts.sort, key, key + 1 == keys).sort, call.part, call.parts);
}

int top_k_parts(const KernelCall& call, int workers) {
  return cpu::top_k_parts(top_k_of(call), workers);
}
void run_top_k(const KernelCall& call) { cpu::top_k_part(top_k_of(call), call.part, call.parts); }

}  // namespace

void register_cpu_sort_kernels() {
  sort_p.kernel(DeviceKind::cpu) = {run_sort, sort_parts};
  top_k_p.kernel(DeviceKind::cpu) = {run_top_k, top_k_parts};
}

}  // namespace shmap
