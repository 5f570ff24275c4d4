#include "core/io/npy_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "shmap/error.h"
#include "tests/support/temp_folder.h"

namespace shmap::io {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream s;
  s << in.rdbuf();
  return s.str();
}

// Writes a whole array from C order.
void write_npy(const std::string& path, DType dtype, const Shape& shape, const void* data) {
  NpyWriter writer(path, dtype, shape);
  Slice box[kMaxRank];
  for (std::size_t d = 0; d < shape.size(); ++d) box[d] = {0, shape[d]};
  writer.write_box({box, shape.size()}, data);
  writer.commit();
}

class NpyFileTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_ / name; }
  std::size_t file_count() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()));
  }
  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

  test::TempFolder directory_{"npy_file_test"};
};

// Element k as the golden files have it: see make_npy_goldens.py.
std::vector<std::byte> golden_elements(DType t, std::int64_t count) {
  std::vector<std::byte> out(static_cast<std::size_t>(count * itemsize(t)));
  for (std::int64_t k = 0; k < count; ++k) {
    const auto put = [&](auto v) {
      std::memcpy(out.data() + k * static_cast<std::int64_t>(sizeof v), &v, sizeof v);
    };
    const std::int64_t s = k - 5;
    switch (t) {
      case bool_:
        put(static_cast<std::uint8_t>(k % 3 == 0));
        break;
      case i8:
        put(static_cast<std::int8_t>(s));
        break;
      case i16:
        put(static_cast<std::int16_t>(s));
        break;
      case i32:
        put(static_cast<std::int32_t>(s));
        break;
      case i64:
        put(s);
        break;
      case u8:
        put(static_cast<std::uint8_t>(3 * k));
        break;
      case u16:
        put(static_cast<std::uint16_t>(3 * k));
        break;
      case u32:
        put(static_cast<std::uint32_t>(3 * k));
        break;
      case u64:
        put(static_cast<std::uint64_t>(3 * k));
        break;
      case f16:
        put(float16(static_cast<float>(s)));
        break;
      case bf16:
        put(bfloat16(static_cast<float>(s)));
        break;
      case f32:
        put(static_cast<float>(s));
        break;
      case f64:
        put(static_cast<double>(s));
        break;
      case prng_key:
        ADD_FAILURE();
        break;
    }
  }
  return out;
}

// Reads a box of a C-ordered array in a slow and obvious way.
std::vector<std::byte> box_of(const std::vector<std::byte>& array, const Shape& shape,
                              const std::vector<Slice>& box, int size) {
  std::vector<std::byte> out;
  const std::int64_t total = shape.num_elements();
  for (std::int64_t k = 0; k < total; ++k) {
    bool inside = true;
    std::int64_t rest = k;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d])
      inside &= rest % shape[d] >= box[d].start && rest % shape[d] < box[d].stop;
    if (inside) out.insert(out.end(), array.begin() + k * size, array.begin() + (k + 1) * size);
  }
  return out;
}

std::vector<std::byte> read(const NpyFile& file, const std::vector<Slice>& box) {
  std::int64_t bytes = itemsize(file.header().dtype);
  for (const Slice& s : box) bytes *= s.stop - s.start;
  std::vector<std::byte> out(static_cast<std::size_t>(bytes));
  file.read_box(box, out.data());
  return out;
}

std::vector<Slice> whole(const Shape& shape) {
  std::vector<Slice> box;
  for (std::int64_t e : shape) box.push_back({0, e});
  return box;
}

TEST_F(NpyFileTest, ReadsWhatNumPyWrote) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(SHMAP_GOLDEN_DIR "/npy")) {
    const std::string stem = entry.path().stem().string();
    SCOPED_TRACE(stem);
    const NpyFile file(entry.path().string());
    const NpyHeader& h = file.header();
    EXPECT_EQ(stem.substr(0, stem.find('_')), short_name(h.dtype));
    std::string extents;
    for (std::int64_t e : h.shape) extents += (extents.empty() ? "" : "x") + std::to_string(e);
    EXPECT_THAT(stem, HasSubstr("_" + (extents.empty() ? "scalar" : extents) + "_"));
    EXPECT_EQ(h.big_endian, stem.find("_be") != std::string::npos);
    const auto wanted = golden_elements(h.dtype, h.shape.num_elements());
    std::vector<std::byte> got(wanted.size());
    file.read_all(got.data());
    EXPECT_EQ(got, wanted);
    EXPECT_EQ(file.data_bytes_read(), static_cast<std::int64_t>(wanted.size()));

    const std::string bytes = contents(entry.path());
    if (stem.find("_v") == std::string::npos && !h.big_endian) {
      EXPECT_EQ(make_npy_header(h.dtype, h.shape, h.fortran_order),
                bytes.substr(0, static_cast<std::size_t>(h.data_offset)));
    }
    if (stem.find("_v") == std::string::npos && !h.big_endian && !h.fortran_order) {
      write_npy(path("again.npy"), h.dtype, h.shape, wanted.data());
      EXPECT_EQ(contents(path("again.npy")), bytes);
    }
    ++files;
  }
  EXPECT_GT(files, 100);
}

TEST_F(NpyFileTest, EveryBoxOfASmallArray) {
  for (const char* name : {"f32_2x3x4_c", "f32_2x3x4_f", "f64_2x3x4_c_be", "u16_2x3x4_f_be",
                           "bool_2x3x4_f", "i16_2x1x3x1_f"}) {
    SCOPED_TRACE(name);
    const NpyFile file(std::string(SHMAP_GOLDEN_DIR "/npy/") + name + ".npy");
    const Shape shape = file.header().shape;
    const int size = itemsize(file.header().dtype);
    const auto array = golden_elements(file.header().dtype, shape.num_elements());
    std::vector<Slice> box = whole(shape);
    // All starts and stops of every dim, by counting.
    for (Slice& s : box) s = {0, 0};
    int boxes = 0;
    for (;;) {
      ASSERT_EQ(read(file, box), box_of(array, shape, box, size));
      ++boxes;
      std::size_t d = 0;
      for (; d < box.size(); ++d) {
        if (++box[d].stop <= shape[d]) break;
        if (++box[d].start <= shape[d]) {
          box[d].stop = box[d].start;
          break;
        }
        box[d] = {0, 0};
      }
      if (d == box.size()) break;
    }
    EXPECT_GE(boxes, 6 * 3 * 10 * 3);
  }
}

TEST_F(NpyFileTest, BoxesLargerThanTheStagingBuffer) {
  std::mt19937 random(5);
  for (const Shape& shape : {Shape{700, 300, 7}, Shape{3, 900, 500}, Shape{1500000},
                             Shape{1100, 1300}, Shape{1300000, 2}, Shape{2, 1300000}}) {
    SCOPED_TRACE(to_string(shape));
    const std::int64_t count = shape.num_elements();
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), 0);
    std::string bytes = make_npy_header(i32, shape, true);
    const std::size_t at = bytes.size();
    bytes.resize(at + values.size() * 4);
    // Element k of C order goes to its place in Fortran order.
    for (std::int64_t k = 0; k < count; ++k) {
      std::int64_t rest = k, place = 0;
      std::int64_t index[3] = {};
      for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
      for (std::size_t d = shape.size(); d-- > 0;) place = place * shape[d] + index[d];
      std::memcpy(bytes.data() + at + static_cast<std::size_t>(place) * 4,
                  &values[static_cast<std::size_t>(k)], 4);
    }
    put("f.npy", bytes);
    const NpyFile file(path("f.npy"));
    std::vector<std::int32_t> got(values.size());
    file.read_all(got.data());
    EXPECT_TRUE(got == values);

    std::vector<Slice> box;
    for (std::int64_t e : shape) {
      const auto a = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(e / 2 + 1));
      box.push_back({a, a + e / 2});
    }
    std::vector<std::byte> array(values.size() * 4);
    std::memcpy(array.data(), values.data(), array.size());
    EXPECT_TRUE(read(file, box) == box_of(array, shape, box, 4));
  }
}

TEST_F(NpyFileTest, ABoxReadsItsOwnBytesOnly) {
  std::vector<float> values(64 * 1024);
  std::iota(values.begin(), values.end(), 0.f);
  write_npy(path("a.npy"), f32, {64, 1024}, values.data());
  {
    const NpyFile file(path("a.npy"));
    EXPECT_EQ(file.data_bytes_read(), 0);
    const std::vector<Slice> rows = {{8, 16}, {0, 1024}};
    read(file, rows);
    EXPECT_EQ(file.data_bytes_read(), 8 * 1024 * 4);
  }
  {
    const NpyFile file(path("a.npy"));  // an eighth of the columns: runs of 512 bytes
    const std::vector<Slice> columns = {{0, 64}, {128, 256}};
    read(file, columns);
    EXPECT_EQ(file.data_bytes_read(), 64 * 128 * 4);
  }
  {
    const NpyFile file(path("a.npy"));  // short runs, each a page away from the next
    const std::vector<Slice> columns = {{0, 64}, {0, 1}};
    const auto got = read(file, columns);
    EXPECT_EQ(got.size(), 64u * 4u);
    EXPECT_LE(file.data_bytes_read(), 63 * 4096 + 4);
  }
  const NpyFile file(path("a.npy"));
  const std::vector<Slice> nothing = {{3, 3}, {0, 1024}};
  read(file, nothing);
  EXPECT_EQ(file.data_bytes_read(), 0);
}

TEST_F(NpyFileTest, AFileThatShrinksIsAnError) {
  std::vector<float> values(100000, 1.f);
  write_npy(path("a.npy"), f32, {100000}, values.data());
  const NpyFile file(path("a.npy"));
  ASSERT_EQ(truncate(path("a.npy").c_str(), 200000), 0);
  try {
    file.read_all(values.data());
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("ends at byte 200000"));
    EXPECT_THAT(e.what(), HasSubstr("became shorter since it was opened"));
    EXPECT_THAT(e.what(), HasSubstr(path("a.npy")));
  }
  const std::vector<Slice> start = {{0, 1000}};
  EXPECT_EQ(read(file, start).size(), 4000u);  // what is left can still be read
}

TEST_F(NpyFileTest, BytesOfABoolBecomeZeroOrOne) {
  put("b.npy", make_npy_header(bool_, {4}) + std::string("\x00\x01\x02\xff", 4));
  const NpyFile file(path("b.npy"));
  std::uint8_t got[4];
  file.read_all(got);
  EXPECT_THAT(got, ::testing::ElementsAre(0, 1, 1, 1));
}

TEST_F(NpyFileTest, BadPathsAndBoxesAreErrors) {
  EXPECT_THROW(NpyFile(path("absent.npy")), Error);
  EXPECT_THROW(NpyFile(directory_.path().string()), ValueError);
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_THROW(NpyFile(path("fifo")), ValueError);
  EXPECT_THROW(NpyWriter(path("fifo"), f32, {2}), ValueError);
  EXPECT_THROW(NpyWriter(path("no/such/directory.npy"), f32, {2}), Error);
  EXPECT_THROW(NpyWriter(path("k.npy"), prng_key, {2}), TypeError);
  EXPECT_THROW(NpyWriter(path("k.npy"), f32, {-2}), ValueError);
  EXPECT_THROW(NpyWriter(path("k.npy"), i8, {std::numeric_limits<std::int64_t>::max()}), Error);
  EXPECT_EQ(file_count(), 1u);
  put("empty.npy", "");
  EXPECT_THROW(NpyFile(path("empty.npy")), ValueError);

  const float values[6] = {};
  write_npy(path("a.npy"), f32, {2, 3}, values);
  const NpyFile file(path("a.npy"));
  float dst[6];
  const std::vector<std::vector<Slice>> bad = {{},
                                               {{0, 2}},
                                               {{0, 2}, {0, 4}},
                                               {{-1, 1}, {0, 3}},
                                               {{2, 1}, {0, 3}},
                                               {{0, 1}, {0, 1}, {0, 1}}};
  for (const auto& box : bad) EXPECT_THROW(file.read_box(box, dst), ValueError);
}

TEST_F(NpyFileTest, WritesBoxesFromSeveralThreads) {
  const Shape shape{64, 96};
  std::vector<float> values(64 * 96);
  std::iota(values.begin(), values.end(), 0.f);
  {
    NpyWriter writer(path("a.npy"), f32, shape);
    std::vector<std::thread> threads;
    for (std::int64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const Slice box[] = {{0, 64}, {t * 24, t * 24 + 24}};
        std::vector<float> part;
        for (std::int64_t i = 0; i < 64; ++i)
          for (std::int64_t j = box[1].start; j < box[1].stop; ++j)
            part.push_back(values[static_cast<std::size_t>(i * 96 + j)]);
        writer.write_box(box, part.data());
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_FALSE(fs::exists(path("a.npy")));  // not before it is whole
    writer.commit();
  }
  std::vector<float> got(values.size());
  NpyFile(path("a.npy")).read_all(got.data());
  EXPECT_EQ(got, values);
  EXPECT_EQ(file_count(), 1u);
}

TEST_F(NpyFileTest, WhatIsNotCommittedLeavesNoTrace) {
  put("a.npy", "old");
  const float values[4] = {1, 2, 3, 4};
  {
    NpyWriter writer(path("a.npy"), f32, {8});
    const Slice half[] = {{0, 4}};
    writer.write_box(half, values);
    EXPECT_THROW(writer.commit(), Error);
  }
  { NpyWriter dropped(path("b.npy"), f32, {8}); }
  EXPECT_EQ(contents(path("a.npy")), "old");
  EXPECT_EQ(file_count(), 1u);
}

TEST_F(NpyFileTest, ReplacesAFileKeepingItsModeAndLinks) {
  put("real.npy", "old");
  fs::permissions(path("real.npy"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("real.npy", path("link.npy"));
  const float value = 2.5f;
  write_npy(path("link.npy"), f32, {}, &value);
  EXPECT_TRUE(fs::is_symlink(path("link.npy")));
  EXPECT_EQ(fs::status(path("real.npy")).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  float got = 0;
  NpyFile(path("real.npy")).read_all(&got);
  EXPECT_EQ(got, 2.5f);
  EXPECT_EQ(file_count(), 2u);
}

TEST_F(NpyFileTest, LinksToNothingAreFollowed) {
  const float value = 2.5f;
  fs::create_directory(path("elsewhere"));
  fs::create_symlink("elsewhere/real.npy", path("relative.npy"));
  fs::create_symlink("relative.npy", path("chain.npy"));
  fs::create_symlink(path("elsewhere/other.npy"), path("absolute.npy"));
  for (const auto& [link, target] : {std::pair{"chain.npy", "elsewhere/real.npy"},
                                     std::pair{"absolute.npy", "elsewhere/other.npy"}}) {
    write_npy(path(link), f32, {}, &value);
    EXPECT_TRUE(fs::is_symlink(path(link)));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path(target)))) << target;
    float got = 0;
    NpyFile(path(link)).read_all(&got);
    EXPECT_EQ(got, 2.5f);
  }
  EXPECT_TRUE(fs::is_symlink(path("relative.npy")));
  // Links whose target cannot be created are errors, and stay as they are.
  fs::create_symlink("no/folder/x.npy", path("nowhere.npy"));
  fs::create_symlink("b.npy", path("a.npy"));
  fs::create_symlink("a.npy", path("b.npy"));
  for (const char* link : {"nowhere.npy", "a.npy"}) {
    try {
      write_npy(path(link), f32, {}, &value);
      FAIL() << link;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(path(link)));
      EXPECT_THAT(e.what(), ::testing::AnyOf(HasSubstr("no/folder"), HasSubstr("links")));
    }
    EXPECT_TRUE(fs::is_symlink(path(link)));
  }
}

TEST_F(NpyFileTest, TheLongestNameOfAll) {
  const float value = 2.5f;
  const std::string longest(255, 'x');
  for (int k = 0; k < 2; ++k) write_npy(path(longest), f32, {}, &value);
  EXPECT_EQ(file_count(), 1u);
  EXPECT_THROW(write_npy(path(longest + "x"), f32, {}, &value), Error);
  EXPECT_THROW(write_npy(path("folder/"), f32, {}, &value), ValueError);
  EXPECT_THROW(write_npy("", f32, {}, &value), ValueError);
  EXPECT_EQ(file_count(), 1u);
}

TEST_F(NpyFileTest, APathWithANullCharacterIsAnError) {
  const std::string with_null = path("a") + std::string("\0.npy", 5);
  put("a", "old");
  const auto refused = [&](const std::function<void()>& f) {
    try {
      f();
      FAIL();
    } catch (const ValueError& e) {
      EXPECT_THAT(e.what(), HasSubstr(path("a") + "\\0"));
      EXPECT_THAT(e.what(), HasSubstr("null character at " + std::to_string(path("a").size())));
    }
  };
  refused([&] { NpyFile file(with_null); });
  refused([&] { NpyWriter writer(with_null, f32, {}); });
  EXPECT_EQ(contents(path("a")), "old");
}

// While the new file of a private one is written, nobody else may open it.
TEST_F(NpyFileTest, ADraftNeverHasMorePermissionsThanTheFile) {
  const auto mode_of = [](const fs::path& p) {
    struct stat info = {};
    EXPECT_EQ(stat(p.c_str(), &info), 0);
    return info.st_mode & 07777;
  };
  const mode_t before = umask(0);
  put("private.npy", "old");
  ASSERT_EQ(chmod(path("private.npy").c_str(), 0600), 0);
  {
    NpyWriter writer(path("private.npy"), f32, {8});
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      EXPECT_EQ(mode_of(entry), 0600u) << entry;
  }
  umask(027);
  const float value = 2.5f;
  write_npy(path("new.npy"), f32, {}, &value);
  EXPECT_EQ(mode_of(path("new.npy")), 0640u);
  ASSERT_EQ(chmod(path("new.npy").c_str(), 0666), 0);  // wider than the umask: kept all the same
  write_npy(path("new.npy"), f32, {}, &value);
  EXPECT_EQ(mode_of(path("new.npy")), 0666u);
  umask(before);
}

// A process that is killed while it saves, as the same process id over and over: where containers
// start their one process as number 1.
TEST_F(NpyFileTest, SavesAfterAKillGoOn) {
  put("a.npy", "old");
  const std::vector<float> values(1000, 1.f);
  for (int k = 0; k < 3; ++k) {
    const pid_t child = fork();
    if (child == 0) {
      NpyWriter writer(path("a.npy"), f32, {1000});
      raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(contents(path("a.npy")), "old");
  }
  EXPECT_EQ(file_count(), 4u);
  // Every file that an earlier naming by process id and a count would have taken.
  for (int serial = 0; serial < 100; ++serial)
    put("a.npy.tmp." + std::to_string(getpid()) + "." + std::to_string(serial), "");
  write_npy(path("a.npy"), f32, {1000}, values.data());
  EXPECT_EQ(NpyFile(path("a.npy")).header().shape, Shape{1000});
  EXPECT_EQ(file_count(), 104u);
  // A minute later the next save removes the drafts of dead processes.
  for (const auto& entry : fs::directory_iterator(directory_.path())) {
    if (DraftFile::is_draft_name(entry.path().filename().c_str()))
      fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  }
  write_npy(path("a.npy"), f32, {1000}, values.data());
  EXPECT_EQ(file_count(), 101u);
}

TEST(NpyPieces, CoverABoxInOrder) {
  const std::vector<std::vector<Slice>> boxes = {
      {}, {{3, 10}}, {{0, 0}, {0, 4}}, {{1, 4}, {2, 7}}, {{0, 3}, {5, 6}, {1, 5}, {0, 2}}};
  for (const auto& box : boxes) {
    std::int64_t total = 4;
    for (const Slice& s : box) total *= s.stop - s.start;
    for (const std::int64_t most : {1, 4, 8, 12, 20, 1000}) {
      std::int64_t next = 0;
      for_each_piece(box, 4, most, [&](std::span<const Slice> piece, std::int64_t offset) {
        EXPECT_EQ(offset, next);
        ASSERT_EQ(piece.size(), box.size());
        std::int64_t bytes = 4;
        for (const Slice& s : piece) bytes *= s.stop - s.start;
        EXPECT_LE(bytes, std::max<std::int64_t>(most, 4));
        // The first element's place in the box, row-major, is where the piece begins.
        std::int64_t place = 0;
        for (std::size_t d = 0; d < box.size(); ++d) {
          EXPECT_GE(piece[d].start, box[d].start);
          EXPECT_LE(piece[d].stop, box[d].stop);
          place = place * (box[d].stop - box[d].start) + piece[d].start - box[d].start;
        }
        EXPECT_EQ(place * 4, offset);
        next += bytes;
      });
      EXPECT_EQ(next, total);
    }
  }
}

}  // namespace
}  // namespace shmap::io
