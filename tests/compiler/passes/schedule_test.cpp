// The order of equations: collectives come early, readers of their results late.
#include "core/compiler/passes/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "shmap/shmap.h"

namespace shmap {
namespace {

std::vector<std::string> names(const Jaxpr& jaxpr) {
  std::vector<std::string> out;
  for (const Eqn& e : jaxpr.eqns) out.emplace_back(e.primitive->name);
  return out;
}

// The body of a shard_map over 8 devices, of blocks f32[64,64]{i}.
template <class F>
JaxprRef traced(F f) {
  const auto mapped = shard_map(f, AbstractMesh({8}, "i"), P("i"), P("i"));
  const ClosedJaxpr j = make_jaxpr(mapped)(ShapedArray({512, 64}, f32));
  return JaxprRef(inner_jaxprs(*j.impl().jaxpr->eqns.at(0).params).at(0));
}

TEST(Schedule, CollectivesStartBeforeWorkThatDoesNotNeedThem) {
  const JaxprRef j = traced([](Array x) {
    const Array product = matmul(x, x);
    const Array total = psum(x, "i");
    return product + total;
  });
  EXPECT_EQ(names(*j), (std::vector<std::string>{"dot_general", "psum", "pbroadcast", "add"}));
  EXPECT_EQ(names(*schedule(*j))[0], "psum");
}

TEST(Schedule, WhatReadsACollectiveWaitsWhileThereIsOtherWork) {
  const JaxprRef j = traced([](Array x) {
    const Array moved = ppermute(x, "i", {{0, 1}});
    const Array late = sin(moved);
    const Array other = matmul(x, x);
    return late + other;
  });
  EXPECT_EQ(names(*j), (std::vector<std::string>{"ppermute", "sin", "dot_general", "add"}));
  EXPECT_EQ(names(*schedule(*j)),
            (std::vector<std::string>{"ppermute", "dot_general", "sin", "add"}));
}

TEST(Schedule, CollectivesKeepTheirOrder) {
  const JaxprRef j = traced([](Array x) {
    const Array late = psum(matmul(x, x), "i");
    const Array early = pmax(x, "i");
    return late + early;
  });
  const std::vector<std::string> order = names(*schedule(*j));
  const auto at = [&](const std::string& name) {
    return std::find(order.begin(), order.end(), name) - order.begin();
  };
  EXPECT_LT(at("psum"), at("pmax"));
}

TEST(Schedule, AProgramInOrderIsLeftAsItIs) {
  const JaxprRef j = traced([](Array x) { return sin(cos(x)); });
  EXPECT_EQ(schedule(*j).get(), j.get());
}

}  // namespace
}  // namespace shmap
