// Checks a function's communication in three ways that must agree: by the cost of its program, by
// the counters of an eager run, and by the counters of jit's calls.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "shmap/counters.h"
#include "shmap/jaxpr.h"
#include "shmap/jit.h"
#include "shmap/make_jaxpr.h"

namespace shmap::test {

// "psum(i) 4": a collective, its axes and its input bytes on a device. Sorted.
inline std::vector<std::string> collectives_in(const ClosedJaxpr& jaxpr) {
  std::vector<std::string> out;
  for (const CollectiveCost& c : cost_analysis(jaxpr).collectives) {
    std::string text = c.primitive + "(";
    for (std::size_t k = 0; k < c.axes.size(); ++k) text += (k ? "," : "") + c.axes[k];
    out.push_back(text + ") " + std::to_string(c.bytes));
  }
  std::sort(out.begin(), out.end());
  return out;
}

// f communicates `want` and nothing else: as a program, eagerly, and at three calls of jit.
template <class F, class... A>
void expect_collectives(const F& f, std::vector<std::string> want, const A&... args) {
  std::sort(want.begin(), want.end());
  const ClosedJaxpr jaxpr = make_jaxpr(f)(args...);
  EXPECT_EQ(collectives_in(jaxpr), want) << to_string(jaxpr);
  const auto n = static_cast<std::int64_t>(want.size());
  reset_counters();
  f(args...);
  EXPECT_EQ(counters().collectives, n) << "eagerly";
  const auto jitted = jit(f);
  for (int call = 0; call < 3; ++call) {
    reset_counters();
    jitted(args...);
    EXPECT_EQ(counters().collectives, n) << "call " << call << " of jit";
  }
}

}  // namespace shmap::test
