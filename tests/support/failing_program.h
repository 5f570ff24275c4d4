// Random programs in which tasks fail beside others that are pending, against a model on the host.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shmap/array.h"
#include "tests/support/failing_ops.h"

namespace shmap::test {

// A line that a program prints, for certain or perhaps.
struct WantedLine {
  std::size_t plan;  // the number of the plan that prints it
  std::string text;
  bool certain;
};

// An array, and what is known of it.
struct Held {
  Array array;
  Outcome outcome;
  std::int64_t extent() const { return static_cast<std::int64_t>(outcome.numbers.size()); }
};

// Waits until all tasks have ended. Failures that nobody waited for are reported once, and must be
// such as these programs cause.
void wait_for_all();

// Eager operations and calls of three plans on a pool of arrays, of which some fail, or come
// through a gate that is closed for a while. Differences from the model are failures of the test.
class FailingProgram {
 public:
  static constexpr std::size_t kPlans = 3;

  // first_plan: the number of its first plan. alone: whether no other program runs beside it, which
  // would meet the faults that are injected for this one. arrays: the first ones of its pool.
  FailingProgram(unsigned seed, std::size_t first_plan, bool alone, std::vector<Held> arrays = {});
  ~FailingProgram();

  void run();
  // In place of run(): arrays of which one fails.
  std::vector<Held> some_arrays();

  const std::vector<WantedLine>& prints() const;
  std::string text() const;  // what it did

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace shmap::test
