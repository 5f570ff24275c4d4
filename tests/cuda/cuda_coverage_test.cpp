// Whatever the CPU computes GPUs compute too.
#include <gtest/gtest.h>

#include <string_view>

#include "core/ir/primitive.h"
#include "core/ir/trace.h"

namespace shmap {
namespace {

TEST(CudaCoverage, EveryPrimitiveWithAKernelOfTheCpuHasOneOfCuda) {
  ensure_started();
  int kernels = 0;
  for (const Primitive* p : all_primitives()) {
    if (!p->kernel(DeviceKind::cpu).run) continue;
    // A loop as one task of its device is made of calls of CPU kernels alone: on GPUs a loop has a
    // graph for its trips.
    const std::string_view name = p->name;
    if (name == "flow_task" || name == "branch_task") continue;
    // Made by passes of programs for the CPU.
    if (name == "fused_columns" || name == "gather_reduce" || name == "concatenate_slices")
      continue;
    ++kernels;
    EXPECT_NE(p->kernel(DeviceKind::cuda).run, nullptr) << p->name;
  }
  EXPECT_GT(kernels, 60);
}

}  // namespace
}  // namespace shmap
