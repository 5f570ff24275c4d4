// Libraries that are opened late: the places where they are looked for, and the messages if they
// are missing, wrong, or too old.
#include "cuda/libraries/late_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/libraries/nvrtc_api.h"
#include "shmap/error.h"
#include "tests/support/error_text.h"

namespace shmap::cuda {
namespace {

using test::expect_error;

constexpr const char* kNames[] = {"libshmap_absent.so.1", "libshmap_absent.so"};
constexpr LateLibraryInfo kAbsent = {"Absentia", kNames, env::Var::nvrtc_path, "absent_function",
                                     "libabsent-dev"};

class LateLibraryTest : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("SHMAP_NVRTC_PATH"); }
};

TEST_F(LateLibraryTest, AnAbsentOneSaysWhatWasTried) {
  expect_error<DeviceError>([] { LateLibrary library(kAbsent); },
                            {"Absentia", "libshmap_absent.so.1: ", "libshmap_absent.so: ",
                             "libabsent-dev", "SHMAP_NVRTC_PATH"});
}

TEST_F(LateLibraryTest, AVariableIsTriedAlone) {
  setenv("SHMAP_NVRTC_PATH", "/nowhere/lib.so", 1);
  try {
    LateLibrary library(kAbsent);
    FAIL();
  } catch (const DeviceError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("/nowhere/lib.so: "), std::string::npos) << text;
    EXPECT_NE(text.find("(by SHMAP_NVRTC_PATH)"), std::string::npos) << text;
    EXPECT_EQ(text.find("libshmap_absent"), std::string::npos) << text;
  }
}

TEST_F(LateLibraryTest, AnotherLibraryLacksTheFunction) {
  setenv("SHMAP_NVRTC_PATH", "libm.so.6", 1);
  const LateLibrary library(kAbsent);
  double (*cosine)(double) = nullptr;
  library.load("cos", cosine);
  EXPECT_EQ(cosine(0), 1);
  void (*absent)() = nullptr;
  expect_error<DeviceError>(
      [&] { library.load("absent_function", absent); },
      {"Absentia", "libm", "has no function absent_function", "libabsent-dev", "SHMAP_NVRTC_PATH"});
  expect_error<DeviceError>([&] { library.throw_version("1.2", "2.0"); },
                            {"Absentia", "version 1.2", "2.0 or newer", "libabsent-dev"});
}

TEST_F(LateLibraryTest, WhatTheProcessHasIsTaken) {
  constexpr LateLibraryInfo kThere = {"libc", kNames, env::Var::nvrtc_path, "strtol", "libc6"};
  const LateLibrary library(kThere);
  EXPECT_EQ(library.origin(), "this process");
  decltype(&std::strtol) function = nullptr;
  library.load("strtol", function);
  EXPECT_EQ(function("12", nullptr, 10), 12);
}

// A driver of CUDA 12 cannot load what NVRTC 13 makes.
TEST_F(LateLibraryTest, NvrtcIsOfAVersionThatTheDriverCanLoad) {
  using ::testing::ElementsAre;
  using ::testing::StrEq;
  EXPECT_THAT(nvrtc_names(12040),
              ElementsAre(StrEq("libnvrtc.so.12"), StrEq("libnvrtc.so"), StrEq("libnvrtc.so.13")));
  for (const int driver : {13000, 13020, 14000, 0})
    EXPECT_THAT(nvrtc_names(driver),
                ElementsAre(StrEq("libnvrtc.so.13"), StrEq("libnvrtc.so.12"), StrEq("libnvrtc.so")))
        << driver;
}

}  // namespace
}  // namespace shmap::cuda
