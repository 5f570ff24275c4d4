// Random numbers, overlapped products, programs of whole arrays and data-parallel training of
// several processes have the bits that they have in one.
#include <gtest/gtest.h>

#include "tests/support/mpirun.h"

namespace shmap::test {
namespace {

TEST(ProcessNumbers, EveryLayoutHasTheBitsOfOneProcess) {
  const std::string program = program_for_mpirun("process_numbers_program");
  if (program.empty()) GTEST_SKIP() << "OpenMPI is not installed";
  const JobOutcome one = run_processes(program, "", 1, 8);
  ASSERT_EQ(one.status, 0) << one.output;
  ASSERT_NE(one.output.find("einsum_psum_scatter 2 "), std::string::npos) << one.output;
  ASSERT_NE(one.output.find("gradient over split rows "), std::string::npos) << one.output;
  ASSERT_NE(one.output.find("trained b2 "), std::string::npos) << one.output;
  for (const int processes : {2, 4, 8}) {
    const JobOutcome several = run_processes(program, "", processes, 8 / processes);
    EXPECT_EQ(several.status, 0) << several.output;
    EXPECT_EQ(several.output, one.output) << processes << " processes";
  }
}

}  // namespace
}  // namespace shmap::test
