#include "core/base/fault.h"

#include <gtest/gtest.h>

#include <string>

#include "shmap/error.h"

namespace shmap::fault {
namespace {

TEST(Fault, NothingHappensUnlessArmed) {
  EXPECT_EQ(point("here"), Action::none);
  const Scoped armed("there:throw");
  EXPECT_EQ(point("here"), Action::none);
  EXPECT_EQ(reached("here"), 1);
  EXPECT_THROW(point("there"), Error);
  EXPECT_EQ(reached("there"), 1);
}

TEST(Fault, TheNthTimeOnOneDevice) {
  const Scoped armed("a@2#3:oom,a@1:nan,b#1:short_read");
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(point("a", 2), i == 3 ? Action::oom : Action::none);
    EXPECT_EQ(point("a", 1), Action::nan);
    EXPECT_EQ(point("a", 0), Action::none);
    EXPECT_EQ(point("b"), i == 1 ? Action::short_read : Action::none);
  }
  EXPECT_EQ(reached("a"), 15);
}

TEST(Fault, EndsWithItsScope) {
  { const Scoped armed("x:throw"); }
  EXPECT_EQ(point("x"), Action::none);
  EXPECT_EQ(reached("x"), 0);
}

TEST(Fault, RefusesWhatItCannotRead) {
  for (const char* bad :
       {"x", ":throw", "x:", "x:explode", "x#0:oom", "x#:oom", "x#-1:oom", "x@a:oom", "x@-1:oom",
        "x:throw,,", "x:sleep=", "x:sleep=-5", "x#99999999999999999999:oom", "#1:oom"}) {
    EXPECT_THROW(arm(bad), ValueError) << bad;
    EXPECT_EQ(point("x"), Action::none) << bad;
  }
  arm({});
}

}  // namespace
}  // namespace shmap::fault
