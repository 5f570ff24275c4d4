// The times of the first calls of a function under jit.
#pragma once
#include <chrono>

namespace shmap::bench {

// The seconds until call() returns.
template <class Call>
double seconds_of(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The seconds of two calls, each until wait() returns.
template <class Call, class Wait>
double seconds_of_two(const Call& call, const Wait& wait) {
  return seconds_of([&] {
    for (int k = 0; k < 2; ++k) {
      call();
      wait();
    }
  });
}

}  // namespace shmap::bench
