// Work whose calls are queued, as one uses a GPU: a batch is timed from its first call to the end
// of the wait after its last call. Also work that times only what a call costs the host.
#pragma once
#include <shmap/shmap.h>

#include <chrono>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/support/rows.h"

namespace shmap::bench {

inline void wait(const Array& x) { x.block_until_ready(); }
inline void wait(const std::vector<Array>& all) {
  for (const Array& x : all) x.block_until_ready();
}

// `f()` returns a default-constructible result that a wait() takes. A result is dropped before the
// next call, so that its memory is reused. `check` gets the latest result.
template <class F, class Check>
Work queued(F f, Check check) {
  using Result = std::decay_t<std::invoke_result_t<F&>>;
  auto result = std::make_shared<Result>();
  auto time_batch = [result, f](std::int64_t n) {
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t k = 0; k < n; ++k) {
      *result = Result();
      *result = f();
    }
    wait(*result);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  return {{}, [result, check] { return check(*result); }, time_batch};
}

// Measures the time until a call returns. The wait for each result is outside of that time.
template <class F, class Check>
Work host_time(F f, Check check) {
  using Result = std::decay_t<std::invoke_result_t<F&>>;
  auto result = std::make_shared<Result>();
  auto time_batch = [result, f](std::int64_t n) {
    double seconds = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      *result = Result();
      const auto start = std::chrono::steady_clock::now();
      *result = f();
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      wait(*result);
    }
    return seconds;
  };
  Work work;
  work.check = [result, check] { return check(*result); };
  work.time_batch = time_batch;
  work.max_calls = 64;
  return work;
}

}  // namespace shmap::bench
