// lax.pad (core/base/padding.h), enqueued on a stream.
#pragma once
#include <cstdint>

#include "core/base/padding.h"
#include "cuda/kernels/launch/operand.h"

namespace shmap::cuda {

struct Pad : Padding {  // itemsize: 1, 2, 4 or 8
  const void* src = nullptr;
  Operand value;  // a scalar or a literal
  void* dst = nullptr;
};

void pad(const Pad& p, void* stream);

}  // namespace shmap::cuda
