// Random numbers, overlapped products, programs of whole arrays, collectives under transforms and
// in loops, arrays that go from mesh to mesh and data-parallel training of several processes have
// the bits that they have in one.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/support/mpirun.h"

namespace shmap::test {
namespace {

// The lines of the program alone: mpirun may write warnings among them.
std::string values_of(const JobOutcome& outcome) {
  std::istringstream lines(outcome.output);
  std::string values;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("value ")) values += line + "\n";
  return values;
}

TEST(ProcessNumbers, EveryLayoutHasTheBitsOfOneProcess) {
  const std::string program = program_for_mpirun("process_numbers_program");
  if (program.empty()) GTEST_SKIP() << "OpenMPI is not installed";
  const JobOutcome one = run_processes(program, "", 1, 8);
  ASSERT_EQ(one.status, 0) << one.output;
  const std::string values = values_of(one);
  for (const char* name : {"einsum_psum_scatter 2 ", "gradient over split rows ",
                           "gradients of a batch under jit ", "moved back ", "trained b2 "})
    ASSERT_NE(values.find(name), std::string::npos) << one.output;
  for (const int processes : {2, 4, 8}) {
    const JobOutcome several = run_processes(program, "", processes, 8 / processes);
    EXPECT_EQ(several.status, 0) << several.output;
    EXPECT_EQ(values_of(several), values) << processes << " processes";
  }
}

}  // namespace
}  // namespace shmap::test
