// shmap-test: devices
// .npy files as arrays: every dtype there and back, sharded reading that reads a device's own
// bytes, hostile files.
#include <gtest/gtest.h>
#include <shmap/shmap.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "core/base/fault.h"
#include "tests/support/error_text.h"
#include "tests/support/memory_use.h"

namespace {
// The files that were synced: the inode of each, and whether it had its final name by then.
std::vector<std::pair<ino_t, bool>> synced;
std::string final_name;
}  // namespace

// Replaces the C library's fsync, also for a library under test that is a shared one.
extern "C" int fsync(int fd) {
  struct stat file = {}, named = {};
  fstat(fd, &file);
  synced.emplace_back(file.st_ino, stat(final_name.c_str(), &named) == 0);
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace shmap {
namespace {

class NpyArray : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("shmap_npy_" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }

 private:
  std::filesystem::path dir_;
};

// Bytes that this process has read through system calls so far.
std::int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string key;
  std::int64_t value = 0;
  while (io >> key >> value)
    if (key == "rchar:") return value;
  return -1;
}

// The number of memory spaces of the devices: a replicated array is copied once for each but the
// first.
std::int64_t memory_spaces() {
  const Array x = zeros({1024});
  reset_counters();
  device_put(x, NamedSharding(make_mesh({8}, "i"), P()));
  return 1 + counters().copies;
}

TEST_F(NpyArray, EveryDtypeThereAndBack) {
  for (DType t : {bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64}) {
    SCOPED_TRACE(to_string(t));
    const Array x = reshape(astype(arange(12) % 7, t), {3, 4});
    save_npy(path("x.npy"), x);
    const Array y = load_npy(path("x.npy"));
    EXPECT_EQ(y.type(), x.type());
    EXPECT_EQ(astype(y, f64).to_vector<double>(), astype(x, f64).to_vector<double>());
  }
}

TEST_F(NpyArray, ScalarsAndEmptyArrays) {
  save_npy(path("s.npy"), full({}, 2.5f));
  EXPECT_EQ(load_npy(path("s.npy")).item<float>(), 2.5f);
  save_npy(path("literal.npy"), 2.5f);
  EXPECT_EQ(load_npy(path("literal.npy")).item<float>(), 2.5f);
  save_npy(path("e.npy"), zeros({0, 3}, i32));
  EXPECT_EQ(load_npy(path("e.npy")).type(), ShapedArray({0, 3}, i32));
}

TEST_F(NpyArray, ShardedReadingAndWriting) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = reshape(arange(16 * 6, i32), {16, 6});
  save_npy(path("x.npy"), x);
  for (const P& spec : {P(), P("i"), P(none, "j"), P("i", "j"), P(axes("j", "i")), P("j", none)}) {
    const Array y = load_npy(path("x.npy"), NamedSharding(mesh, spec));
    EXPECT_EQ(y.sharding(), NamedSharding(mesh, spec));
    EXPECT_EQ(y.to_vector<std::int32_t>(), x.to_vector<std::int32_t>()) << spec;
    save_npy(path("y.npy"), y);
    EXPECT_EQ(load_npy(path("y.npy")).to_vector<std::int32_t>(), x.to_vector<std::int32_t>())
        << spec;
  }
}

TEST_F(NpyArray, EachMemorySpaceReadsItsOwnBytes) {
  const Mesh mesh = make_mesh({8}, "i");
  const std::int64_t bytes = std::int64_t{8} << 20;
  save_npy(path("big.npy"), zeros({bytes / 4 / 1024, 1024}));
  const std::int64_t before = bytes_read();
  if (before < 0) GTEST_SKIP() << "/proc/self/io cannot be read here";
  load_npy(path("big.npy"), NamedSharding(mesh, P("i")));
  const std::int64_t split = bytes_read() - before;
  // Split over all devices, the whole file is read once, however many spaces there are.
  EXPECT_GE(split, bytes);
  EXPECT_LT(split, bytes + (bytes >> 4));
  const std::int64_t again = bytes_read();
  load_npy(path("big.npy"), NamedSharding(mesh, P()));
  const std::int64_t whole = bytes_read() - again;
  // Replicated, once for each memory space: no device of a space reads what its neighbour has.
  EXPECT_EQ(whole / bytes, memory_spaces());
}

TEST_F(NpyArray, Errors) {
  using test::expect_error;
  const Mesh mesh = make_mesh({8}, "i");
  expect_error<Error>([&] { load_npy(path("none.npy")); }, {"none.npy"});
  std::ofstream(path("bad.npy")) << "not an array";
  expect_error<ValueError>([&] { load_npy(path("bad.npy")); }, {"bad.npy"});
  save_npy(path("x.npy"), arange(12));
  expect_error<ValueError>([&] { load_npy(path("x.npy"), NamedSharding(mesh, P("i"))); },
                           {"x.npy", "12", "'i'", "size 8"});
  expect_error<ValueError>([&] { load_npy(path("x.npy"), NamedSharding(mesh, P(none, "i"))); },
                           {"length", "rank 1"});
  expect_error<ValueError>([&] { save_npy(path("y.npy"), Array()); }, {"save_npy", "empty"});
}

// Every error of a file names the line that asked for it.
TEST_F(NpyArray, ErrorsNameTheCallersLine) {
  using test::expect_error;
  const Mesh mesh = make_mesh({8}, "i");
  const auto here = [](int line) { return "npy_array_test.cpp:" + std::to_string(line); };
  std::ofstream(path("bad.npy")) << "not an array";
  save_npy(path("x.npy"), arange(12));
  expect_error<Error>([&] { load_npy(path("none.npy")); },
                      {"none.npy", "No such file", here(__LINE__ - 1).c_str()});
  expect_error<ValueError>([&] { load_npy(path("bad.npy")); },
                           {"bad.npy", here(__LINE__ - 1).c_str()});
  expect_error<ValueError>([&] { load_npy(path("x.npy"), NamedSharding(mesh, P("i"))); },
                           {"x.npy", here(__LINE__ - 1).c_str()});
  expect_error<Error>([&] { save_npy(path("no/y.npy"), zeros({2})); },
                      {"no/y.npy", "cannot open the folder", here(__LINE__ - 1).c_str()});
  expect_error<ValueError>([&] { save_npy(path("y.npy"), Array()); },
                           {"save_npy", here(__LINE__ - 1).c_str()});
}

// After a power cut a file with its final name has all its bytes, and the folder has the name: the
// bytes are synced before the file is renamed, and the folder after that.
TEST_F(NpyArray, AreOnTheDiskWithTheirNames) {
  const auto inode = [](const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_ino;
  };
  final_name = path("x.npy");
  synced.clear();
  save_npy(path("x.npy"), arange(12));
  const std::vector<std::pair<ino_t, bool>> want = {{inode(path("x.npy")), false},
                                                    {inode(path("")), true}};
  EXPECT_EQ(synced, want);
}

// Wherever reading goes wrong: the file's name, no memory held, and the next attempt works.
TEST_F(NpyArray, FaultsOfReadingAreErrors) {
  const Mesh mesh = make_mesh({8}, "i");
  const Array x = reshape(arange(1024, i32), {8, 128});
  save_npy(path("x.npy"), x);
  const std::vector<std::int64_t> held = test::bytes_in_use();
  for (const char* action : {"short_read", "throw"}) {
    SCOPED_TRACE(action);
    int failures = 0;
    for (int n = 1;; ++n) {
      fault::Scoped fault("read#" + std::to_string(n) + ":" + action);
      try {
        const Array y = load_npy(path("x.npy"), {mesh, P("i")});
        EXPECT_LT(fault::reached("read"), n) << "the fault did nothing";
        EXPECT_EQ(y.to_vector<std::int32_t>(), x.to_vector<std::int32_t>());
        break;
      } catch (const Error& e) {
        ++failures;
        const std::string text = e.what();
        if (action == std::string("throw")) {
          EXPECT_NE(text.find("fault injected at read"), text.npos) << text;
        } else {
          EXPECT_NE(text.find("x.npy"), text.npos) << text;
        }
      }
      EXPECT_EQ(test::bytes_in_use(), held) << "read " << n;
    }
    // The header, and the rows of each device of this process.
    EXPECT_EQ(failures, 1 + static_cast<int>(local_devices().size()));
  }
}

}  // namespace
}  // namespace shmap
