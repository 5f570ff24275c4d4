#include "cuda/ops/literal_copy.h"

#include "cuda/kernels/elementwise/fill.h"
#include "cuda/kernels/move/copy.h"
#include "cuda/ops/call_operand.h"

namespace shmap::cuda {

void run_literal_copy(const KernelCall& call) {
  const std::int64_t bytes = call.out_types[0].nbytes();
  if (is_literal(call, 0))
    fill(call.out[0], element_of(call, 0), static_cast<int>(bytes), 1, call.native);
  else
    copy_bytes(call.out[0], call.in[0], bytes, call.native);
}

}  // namespace shmap::cuda
