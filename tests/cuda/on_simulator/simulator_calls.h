// Helpers of tests on the simulator for errors and for the log of calls.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda_sim.h"

namespace shmap::test {

// The text of the error E that `f` throws.
template <class E, class F>
std::string text_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing thrown";
}

// The number of calls of the function in the log (shmap_sim::record_calls).
inline std::int64_t calls_of(const std::string& function) {
  const std::vector<std::string> all = shmap_sim::calls();
  return std::count_if(all.begin(), all.end(),
                       [&](const std::string& call) { return call.rfind(function, 0) == 0; });
}

}  // namespace shmap::test
