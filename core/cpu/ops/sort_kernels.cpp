// Sorting and top_k on the CPU.
#include <vector>

#include "core/cpu/kernels/sort.h"
#include "core/ops/lines.h"
#include "core/ops/sort.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

// Sorts by operand `key` and moves the others along: reads the operands in the first pass, the
// results in later ones.
struct Pass {
  cpu::Sort sort;
  std::vector<cpu::SortPayload> payloads;

  Pass(const KernelCall& call, std::size_t key, bool first) {
    const Lines lines(call.in_types[0].dims(), params_as<SortParams>(call.params).dimension);
    sort.dtype = call.in_types[key].dtype();
    sort.outer = lines.outer;
    sort.len = lines.length;
    sort.inner = lines.inner;
    sort.keys = first ? call.in[key] : call.out[key];
    sort.sorted = call.out[key];
    for (std::size_t i = 0; i < call.in.size(); ++i) {
      if (i == key) continue;
      payloads.push_back(
          {itemsize(call.in_types[i].dtype()), first ? call.in[i] : call.out[i], call.out[i]});
    }
    sort.payloads = payloads;
  }
};

int sort_parts(const KernelCall& call, int workers) {
  return cpu::sort_parts(Pass(call, 0, true).sort, workers);
}

// Several keys: sorts by the last key first, since each pass is stable. A part has the same lines
// in every pass.
void run_sort(const KernelCall& call) {
  const auto keys = static_cast<std::size_t>(params_as<SortParams>(call.params).num_keys);
  for (std::size_t key = keys; key-- > 0;)
    cpu::sort_part(Pass(call, key, key + 1 == keys).sort, call.part, call.parts);
}

cpu::TopK top_k_of(const KernelCall& call) {
  cpu::TopK t;
  const Shape& dims = call.in_types[0].dims();
  const Lines lines(dims, std::ssize(dims) - 1);
  t.dtype = call.in_types[0].dtype();
  t.outer = lines.outer;
  t.len = lines.length;
  t.k = call.out_types[0].dims().back();
  t.src = call.in[0];
  t.values = call.out[0];
  t.indices = static_cast<std::int32_t*>(call.out[1]);
  return t;
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
