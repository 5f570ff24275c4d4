// Files that several processes write and read: the same bytes in every layout, read back on another
// mesh by another number of processes. An error in one process leaves the old file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/mpirun.h"

namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class ProcessFiles : public testing::Test {
 protected:
  void SetUp() override {
    program_ = shmap::test::program_for_mpirun("process_files_program");
    if (program_.empty()) GTEST_SKIP() << "OpenMPI is not installed";
    dir_ = fs::temp_directory_path() / ("shmap_process_files_" + std::to_string(::getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  shmap::test::JobOutcome run(int processes, int devices, const std::string& mode,
                              const fs::path& dir) {
    fs::create_directories(dir);
    return shmap::test::run_processes(program_, mode + " '" + dir.string() + "'", processes,
                                      devices);
  }

  std::string program_;
  fs::path dir_;
};

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_F(ProcessFiles, EveryLayoutWritesTheSameBytesAndReadsTheOthers) {
  const std::pair<int, int> layouts[] = {{1, 8}, {2, 4}, {4, 2}};
  for (const auto& [p, d] : layouts) {
    const auto o = run(p, d, "save", dir_ / std::to_string(p));
    ASSERT_EQ(o.status, 0) << p << ": " << o.output;
  }
  for (const char* name : {"run/checkpoint-00000001.shmap", "w.npy", "all.safetensors"}) {
    const std::string want = bytes_of(dir_ / "1" / name);
    EXPECT_GT(want.size(), 100000u);
    for (const char* other : {"2", "4"}) EXPECT_TRUE(bytes_of(dir_ / other / name) == want) << name;
  }
  for (const auto& [p, d] : layouts) {
    const auto o = run(p, d, "load", dir_ / (p == 4 ? "1" : "4"));
    EXPECT_EQ(o.status, 0) << p << ": " << o.output;
  }
  // Fewer devices load the file than wrote it.
  const auto o = run(2, 2, "load", dir_ / "2");
  EXPECT_EQ(o.status, 0) << o.output;
}

TEST_F(ProcessFiles, TheLastOnesAreKeptWhileTheProgramGoesOn) {
  for (int p : {2, 4}) {
    const auto o = run(p, 8 / p, "keep", dir_ / std::to_string(p));
    EXPECT_EQ(o.status, 0) << o.output;
  }
}

TEST_F(ProcessFiles, WhoHasNothingOfAnArrayDoesNotWaitToSaveIt) {
  const auto o = run(4, 2, "apart", dir_);
  EXPECT_EQ(o.status, 0) << o.output;
}

TEST_F(ProcessFiles, ArraysOfSingleProcessesAreWrittenByThem) {
  for (int p : {2, 4}) {
    const auto o = run(p, 8 / p, "stages", dir_ / std::to_string(p));
    EXPECT_EQ(o.status, 0) << o.output;
  }
}

TEST_F(ProcessFiles, AnErrorInOneIsNamedInAllAndTheOldOneStands) {
  const auto o = run(4, 2, "throw", dir_);
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_THAT(o.output, AllOf(HasSubstr("process 1 caught: the disk of this one is gone"),
                              HasSubstr("process 0 caught: the file was not written, because of "
                                        "process 1 (pid "),
                              HasSubstr("process 3 caught: the file was not written")));
  EXPECT_THAT(o.output, AllOf(HasSubstr("process 0 npy: npy file '/nonexistent/folder/w.npy'"),
                              HasSubstr("process 2 npy: process 0 (pid "),
                              HasSubstr("could not begin the file: npy file")));
  // keep is 1, and no draft is left.
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_ / "run"), fs::directory_iterator()), 1);
}

TEST_F(ProcessFiles, OneThatDiesLeavesTheOldOne) {
  const auto o = run(4, 2, "kill", dir_);
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("process 1 (pid "), HasSubstr("has died")));
  EXPECT_TRUE(fs::exists(dir_ / "run" / "checkpoint-00000001.shmap"));
  EXPECT_FALSE(fs::exists(dir_ / "run" / "checkpoint-00000002.shmap"));
}

}  // namespace
