#include "core/cpu/kernels/vector/instruction_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <set>
#include <sstream>
#include <string>

#include "core/base/env.h"

namespace shmap::cpu {
namespace {

using Kernel = int (*)();
int for_avx512() { return 0; }
int for_avx2() { return 1; }
int for_baseline() { return 2; }

TEST(InstructionSet, TheKernelOfThisMachineIsTaken) {
  const Kernel kernels[] = {for_avx512, for_avx2, for_baseline};
  EXPECT_EQ(best_kernel_of(kernels)(), static_cast<int>(instruction_set()));
}

TEST(InstructionSet, AKernelThatWasNotCompiledIsReplacedByOneForLess) {
  const Kernel without_avx512[] = {nullptr, for_avx2, for_baseline};
  const bool any_avx = instruction_set() != InstructionSet::baseline;
  EXPECT_EQ(best_kernel_of(without_avx512)(), any_avx ? 1 : 2);
  const Kernel alone[] = {nullptr, nullptr, for_baseline};
  EXPECT_EQ(best_kernel_of(alone)(), 2);
}

#if defined(__x86_64__) && defined(__linux__)
TEST(InstructionSet, IsWhatTheKernelSaysThatTheProcessorHas) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && line.rfind("flags", 0) != 0) {
  }
  if (line.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  std::istringstream words(line);
  std::set<std::string> flags;
  for (std::string word; words >> word;) flags.insert(word);
  const auto has = [&](std::initializer_list<const char*> names) {
    bool all = true;
    for (const char* name : names) all = all && flags.count(name) != 0;
    return all;
  };
  const bool avx2 = has({"avx2", "fma", "bmi1", "bmi2", "aes", "pclmulqdq", "f16c"}) &&
                    (has({"abm"}) || has({"lzcnt"}));
  const bool avx512 = avx2 && has({"avx512f", "avx512vl", "avx512dq", "avx512bw", "avx512cd"});
  const InstructionSet best = avx512 ? InstructionSet::avx512
                              : avx2 ? InstructionSet::avx2
                                     : InstructionSet::baseline;
  const std::string text = env::text(env::Var::instruction_set);
  const InstructionSet most = text == "avx2"       ? InstructionSet::avx2
                              : text == "baseline" ? InstructionSet::baseline
                                                   : InstructionSet::avx512;
  EXPECT_EQ(instruction_set(), std::max(best, most));
}
#endif

}  // namespace
}  // namespace shmap::cpu
