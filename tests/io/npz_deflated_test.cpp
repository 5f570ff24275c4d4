// shmap-test: devices
// .npz archives of deflated members: NumPy's savez_compressed (tests/golden/make_npy_goldens.py),
// whole and sharded; damaged ones, and ones that claim to be larger than they are.
#include <gtest/gtest.h>
#include <shmap/shmap.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "core/base/crc.h"
#include "core/io/npy_format.h"
#include "tests/support/error_text.h"
#include "tests/support/one_member_zip.h"

namespace shmap {
namespace {

using Map = std::map<std::string, Array>;

std::vector<std::uint8_t> noise() {
  std::vector<std::uint8_t> out;
  for (std::uint64_t n = 1; out.size() < 12000; n = n * 48271 % 2147483647)
    out.push_back(static_cast<std::uint8_t>(n >> 8));
  return out;
}

template <class T, class F>
std::vector<T> made(int count, F f) {
  std::vector<T> out;
  for (int i = 0; i < count; ++i) out.push_back(static_cast<T>(f(i)));
  return out;
}

void expect_large(const Map& got) {
  ASSERT_EQ(got.size(), 6u);
  EXPECT_EQ(got.at("noise").to_vector<std::uint8_t>(), noise());
  std::vector<std::uint8_t> far = noise();
  far.resize(3000);
  far.resize(32000);
  far.insert(far.end(), far.begin(), far.begin() + 3000);
  EXPECT_EQ(got.at("far").to_vector<std::uint8_t>(), far);
  EXPECT_EQ(got.at("squares").type(), ShapedArray({300, 200}, i32));
  EXPECT_EQ(got.at("squares").to_vector<std::int32_t>(),
            made<std::int32_t>(60000, [](std::int64_t i) { return i * i % 251; }));
  EXPECT_EQ(got.at("columns").type(), ShapedArray({200, 300}, f32));
  EXPECT_EQ(got.at("columns").to_vector<float>(), made<float>(60000, [](int i) { return i % 77; }));
  EXPECT_EQ(sum(astype(got.at("flags"), i32)).item<std::int32_t>(), 20000);
  EXPECT_EQ(got.at("ramp").to_vector<double>(), made<double>(4000, [](int i) { return i; }));
}

TEST(NpzDeflated, OfNumPy) {
  const Map got = load_npz(SHMAP_GOLDEN_DIR "/npz/savez_compressed.npz");
  ASSERT_EQ(got.size(), 5u);
  EXPECT_EQ(got.at("a").to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(got.at("f").to_vector<double>(), eye(3, f64).to_vector<double>());
  EXPECT_EQ(got.at("b").to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(got.at("s").item<std::int8_t>(), 7);
  EXPECT_EQ(got.at("\xc3\xa9").type(), ShapedArray({0, 2}, f64));
  expect_large(load_npz(SHMAP_GOLDEN_DIR "/npz/savez_compressed_large.npz"));
}

TEST(NpzDeflated, ShardedAndWithProgress) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const NamedSharding both(mesh, P("i", "j")), columns(mesh, P(none, "j")), rows(mesh, P("i"));
  std::int64_t last = 0, all = -1;
  const Map got = load_npz(
      SHMAP_GOLDEN_DIR "/npz/savez_compressed_large.npz",
      {{"squares", both}, {"columns", columns}, {"noise", rows}, {"ramp", both}},
      {.progress = [&](std::int64_t done, std::int64_t total) { last = done, all = total; }});
  EXPECT_EQ(last, all);
  EXPECT_EQ(got.at("squares").sharding(), both);
  EXPECT_EQ(got.at("columns").sharding(), columns);
  expect_large(got);
}

// ---- archives made here

using Archive = test::OneMemberZip;

class DamagedNpz : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             ("shmap_npz_deflated_" + std::to_string(::getpid()) + ".npz"))
                .string();
  }
  void TearDown() override { std::filesystem::remove(path_); }
  Map load(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    return load_npz(path_);
  }
  void refuses(const Archive& archive, std::initializer_list<const char*> fragments) const {
    test::expect_error<ValueError>([&] { load(archive.text()); }, fragments);
  }

  std::string path_;
};

TEST_F(DamagedNpz, EveryByteCounts) {
  std::ifstream in(SHMAP_GOLDEN_DIR "/npz/savez_compressed.npz", std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(in), {});
  int accepted = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    try {
      const Map got = load(damaged);
      ++accepted;
      // Dates, versions, attributes and the like.
      EXPECT_EQ(got.at("a").to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5})) << at;
      EXPECT_EQ(got.at("f").to_vector<double>(), eye(3, f64).to_vector<double>()) << at;
    } catch (const ValueError&) {
    }
  }
  EXPECT_LT(accepted, 330);
}

TEST_F(DamagedNpz, WhatTheArchiveSaysCounts) {
  // 64 KiB of zeros behind a header, in stored and fixed blocks.
  const std::string header = io::make_npy_header(u8, {65536});
  std::string packed(1, '\0');
  for (const std::size_t n : {header.size(), ~header.size()}) test::OneMemberZip::put(packed, n, 2);
  packed += header;
  const std::string start = packed;
  // A literal 0 (8 bits, 0x30), then 254 matches of 258 at distance 1, one of 3, and the end: as
  // bits, the code's first one lowest.
  std::string bits = "110" + std::string("00110000");
  for (int i = 0; i < 254; ++i) bits += "1100010100000";
  bits += "000000100000";
  bits += "0000000";
  for (std::size_t at = 0; at < bits.size(); at += 8) {
    int byte = 0;
    for (std::size_t k = 0; k < 8 && at + k < bits.size(); ++k) byte |= (bits[at + k] - '0') << k;
    packed += static_cast<char>(byte);
  }
  Archive good{packed, header.size() + 65536, 0};
  const std::string contents = header + std::string(65536, '\0');
  good.crc = crc32(contents.data(), contents.size());
  EXPECT_EQ(sum(astype(load(good.text()).at("a"), i32)).item<std::int32_t>(), 0);

  Archive other = good;
  other.crc ^= 1;
  refuses(other,
          {"member 'a.npy': it is damaged: its CRC-32 does not match", "npz_deflated_test.cpp:"});
  // The member has more bytes, or fewer, than the archive and its own header say.
  const std::string small = io::make_npy_header(u8, {1000});
  ASSERT_EQ(small.size(), header.size());
  other = good;
  other.packed = std::string(start).replace(5, small.size(), small) + packed.substr(start.size());
  other.bytes = small.size() + 1000;
  refuses(other, {"it holds more than the ", "bytes that the archive declares"});
  const std::string large = io::make_npy_header(u8, {70000});
  ASSERT_EQ(large.size(), header.size());
  other.packed = std::string(start).replace(5, large.size(), large) + packed.substr(start.size());
  other.bytes = large.size() + 70000;
  refuses(other, {"it holds ", " bytes, and the archive declares "});
  other.packed = good.packed.substr(0, good.packed.size() - 2);
  other.bytes = good.bytes;
  refuses(other, {"its deflated bytes end early"});
  // A few bytes that claim to be gigabytes: nothing is allocated for them.
  other = good;
  other.bytes = 4000000000u;
  refuses(other, {"which is more than they can"});
  other = good;
  other.method = 12;
  refuses(other,
          {"is compressed by method 12", "numpy.savez_compressed", "npz_deflated_test.cpp:"});
}

}  // namespace
}  // namespace shmap
