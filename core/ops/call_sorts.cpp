#include "core/ops/call_sorts.h"

#include "core/ops/lines.h"
#include "core/ops/sort.h"

namespace shmap {

SortCall::SortCall(const KernelCall& call) {
  const auto& params = params_as<SortParams>(call.params);
  const Lines lines(call.in_types[0].dims(), params.dimension);
  sort.outer = lines.outer;
  sort.len = lines.length;
  sort.inner = lines.inner;
  sort.num_keys = static_cast<int>(params.num_keys);
  for (std::size_t i = 0; i < call.in.size(); ++i)
    operands.push_back({call.in_types[i].dtype(), call.in[i], call.out[i]});
  sort.operands = operands;
}

TopK top_k_of(const KernelCall& call) {
  const Shape& dims = call.in_types[0].dims();
  const Lines lines(dims, std::ssize(dims) - 1);
  return {call.in_types[0].dtype(),
          lines.outer,
          lines.length,
          call.out_types[0].dims().back(),
          call.in[0],
          call.out[0],
          static_cast<std::int32_t*>(call.out[1])};
}

}  // namespace shmap
