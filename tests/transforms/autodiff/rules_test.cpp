// Every primitive has each rule, or says why it has none.
#include <gtest/gtest.h>

#include <string>

#include "core/ir/primitive.h"
#include "core/ir/trace.h"

namespace shmap {
namespace {

// The reason of a rule that nobody has set.
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

// simulate computes a collective's time from the bytes that it sends; one that gives none would
// take no time.
TEST(Rules, CollectivesSayWhatTheySend) {
  ensure_started();
  std::string silent;
  for (const Primitive* p : all_primitives())
    if (p->group && !p->moves_data()) silent += std::string(" ") + p->name;
  EXPECT_EQ(silent, " assume_equal axis_index debug_print pbroadcast placed_slice pscatter");
}

}  // namespace
}  // namespace shmap
