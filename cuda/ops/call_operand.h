// Converts an operand of a KernelCall to the form that the kernels of cuda/kernels take.
#pragma once
#include "core/runtime/kernel.h"
#include "cuda/kernels/launch/operand.h"

namespace shmap::cuda {

inline bool is_literal(const KernelCall& call, std::size_t i) {
  return (call.literals >> i & 1u) != 0;
}

// An operand of an elementwise primitive; an operand of rank 0 stands for an array of the result's
// shape.
inline Operand operand_of(const KernelCall& call, std::size_t i) {
  const bool scalar = call.in_types[i].rank() == 0 && call.out_types[0].rank() != 0;
  return {call.in[i], is_literal(call, i) ? Operand::literal
                      : scalar            ? Operand::scalar
                                          : Operand::whole};
}

// An operand of one element, for a kernel that reads only one.
inline Operand element_of(const KernelCall& call, std::size_t i) {
  return {call.in[i], is_literal(call, i) ? Operand::literal : Operand::scalar};
}

}  // namespace shmap::cuda
