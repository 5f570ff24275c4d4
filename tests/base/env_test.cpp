#include "core/base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "shmap/error.h"

namespace shmap::env {
namespace {

using ::testing::HasSubstr;

class EnvTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.insert(name);
  }
  std::set<std::string> set_;
};

TEST_F(EnvTest, TheTableIsWhole) {
  std::set<std::string> names;
  for (const Variable& v : table()) {
    EXPECT_TRUE(std::string(v.name).starts_with("SHMAP_"));
    EXPECT_TRUE(names.insert(v.name).second) << v.name;
    EXPECT_STRNE(v.doc, "");
    EXPECT_STRNE(v.forms, "");
    unsetenv(v.name);
    switch (v.kind) {  // each default can be read
      case Kind::text:
        text(v.var);
        break;
      case Kind::flag:
        flag(v.var);
        break;
      case Kind::integer:
        integer(v.var);
        break;
      case Kind::bytes:
        bytes(v.var);
        break;
      case Kind::seconds:
        seconds(v.var);
        break;
    }
  }
  EXPECT_NO_THROW(check());
}

TEST_F(EnvTest, ReadsEachKind) {
  EXPECT_EQ(bytes(Var::memory_limit), -1);
  for (const auto& [given, wanted] : {std::pair{"0", std::int64_t{0}},
                                      {"1048576", 1 << 20},
                                      {"64K", 64 << 10},
                                      {"3m", 3 << 20},
                                      {"2G", std::int64_t{2} << 30},
                                      {"2GiB", std::int64_t{2} << 30},
                                      {"7B", 7},
                                      {"1TB", std::int64_t{1} << 40}}) {
    set("SHMAP_MEMORY_LIMIT", given);
    EXPECT_EQ(bytes(Var::memory_limit), wanted) << given;
  }
  for (const char* bad :
       {"-1", "1.5G", "G", "12X", "9223372036854775808", "9223372036854775807K", "1 G", "0x10"}) {
    set("SHMAP_MEMORY_LIMIT", bad);
    EXPECT_THROW(bytes(Var::memory_limit), ValueError) << bad;
    EXPECT_THROW(check(), ValueError) << bad;
  }
  unsetenv("SHMAP_MEMORY_LIMIT");
  EXPECT_EQ(seconds(Var::collective_warn_sec), 30);
  set("SHMAP_COLLECTIVE_WARN_SEC", "0.25");
  EXPECT_EQ(seconds(Var::collective_warn_sec), 0.25);
  for (const char* bad : {"nan", "inf", "-1", "1s", "1e99"}) {
    set("SHMAP_COLLECTIVE_WARN_SEC", bad);
    EXPECT_THROW(check(), ValueError) << bad;
  }
  unsetenv("SHMAP_COLLECTIVE_WARN_SEC");
  EXPECT_EQ(integer(Var::workers), -1);
  set("SHMAP_WORKERS", "3");
  EXPECT_EQ(integer(Var::workers), 3);
  for (const char* bad : {"0", "4097", "two", "3 ", "99999999999999999999"}) {
    set("SHMAP_WORKERS", bad);
    EXPECT_THROW(check(), ValueError) << bad;
  }
  unsetenv("SHMAP_WORKERS");
  for (const char* yes : {"1", "true", "ON", "Yes"}) {
    set("SHMAP_CHECK_NANS", yes);
    EXPECT_TRUE(flag(Var::check_nans));
  }
  for (const char* no : {"0", "false", "off", "NO", ""}) {
    set("SHMAP_CHECK_NANS", no);
    EXPECT_FALSE(flag(Var::check_nans));
  }
  set("SHMAP_CHECK_NANS", "maybe");
  EXPECT_THROW(flag(Var::check_nans), ValueError);
}

TEST_F(EnvTest, AnUnknownNameIsAnErrorWithTheNearest) {
  set("SHMAP_MEMORYLIMIT", "1G");
  try {
    check();
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), HasSubstr("SHMAP_MEMORYLIMIT is none"));
    EXPECT_THAT(e.what(), HasSubstr("the nearest is SHMAP_MEMORY_LIMIT"));
  }
  unsetenv("SHMAP_MEMORYLIMIT");
  set("SHMAP_TEST_SOMETHING", "x");  // not the library's
  set("SHMAPLE", "x");
  EXPECT_NO_THROW(check());
}

TEST_F(EnvTest, AHostileValueIsCutAndCleaned) {
  set("SHMAP_WORKERS", std::string(1'000'000, '\x01'));
  try {
    check();
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_LT(std::string(e.what()).size(), 400u);
    EXPECT_EQ(std::string(e.what()).find('\x01'), std::string::npos);
  }
}

}  // namespace
}  // namespace shmap::env
