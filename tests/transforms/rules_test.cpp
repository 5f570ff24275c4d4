// Every primitive has each rule, or says why it has none.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/ir/primitive.h"
#include "core/ir/trace.h"

namespace shmap {
namespace {

// What a primitive says that nobody has thought about.
const std::string kNothing = Rule<JvpFn>().reason();

// Families whose rules are being written.
const std::set<std::string> kPending = {"cond",        "scan",      "while",
                                        "debug_print", "shard_map", "scatter_add"};

template <class Fn>
std::string missing(Rule<Fn> Primitive::*rule) {
  std::string out;
  for (const Primitive* p : all_primitives()) {
    const bool pending = kPending.count(p->name) != 0;
    if (!(p->*rule) && (p->*rule).reason() == kNothing && !pending)
      out += std::string(" ") + p->name;
  }
  return out;
}

TEST(Rules, EveryPrimitiveHasThemOrSaysWhyNot) {
  ensure_started();
  ASSERT_GT(all_primitives().size(), 80u);
  EXPECT_EQ(missing(&Primitive::jvp), "");
  EXPECT_EQ(missing(&Primitive::transpose), "");
  EXPECT_EQ(missing(&Primitive::batching), "");
  EXPECT_EQ(missing(&Primitive::sharding), "");
}

// A transpose belongs to what is linear, and that has a derivative.
TEST(Rules, WhatIsTransposedIsDifferentiated) {
  ensure_started();
  for (const Primitive* p : all_primitives()) EXPECT_TRUE(p->jvp || !p->transpose) << p->name;
}

}  // namespace
}  // namespace shmap
