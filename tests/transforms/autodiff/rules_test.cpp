// Every primitive has each rule, or says why it has none.
#include <gtest/gtest.h>

#include <string>

#include "core/ir/primitive.h"
#include "core/ir/trace.h"

namespace shmap {
namespace {

// What a primitive says that nobody has thought about.
const std::string kNothing = Rule<JvpFn>().reason();

template <class Fn>
std::string missing(Rule<Fn> Primitive::*rule) {
  std::string out;
  for (const Primitive* p : all_primitives())
    if (!(p->*rule) && (p->*rule).reason() == kNothing) out += std::string(" ") + p->name;
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

// By what it sends, simulate knows its time: one that says nothing would take none.
TEST(Rules, CollectivesSayWhatTheySend) {
  ensure_started();
  std::string silent;
  for (const Primitive* p : all_primitives())
    if (p->group && !p->moves_data()) silent += std::string(" ") + p->name;
  EXPECT_EQ(silent, " assume_equal axis_index debug_print pbroadcast placed_slice pscatter");
}

}  // namespace
}  // namespace shmap
