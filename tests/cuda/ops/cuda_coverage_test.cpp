// GPUs compute everything that the CPU computes.
#include <gtest/gtest.h>

#include "core/ir/primitive.h"
#include "core/ir/trace.h"

namespace shmap {
namespace {

TEST(CudaCoverage, EveryPrimitiveWithAKernelOfTheCpuHasOneOfCuda) {
  ensure_started();
  int kernels = 0;
  for (const Primitive* p : all_primitives()) {
    if (!p->kernel(DeviceKind::cpu).run || p->no_kernel) continue;
    ++kernels;
    EXPECT_NE(p->kernel(DeviceKind::cuda).run, nullptr) << p->name;
  }
  EXPECT_GT(kernels, 60);
}

}  // namespace
}  // namespace shmap
