// The instruction set whose kernels this machine runs (targets-inl.h).
#pragma once
#include <cstddef>

namespace shmap::cpu {

// From the best one down: Highway's targets AVX3 and AVX2, and what the compiler is told to assume.
enum class InstructionSet { avx512, avx2, baseline };
inline constexpr std::size_t kInstructionSets = 3;

// The best one that the processor and the operating system have, and that SHMAP_INSTRUCTION_SET
// allows; read once. Libraries of matrix products choose for themselves.
InstructionSet instruction_set();

// The best of the kernels that this machine runs; `kernels` has one for each instruction set, and
// null for those that were not compiled. There is always one for the baseline.
template <class Kernel>
Kernel best_kernel_of(const Kernel (&kernels)[kInstructionSets]) {
  auto set = static_cast<std::size_t>(instruction_set());
  while (kernels[set] == nullptr) ++set;
  return kernels[set];
}

}  // namespace shmap::cpu
