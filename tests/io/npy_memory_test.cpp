// The memory for reading and writing, each measured in its own process: the array's, and at most 16
// MiB more. Also files that are larger than any memory.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/io/npy_format.h"
#include "shmap/shmap.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace shmap {
namespace {

namespace fs = std::filesystem;
using test::ChildResult;
using ::testing::HasSubstr;

constexpr std::int64_t kRows = 2000, kColumns = 12800;  // of f32: 98 MiB
constexpr std::int64_t kBytes = kRows * kColumns * 4;
constexpr std::int64_t kAllowed = std::int64_t{16} << 20;

// The bytes of the array in that many blocks; each block is in its own huge pages.
constexpr std::int64_t array_bytes(std::int64_t blocks) {
  constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
  return blocks * ((kBytes / blocks + kHugePage - 1) / kHugePage * kHugePage);
}

std::int64_t peak_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * std::int64_t{1024};
}

class NpyMemory : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_ / name; }

  // A file of that header and zeros that are there: pages of holes would be as good, but slower to
  // read on some file systems.
  void write_file(const std::string& name, bool fortran_order) const {
    std::ofstream out(path(name), std::ios::binary);
    out << io::make_npy_header(f32, {kRows, kColumns}, fortran_order);
    const std::vector<char> zeros(1 << 20);
    for (std::int64_t left = kBytes; left > 0; left -= static_cast<std::int64_t>(zeros.size()))
      out.write(zeros.data(),
                std::min<std::int64_t>(left, static_cast<std::int64_t>(zeros.size())));
  }

  // The growth of a child process's peak memory by `run` since the library started.
  std::int64_t taken_by(const char* devices, const std::function<void()>& prepare,
                        const std::function<void()>& run) const {
    std::vector<std::pair<std::string, std::string>> environment;
    if (!test::asks_for_gpus()) environment = {{"SHMAP_DEVICES", devices}};
    const ChildResult r = test::in_child(environment, [&] {
      zeros({8}).block_until_ready();
      prepare();
      const std::int64_t before = peak_bytes();
      run();
      std::printf("%lld", static_cast<long long>(peak_bytes() - before));
    });
    EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
    return std::atoll(r.output.c_str());
  }

  test::TempFolder directory_{"npy_memory"};
};

NamedSharding split() { return {make_mesh({8}, "i"), P("i")}; }

TEST_F(NpyMemory, ReadingTakesTheFileAndNoCopy) {
  for (const bool fortran_order : {false, true}) {
    write_file("x.npy", fortran_order);
    // Device memory of simulated GPUs is this process's too; a file of columns is read into the
    // host's memory whole, since it can only be turned there.
    const bool staged = test::gpus_are_simulated() && fortran_order;
    for (const char* devices : {"cpu:8", "cpu:8/8"}) {
      SCOPED_TRACE(std::string(devices) + (fortran_order ? ", columns" : ", rows"));
      const auto nothing = [] {};
      const std::int64_t whole =
          taken_by(devices, nothing, [&] { load_npy(path("x.npy")).block_until_ready(); });
      EXPECT_GE(whole, kBytes / 10 * 9);
      EXPECT_LE(whole, array_bytes(1) + (staged ? kBytes : 0) + kAllowed);
      const std::int64_t sharded =
          taken_by(devices, nothing, [&] { load_npy(path("x.npy"), split()).block_until_ready(); });
      EXPECT_GE(sharded, kBytes / 10 * 9);
      EXPECT_LE(sharded, array_bytes(8) + (staged ? kBytes / 8 : 0) + kAllowed);
    }
  }
}

TEST_F(NpyMemory, WritingTakesNoCopy) {
  for (const char* devices : {"cpu:8", "cpu:8/8"}) {
    SCOPED_TRACE(devices);
    static Array x;
    EXPECT_LE(taken_by(
                  devices,
                  [] {
                    x = zeros({kRows, kColumns});
                    x.block_until_ready();
                  },
                  [&] { save_npy(path("whole.npy"), x); }),
              kAllowed);
    EXPECT_LE(taken_by(
                  devices,
                  [] {
                    x = device_put(zeros({kRows, kColumns}), split());
                    x.block_until_ready();
                  },
                  [&] { save_npy(path("split.npy"), x); }),
              kAllowed);
    EXPECT_EQ(fs::file_size(path("whole.npy")), fs::file_size(path("split.npy")));
  }
}

// A file of holes may be of any size.
TEST_F(NpyMemory, AFileLargerThanTheMemoryIsOutOfMemory) {
  const std::string header =
      io::make_npy_header(f32, {std::int64_t{1} << 20, std::int64_t{1} << 20});
  std::ofstream(path("huge.npy"), std::ios::binary) << header;
  std::error_code error;
  fs::resize_file(path("huge.npy"), header.size() + (std::uintmax_t{1} << 42), error);
  if (error) GTEST_SKIP() << "no files of 4 TiB here: " << error.message();
  const ChildResult r = test::in_child({{"SHMAP_DEVICES", "cpu:8"}}, [&] {
    zeros({8}).block_until_ready();
    const rlimit limit = {rlim_t{64} << 30,
                          rlim_t{64} << 30};  // whatever the machine's overcommits
    setrlimit(RLIMIT_AS, &limit);
    for (const bool sharded : {false, true}) {
      try {
        sharded ? load_npy(path("huge.npy"), split()) : load_npy(path("huge.npy"));
      } catch (const OutOfMemory& e) {
        std::printf("[%s]\n", e.what());
      }
    }
    std::printf("%g", static_cast<double>(sum(ones({8})).item<float>()));
  });
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  EXPECT_THAT(r.output, HasSubstr("4.0 TiB"));
  EXPECT_THAT(r.output, HasSubstr("512.0 GiB"));
  EXPECT_THAT(r.output, HasSubstr("in load_npy of '" + path("huge.npy") + "'"));
  EXPECT_THAT(r.output, HasSubstr("npy_memory_test.cpp:"));
  EXPECT_THAT(r.output, ::testing::EndsWith("]\n8"));
}

}  // namespace
}  // namespace shmap
