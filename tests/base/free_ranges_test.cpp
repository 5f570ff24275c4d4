// FreeRanges: first fit, alignment, and the joining of neighbours.
#include "core/base/free_ranges.h"

#include <gtest/gtest.h>

namespace shmap {
namespace {

TEST(FreeRanges, GivesTheFirstRangeThatFits) {
  FreeRanges free;
  EXPECT_EQ(free.take(1), FreeRanges::kNone);
  free.give(0, 8);
  free.give(16, 32);
  EXPECT_EQ(free.take(16), 16);
  EXPECT_EQ(free.take(8), 0);
  EXPECT_EQ(free.take(17), FreeRanges::kNone);
  EXPECT_EQ(free.take(16), 32);
  EXPECT_EQ(free.take(1), FreeRanges::kNone);
}

TEST(FreeRanges, KeepsWhatLiesBeforeAnAlignedOffset) {
  FreeRanges free;
  free.give(8, 56);
  EXPECT_EQ(free.take(16, 32), 32);
  EXPECT_EQ(free.take(24), 8);   // 8 … 31
  EXPECT_EQ(free.take(16), 48);  // 48 … 63
  EXPECT_EQ(free.take(1), FreeRanges::kNone);
}

TEST(FreeRanges, JoinsARangeWithItsNeighbours) {
  FreeRanges free;
  free.give(0, 8);
  free.give(16, 8);
  EXPECT_EQ(free.take(24), FreeRanges::kNone);
  free.give(8, 8);
  EXPECT_EQ(free.take(24), 0);
}

}  // namespace
}  // namespace shmap
