#include "core/base/fault.h"

#include <gtest/gtest.h>

#include <string>

#include "shmap/error.h"

namespace shmap::fault {
namespace {

TEST(Fault, NothingHappensUnlessArmed) {
  EXPECT_EQ(point("here"), Action::none);
  const Scoped armed("collective:throw");
  EXPECT_EQ(point("here"), Action::none);
  EXPECT_EQ(reached("here"), 1);
  EXPECT_THROW(point("collective"), Error);
  EXPECT_EQ(reached("collective"), 1);
}

TEST(Fault, TheNthTimeOnOneDevice) {
  const Scoped armed("kernel@2#3:oom,kernel@1:nan,read#1:short_read");
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(point("kernel", 2), i == 3 ? Action::oom : Action::none);
    EXPECT_EQ(point("kernel", 1), Action::nan);
    EXPECT_EQ(point("kernel", 0), Action::none);
    EXPECT_EQ(point("read"), i == 1 ? Action::short_read : Action::none);
  }
  EXPECT_EQ(reached("kernel"), 15);
}

TEST(Fault, EndsWithItsScope) {
  { const Scoped armed("read:throw"); }
  EXPECT_EQ(point("read"), Action::none);
  EXPECT_EQ(reached("read"), 0);
}

TEST(Fault, RefusesWhatItCannotRead) {
  for (const char* bad : {"read", ":throw", "read:", "read:explode", "read#0:oom", "read#:oom",
                          "read#-1:oom", "read@a:oom", "read@-1:oom", "read:throw,,",
                          "read:sleep=", "read:sleep=-5", "read#99999999999999999999:oom", "#1:oom",
                          "kernal:throw", "Kernel:throw", "kernel :throw"}) {
    EXPECT_THROW(arm(bad), ValueError) << bad;
    EXPECT_EQ(point("read"), Action::none) << bad;
  }
  arm({});
}

}  // namespace
}  // namespace shmap::fault
