#include "core/cpu/kernels/vector/instruction_set.h"

#include <algorithm>
#include <string>

#include "core/base/env.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace shmap::cpu {
namespace {

#if defined(__x86_64__)
// Has what Highway lets the compiler assume for AVX2. Not every compiler's __builtin_cpu_supports
// knows F16C and LZCNT.
bool has_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned f16c = 1u << 29, lzcnt = 1u << 5;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul") &&
         __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & f16c) != 0 &&
         __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & lzcnt) != 0;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd");
}
#endif

InstructionSet best_of_machine() {
#if defined(__x86_64__)
  if (has_avx2()) return has_avx512() ? InstructionSet::avx512 : InstructionSet::avx2;
#endif
  return InstructionSet::baseline;
}

InstructionSet most_allowed() {
  const std::string text = env::text(env::Var::instruction_set);
  if (text == "avx2") return InstructionSet::avx2;
  return text == "baseline" ? InstructionSet::baseline : InstructionSet::avx512;
}

}  // namespace

InstructionSet instruction_set() {
  static const InstructionSet set = std::max(best_of_machine(), most_allowed());
  return set;
}

}  // namespace shmap::cpu
