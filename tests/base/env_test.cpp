#include "core/base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "core/base/nearest_name.h"
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
      case Kind::choice:
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

// The rows of docs/environment.md, "| `NAME` | `default` | text |", by name; the defaults without
// the quotes. A cell that lists several names, or forms of a value, is not one.
std::map<std::string, std::string> documented() {
  std::map<std::string, std::string> rows;
  std::ifstream file(SHMAP_ENVIRONMENT_PAGE);
  EXPECT_TRUE(file.is_open()) << SHMAP_ENVIRONMENT_PAGE;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `SHMAP_")) continue;
    const std::size_t name_end = line.find("` |"), default_end = line.find(" |", name_end + 3);
    if (name_end == std::string::npos || default_end == std::string::npos) {
      ADD_FAILURE() << "cannot be read: " << line;
      continue;
    }
    std::string value = line.substr(name_end + 3, default_end - name_end - 3);
    std::erase_if(value, [](char c) { return c == ' ' || c == '`'; });
    EXPECT_TRUE(rows.emplace(line.substr(3, name_end - 3), value).second) << line;
  }
  return rows;
}

TEST_F(EnvTest, ThePageHasARowForEachVariable) {
  std::map<std::string, std::string> rows = documented();
  for (const Variable& v : table()) {
    const auto row = rows.find(v.name);
    if (row == rows.end()) {
      ADD_FAILURE() << v.name << " has no row in docs/environment.md";
      continue;
    }
    EXPECT_EQ(row->second, v.default_value) << "the default of " << v.name;
    rows.erase(row);
  }
  for (const auto& [name, value] : rows) ADD_FAILURE() << name << " is no variable of the library";
}

// A new variable is either the same in all processes, or stands here.
TEST_F(EnvTest, WhatChangesProgramsMustBeTheSameInAllProcesses) {
  const std::set<std::string> own = {
      "SHMAP_DEVICES",  // compared by their number and kind
      "SHMAP_EXECUTOR",
      "SHMAP_WORKERS",
      "SHMAP_MEMORY_LIMIT",
      "SHMAP_COLLECTIVE_WARN_SEC",
      "SHMAP_COLLECTIVE_TIMEOUT_SEC",
      "SHMAP_FAULT",
      "SHMAP_CHECK_KEYS",
      "SHMAP_EXPLAIN_RETRACE",
      "SHMAP_DUMP",
      "SHMAP_CUBLASLT_PATH",
      "SHMAP_NCCL_PATH",
      "SHMAP_NVRTC_PATH",
      "SHMAP_CUDNN_PATH",
      "SHMAP_MPI_PATH",
      "SHMAP_CACHE_DIR",
      "SHMAP_TIME_GEMMS",
      "SHMAP_DEPENDENT_LAUNCH",
      "SHMAP_ALONE",
      "SHMAP_SHARED_MEMORY"};  // agreed upon by the processes of a node
  std::set<std::string> same;
  for (const Variable& v : table()) {
    EXPECT_NE(v.same, own.contains(v.name)) << v.name;
    if (v.same) same.insert(v.name);
  }
  std::ifstream file(SHMAP_ENVIRONMENT_PAGE);
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("The same in all processes of a job must be ")) continue;
    for (std::size_t at = 0; (at = line.find("`SHMAP_", at)) != line.npos;) {
      const std::size_t end = line.find('`', at + 1);
      documented.insert(line.substr(at + 1, end - at - 1));
      at = end + 1;
    }
  }
  EXPECT_EQ(documented, same);
}

TEST_F(EnvTest, ASettingIsOneTextForOneMeaning) {
  const auto setting_of = [](const char* name) {
    for (const Variable& v : table())
      if (std::string(v.name) == name) return setting(v);
    return std::string();
  };
  EXPECT_EQ(setting_of("SHMAP_TF32"), "SHMAP_TF32=0");
  for (const char* yes : {"1", "true", "ON"}) {
    set("SHMAP_TF32", yes);
    EXPECT_EQ(setting_of("SHMAP_TF32"), "SHMAP_TF32=1");
  }
  EXPECT_EQ(setting_of("SHMAP_OVERLAP"), "SHMAP_OVERLAP=auto");
  set("SHMAP_OVERLAP", "ring");
  EXPECT_EQ(setting_of("SHMAP_OVERLAP"), "SHMAP_OVERLAP=ring");
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

TEST_F(EnvTest, AChoiceIsOneOfItsWords) {
  for (const char* name : {"SHMAP_GRAPHS", "SHMAP_COMMUNICATOR", "SHMAP_LINK", "SHMAP_EXECUTOR"}) {
    for (const char* bad : {"x", "auto,", "Auto", " auto", "seeded:", "seeded:N", "seeded:-1",
                            "seeded:1x", "seeded:18446744073709551616", "async, seeded"}) {
      set(name, bad);
      try {
        check();
        ADD_FAILURE() << name << "=" << bad;
      } catch (const ValueError& e) {
        EXPECT_THAT(e.what(), HasSubstr(std::string(name) + "=\"" + bad + "\" cannot be read"));
      }
    }
    unsetenv(name);
  }
  for (const auto& [name, value, var] :
       {std::tuple{"SHMAP_GRAPHS", "per_gpu", Var::graphs},
        {"SHMAP_COMMUNICATOR", "nccl", Var::communicator},
        {"SHMAP_LINK", "staged", Var::link},
        {"SHMAP_EXECUTOR", "inline", Var::executor},
        {"SHMAP_EXECUTOR", "seeded:18446744073709551615", Var::executor}}) {
    set(name, value);
    EXPECT_NO_THROW(check());
    EXPECT_EQ(text(var), value);
  }
}

TEST_F(EnvTest, AnUnknownNameIsAnErrorWithTheNearest) {
  set("SHMAP_MEMORYLIMIT", "1G");
  try {
    check();
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), HasSubstr("SHMAP_MEMORYLIMIT is not one of this library's"));
    EXPECT_THAT(e.what(), HasSubstr("the nearest is SHMAP_MEMORY_LIMIT"));
  }
  unsetenv("SHMAP_MEMORYLIMIT");
  set("SHMAP_TEST_SOMETHING", "x");  // not the library's
  set("SHMAPLE", "x");
  EXPECT_NO_THROW(check());
}

TEST(DidYouMean, NamesWhatResembles) {
  const std::vector<std::string> axes = {"rows", "cols", "data_parallel", "i"};
  EXPECT_EQ(did_you_mean("row", axes), " (did you mean 'rows'?)");
  EXPECT_EQ(did_you_mean("rosw", axes), " (did you mean 'rows'?)");
  EXPECT_EQ(did_you_mean("COLS", axes), " (did you mean 'cols'?)");
  EXPECT_EQ(did_you_mean("data", axes), " (did you mean 'data_parallel'?)");
  EXPECT_EQ(did_you_mean("I", axes), " (did you mean 'i'?)");
  EXPECT_EQ(did_you_mean("j", axes), "");
  EXPECT_EQ(did_you_mean("heads", axes), "");
  EXPECT_EQ(did_you_mean("", axes), "");
  EXPECT_EQ(did_you_mean("x", {}), "");
  EXPECT_EQ(did_you_mean(std::string(100'000, 'r'), axes), "");
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
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
