// Running a function eagerly and under jit, where it must do the same.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "shmap/counters.h"
#include "shmap/jit.h"
#include "shmap/tree.h"

namespace shmap::test {

// The visible properties of an array after waiting for it: type, sharding and elements.
struct Seen {
  std::string type;
  std::string sharding;  // "" where it is not placed
  std::vector<unsigned char> bytes;
};
std::vector<Seen> see(const std::vector<Array>& leaves);

// Reports each leaf that is not the same, bit for bit, or split otherwise.
void expect_same(const std::vector<Seen>& want, const std::vector<Seen>& got,
                 const std::string& when);

// The same values in memory of their own.
Array another_copy(const Array& x);

template <class T>
std::vector<Array> leaves_of(const T& tree) {
  detail::FlatTree flat;
  detail::flatten(tree, flat, flat.node);
  return std::move(flat.leaves);
}

template <class T>
T with_own_memory(const T& tree) {
  std::vector<Array> leaves = leaves_of(tree);
  for (Array& x : leaves) x = another_copy(x);
  std::size_t next = 0;
  return detail::rebuild(tree, leaves, next);
}

// Compares the collectives of jit's calls, and their bytes, with those of the eager run. jit may
// have fewer: it computes once what an eager program computes twice, and drops unused values.
enum class Communication { same, no_more };

// Runs f(args...) eagerly and in five calls of jit(f): traced, captured, replayed, replayed on
// other arrays with the same values, replayed on the first ones again. All results are kept until
// the end and must be the same; so must the arguments. Returns the results of f.
template <class F, class... A>
auto expect_same_under_jit(F f, Communication communication, const A&... args) {
  const std::vector<Seen> given = see(leaves_of(std::tuple<A...>(args...)));
  reset_counters();
  auto want = f(args...);
  const std::vector<Seen> wanted = see(leaves_of(want));
  const Counters eager = counters();
  const auto jitted = jit(f);
  const std::tuple<A...> others(with_own_memory(args)...);
  std::vector<decltype(want)> kept;
  for (int call = 0; call < 5; ++call) {
    reset_counters();
    kept.push_back(call == 3 ? std::apply(jitted, others) : jitted(args...));
    const std::string when = "call " + std::to_string(call) + " of jit";
    expect_same(wanted, see(leaves_of(kept.back())), when);
    const Counters here = counters();
    EXPECT_LE(here.collectives, eager.collectives) << when;
    EXPECT_LE(here.collective_bytes, eager.collective_bytes) << when;
    if (communication == Communication::no_more) continue;
    EXPECT_EQ(here.collectives, eager.collectives) << when;
    EXPECT_EQ(here.collective_bytes, eager.collective_bytes) << when;
  }
  for (const auto& result : kept)
    expect_same(wanted, see(leaves_of(result)), "after all calls of jit");
  expect_same(given, see(leaves_of(std::tuple<A...>(args...))), "the arguments, after all calls");
  return want;
}

}  // namespace shmap::test
