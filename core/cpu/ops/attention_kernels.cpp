// attention on the CPU: a part has some blocks of rows of some heads.
#include <algorithm>

#include "core/cpu/ops/attention_heads.h"
#include "core/runtime/device_ops.h"

namespace shmap {

namespace {

void run_attention(const KernelCall& call) {
  const AttentionHeads heads(call);
  if (heads.is_empty()) return;
  const auto& p = params_as<AttentionParams>(call.params);
  const HeadItems out = heads.items(call.out_types[0], p.out_dims);
  float* const sums = p.keeps_sums ? static_cast<float*>(call.out[1]) : nullptr;
  const std::int64_t block = cpu::AttentionHead().row_block;
  const std::int64_t per_head = blocks_of(heads.q_rows(), block);
  const auto [begin, end] = call.share(heads.count() * per_head);
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t item = i / per_head, first = i % per_head;
    const std::int64_t last = std::min(per_head, first + end - i);
    const cpu::AttentionHead head = heads.head(item);
    cpu::attention(head, first * block, std::min(head.q_rows, last * block),
                   {bytes(call.out[0]) + out.offset(item), out.row()},
                   sums ? sums + item * 2 * head.q_rows : nullptr);
    i += last - first;
  }
}

// True if this kernel is faster than the single operations.
bool takes(const AttentionForm& form) {
  return cpu::attention_takes(form.dtype) && cpu::attention_takes(form.out_dtype) &&
         (!form.bias_dtype || cpu::attention_takes(*form.bias_dtype));
}

}  // namespace

void register_cpu_attention_kernels() {
  attention_p.kernel(DeviceKind::cpu) = {run_attention, attention_parts};
  device_ops(DeviceKind::cpu).attends = takes;
}

}  // namespace shmap
