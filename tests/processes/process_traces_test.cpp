// Traces of several processes fit together: their lanes differ, and each arrow that leaves one
// process arrives in another, not before it left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "tests/support/mpirun.h"

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct End {
  int process;
  double at_us;  // on the machine's clock
  std::string name;
};

class ProcessTraces : public testing::Test {
 protected:
  void SetUp() override {
    program_ = shmap::test::program_for_mpirun("overlap_trace");
    if (program_.empty())
      GTEST_SKIP() << "OpenMPI is not installed, or the examples were not built";
    dir_ = fs::temp_directory_path() / ("shmap_process_traces_" + std::to_string(::getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string program_;
  fs::path dir_;
};

TEST_F(ProcessTraces, OfARingAndOfAGather) {
  constexpr int kProcesses = 4;
  const auto o = shmap::test::run_processes(
      program_, "'" + dir_.string() + "' --rows 64 --inner 32 --columns 64", kProcesses, 1);
  ASSERT_EQ(o.status, 0) << o.output;
  EXPECT_THAT(o.output, testing::HasSubstr("largest difference of the two results"));
  // A ring of four sends three times from each; a gather sends from each to the three others.
  for (const char* name : {"overlapped", "blocking"}) {
    const bool ring = std::string(name) == "overlapped";
    std::map<std::string, End> left, arrived;
    std::set<int> lanes;
    for (int p = 0; p < kProcesses; ++p) {
      std::ifstream in(dir_ / (name + ("." + std::to_string(p)) + ".json"));
      const json whole = json::parse(in);
      EXPECT_EQ(whole.at("otherData").at("process"), p);
      EXPECT_EQ(whole.at("otherData").at("processes"), kProcesses);
      const double begin_us = whole.at("otherData").at("begin_ns").get<double>() / 1000;
      std::set<int> mine;
      for (const json& e : whole.at("traceEvents")) {
        mine.insert(e.at("pid").get<int>());
        if (e.at("ph") != "s" && e.at("ph") != "f") continue;
        auto& ends = e.at("ph") == "s" ? left : arrived;
        const End end{p, begin_us + e.at("ts").get<double>(), e.at("name")};
        EXPECT_TRUE(ends.emplace(e.at("id").get<std::string>(), end).second) << e.dump();
      }
      for (int pid : mine) EXPECT_TRUE(lanes.insert(pid).second) << pid;
    }
    EXPECT_EQ(left.size(), 12u) << name;
    EXPECT_EQ(arrived.size(), left.size()) << name;
    std::set<std::pair<int, int>> from_to;
    for (const auto& [id, from] : left) {
      ASSERT_TRUE(arrived.count(id)) << name << " " << id;
      const End& to = arrived.at(id);
      EXPECT_EQ(to.name, from.name);
      EXPECT_EQ(from.name, ring ? "ppermute" : "all_gather");
      EXPECT_GE(to.at_us, from.at_us) << name << " " << id;
      from_to.emplace(from.process, to.process);
      if (ring) {
        EXPECT_EQ(to.process, (from.process + kProcesses - 1) % kProcesses);
      }
    }
    EXPECT_EQ(from_to.size(), ring ? 4u : 12u) << name;
  }
}

}  // namespace
#endif
