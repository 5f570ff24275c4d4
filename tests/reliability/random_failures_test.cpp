// shmap-test: devices
// Random programs in which tasks fail beside others that are pending, against a model on the host:
// an operation fails if, and only if, data that it reads failed, with that failure's text; all
// other values are exact, all memory is given back, and nothing hangs. SHMAP_TEST_PROGRAMS sets how
// many programs run, SHMAP_TEST_SEED which comes first. A failure prints the command that repeats
// it, and what the program did.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/failing_new.h"
#include "tests/support/failing_program.h"
#include "tests/support/memory_use.h"
#include "tests/support/program_seeds.h"

namespace shmap {
namespace {

using namespace test;

// Some ten seconds together, on one core.
#ifdef __SANITIZE_THREAD__
constexpr unsigned kPrograms = 10, kPairs = 3;
#else
constexpr unsigned kPrograms = 40, kPairs = 10;
#endif

// A wait for something that does not come says what that is, and fails, long before CTest stops the
// program. The library reads the variables at the first use of a device.
const bool deadline_is_set = [] {
  ::setenv("SHMAP_COLLECTIVE_WARN_SEC", "20", 0);
  ::setenv("SHMAP_COLLECTIVE_TIMEOUT_SEC", "60", 0);
  return true;
}();

// Whether `lines` are the lines that were wanted, in order, of which some may be missing.
bool are_wanted(const std::vector<std::string>& lines, const std::vector<WantedLine>& wanted) {
  std::vector<bool> reached(lines.size() + 1, false);  // by the first wanted lines
  reached[0] = true;
  for (const WantedLine& w : wanted) {
    std::vector<bool> next(lines.size() + 1, false);
    for (std::size_t k = 0; k <= lines.size(); ++k) {
      if (!reached[k]) continue;
      if (!w.certain) next[k] = true;
      if (k < lines.size() && lines[k] == w.text) next[k + 1] = true;
    }
    reached = std::move(next);
  }
  return reached[lines.size()];
}

// Bytes in use of all memory spaces, once all tasks have ended.
std::vector<std::int64_t> bytes_held() {
  wait_for_all();
  return bytes_in_use();
}

// Runs the programs, each on a thread of its own where there are several, and checks what they
// print and that they leave no memory behind.
void run_all(std::vector<std::unique_ptr<FailingProgram>> programs, unsigned seed,
             const std::vector<std::int64_t>& held) {
  ::testing::internal::CaptureStdout();
  std::vector<std::thread> threads;
  for (std::size_t p = 1; p < programs.size(); ++p)
    threads.emplace_back([&program = *programs[p]] { program.run(); });
  programs[0]->run();
  for (std::thread& thread : threads) thread.join();
  std::vector<WantedLine> prints;
  std::string text;
  for (const auto& program : programs) {
    std::ranges::copy(program->prints(), std::back_inserter(prints));
    text += "\n  program:" + program->text();
  }
  const std::size_t plans = programs.size() * FailingProgram::kPlans;
  programs.clear();
  const std::vector<std::int64_t> left = bytes_held();
  const std::string printed = ::testing::internal::GetCapturedStdout();
  // The prints of one function keep their order; those of several need not.
  for (std::size_t plan = 0; plan < plans; ++plan) {
    std::vector<std::string> lines;
    for (std::size_t at = 0, end; (end = printed.find('\n', at)) != printed.npos; at = end + 1)
      if (printed.compare(at, 6, "plan " + std::to_string(plan)) == 0)
        lines.push_back(printed.substr(at, end - at));
    std::vector<WantedLine> wanted;
    std::ranges::copy_if(prints, std::back_inserter(wanted),
                         [&](const WantedLine& w) { return w.plan == plan; });
    EXPECT_TRUE(are_wanted(lines, wanted)) << "prints of plan " << plan;
  }
  EXPECT_EQ(left, held) << "memory is not given back";
  if (!::testing::Test::HasFailure()) return;
  std::cerr << printed;  // with what the programs' checks said
  for (const WantedLine& line : prints)
    std::cerr << "wanted" << (line.certain ? ": " : " perhaps: ") << line.text << "\n";
  ADD_FAILURE() << "repeat with: " << command_for(seed, "random_failures_test") << text;
}

void run_alone(unsigned seed) {
  const std::vector<std::int64_t> held = bytes_held();
  std::vector<std::unique_ptr<FailingProgram>> programs;
  programs.push_back(std::make_unique<FailingProgram>(seed, 0, /*alone=*/true));
  run_all(std::move(programs), seed, held);
}

void run_beside_another(unsigned seed) {
  const std::vector<std::int64_t> held = bytes_held();
  std::vector<std::unique_ptr<FailingProgram>> programs;
  {
    // Both have these arrays.
    FailingProgram first(seed, 0, /*alone=*/false);
    std::vector<Held> arrays = first.some_arrays();
    for (std::size_t p = 0; p < 2; ++p)
      programs.push_back(std::make_unique<FailingProgram>(seed * 2 + static_cast<unsigned>(p),
                                                          p * FailingProgram::kPlans,
                                                          /*alone=*/false, arrays));
  }
  run_all(std::move(programs), seed, held);
}

void run_seeds(unsigned programs, void (*run)(unsigned seed)) {
  if (devices().size() < 8) GTEST_SKIP() << "takes eight devices";
  // Simulated GPUs take several times as long.
  if (devices()[0].kind() != DeviceKind::cpu) programs = programs / 4;
  const unsigned first = setting("SHMAP_TEST_SEED", 0),
                 count = setting("SHMAP_TEST_PROGRAMS", programs);
  for (unsigned k = 0; k < count && !::testing::Test::HasFailure(); ++k) run(first + k);
}

TEST(RandomFailures, ConcernWhatReadsThemAlone) { run_seeds(kPrograms, run_alone); }
TEST(RandomFailures, OfOneThreadDoNotConcernAnother) { run_seeds(kPairs, run_beside_another); }

}  // namespace
}  // namespace shmap
